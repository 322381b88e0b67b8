package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs writes reference pages from the commands themselves; it is for packagers and the project's own documents.
func docs() *cobra.Command {
	cmd := &cobra.Command{
		Use:  "docs",
		Long: "Write the reference pages that packages and the project's own documents contain, from the commands themselves.",
		Example: `  kici docs man man1
  kici docs markdown reference`, Short: "Write reference pages", Hidden: true,
	}
	var dir string
	man := &cobra.Command{
		Use: "man [DIR]", Short: "Write a man page for every command", Args: cobra.MaximumNArgs(1),
		Long: "Write a man page for every command into DIR, which is made where it is missing.", Example: "  kici docs man man1 && man man1/kici-run.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return writePages(cmd.Root(), target(args, dir), ".1", manPage)
		},
	}
	man.Flags().StringVar(&dir, "dir", ".", "where to write, the same as DIR")
	markdown := &cobra.Command{
		Use: "markdown [DIR]", Short: "Write a page in Markdown for every command", Args: cobra.MaximumNArgs(1),
		Long: "Write a page in Markdown for every command into DIR, which is made where it is missing.", Example: "  kici docs markdown reference",
		RunE: func(cmd *cobra.Command, args []string) error {
			return writePages(cmd.Root(), target(args, "."), ".md", markdownPage)
		},
	}
	table := &cobra.Command{
		Use: "commands", Short: "Print a table of all commands in Markdown", Args: cobra.NoArgs,
		Long: "Print a table of all commands with what each does, in Markdown.", Example: "  kici docs commands",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.OutOrStdout(), "| command | what it does |\n|---|---|\n")
			each(cmd.Root(), func(sub *cobra.Command) {
				if !sub.HasAvailableSubCommands() {
					fmt.Fprintf(cmd.OutOrStdout(), "| `%s` | %s |\n", strings.ReplaceAll(sub.UseLine(), "|", `\|`), sub.Short)
				}
			})
			return nil
		},
	}
	cmd.AddCommand(man, markdown, table)
	return cmd
}

// each visits every command that people are shown, except the second copy below admin.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "admin" {
		return
	}
	f(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, f)
	}
}

func target(args []string, dir string) string {
	if len(args) > 0 {
		return args[0]
	}
	return dir
}

// writePages writes one file for each command.
func writePages(root *cobra.Command, dir, ext string, page func(cmd *cobra.Command, name string) string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var failed error
	each(root, func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		if err := os.WriteFile(filepath.Join(dir, name+ext), []byte(page(cmd, name)), 0o644); err != nil && failed == nil {
			failed = err
		}
	})
	return failed
}

// markdownPage is one page in Markdown.
func markdownPage(cmd *cobra.Command, _ string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), first(cmd.Long, cmd.Short), cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\n## Examples\n\n```\n%s\n```\n", cmd.Example)
	}
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"Options", cmd.NonInheritedFlags()}, {"Options of every command", cmd.InheritedFlags()}} {
		if usage := set.flags.FlagUsages(); usage != "" {
			fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", set.title, usage)
		}
	}
	if subs := cmd.Commands(); len(subs) > 0 {
		b.WriteString("\n## Commands\n\n")
		for _, sub := range subs {
			if !sub.Hidden {
				fmt.Fprintf(&b, "- [%s](%s.md): %s\n", sub.CommandPath(), strings.ReplaceAll(sub.CommandPath(), " ", "-"), sub.Short)
			}
		}
	}
	return b.String()
}

// manPage is one page in roff.
func manPage(cmd *cobra.Command, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(name), roff(name), roff(cmd.Short), roff(cmd.UseLine()))
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(cmd.Long))
	}
	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	if subs := cmd.Commands(); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			if !sub.Hidden {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	return b.String()
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	begun := false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if !begun {
			fmt.Fprintf(b, ".SH %s\n", title)
			begun = true
		}
		value, usage := pflag.UnquoteUsage(f)
		text := "--" + f.Name
		if f.Shorthand != "" {
			text = "-" + f.Shorthand + ", " + text
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(text+" "+value)), roff(usage))
	})
}

// roff escapes text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
