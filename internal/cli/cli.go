// Package cli is the command line: one folder a noun, one file a verb. Everything here is a client of the API or works on files;
// commands that need a server or the store are built elsewhere and injected (D24). "kici admin X" is "kici-admin X": one tree.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kici-go/kici/internal/cli/accesscmd"
	"github.com/kici-go/kici/internal/cli/agentcmd"
	"github.com/kici-go/kici/internal/cli/checkcmd"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/deliverycmd"
	"github.com/kici-go/kici/internal/cli/doctorcmd"
	"github.com/kici-go/kici/internal/cli/eventcmd"
	"github.com/kici-go/kici/internal/cli/instancecmd"
	"github.com/kici-go/kici/internal/cli/jobcmd"
	"github.com/kici-go/kici/internal/cli/logincmd"
	"github.com/kici-go/kici/internal/cli/orgcmd"
	"github.com/kici-go/kici/internal/cli/periodiccmd"
	"github.com/kici-go/kici/internal/cli/queuecmd"
	"github.com/kici-go/kici/internal/cli/registrationcmd"
	"github.com/kici-go/kici/internal/cli/runcmd"
	"github.com/kici-go/kici/internal/cli/scalercmd"
	"github.com/kici-go/kici/internal/cli/schedulecmd"
	"github.com/kici-go/kici/internal/cli/secretcmd"
	"github.com/kici-go/kici/internal/cli/settingcmd"
	"github.com/kici-go/kici/internal/cli/sourcecmd"
	"github.com/kici-go/kici/internal/cli/tokencmd"
	"github.com/kici-go/kici/internal/cli/trustcmd"
	"github.com/kici-go/kici/internal/cli/webhookcmd"
	"github.com/kici-go/kici/internal/cli/workflowcmd"
)

// Injected is what the command line gets from outside.
type Injected struct {
	Version  string
	Self     []string                                // the program itself, to be started again
	Commands func(*console.Console) []*cobra.Command // server, demo; nil for none
	Checks   doctorcmd.HostChecks                    // of "kici doctor", that need the server's rooms
	Scalers  scalercmd.File                          // of "kici scaler validate" and "schema", likewise
	// Offline opens a database for commands without a server; "" is SQLite in KICI_DATA_DIR.
	Offline func(ctx context.Context, databaseURL string) (url, token string, close func() error, err error)
	Agent   func(*console.Console) *cobra.Command // runs an agent; "agent list" and the like are mounted below it
}

// Execute runs the command that args (with the program's own name first) ask for, and returns the exit code.
func Execute(ctx context.Context, args []string, in Injected) int {
	return execute(ctx, console.New(), args, in)
}

func execute(ctx context.Context, c *console.Console, args []string, in Injected) int {
	c.Version, c.Self = in.Version, in.Self
	root := tree(c, args, in)
	root.SetArgs(args[1:])
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.Err)
	if in.Offline != nil {
		c.OpenOffline = func(databaseURL string) (string, string, func() error, error) { return in.Offline(ctx, databaseURL) }
	}
	cmd, err := root.ExecuteContextC(ctx)
	return report(c, cmd, errors.Join(err, c.CloseOffline()))
}

// tree builds the commands: the everyday ones, or only the operator's when the program is called kici-admin.
func tree(c *console.Console, args []string, in Injected) *cobra.Command {
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	root := everyday(c, in)
	if name == "kici-admin" {
		root = admin(c, in)
		root.Use = "kici-admin"
	}
	c.Admin = name == "kici-admin" || len(args) > 1 && args[1] == "admin"
	globals(c, root)
	strict(root)
	return root
}

// groups of the help text.
const (
	groupWork  = "work"
	groupWrite = "write"
	groupRun   = "run"
	groupAdmit = "admit"
)

func everyday(c *console.Console, in Injected) *cobra.Command {
	root := &cobra.Command{
		Use: "kici",
		Example: `  kici demo
  kici server
  kici run local
  kici run list`, Short: "A CI that starts an agent for every job",
		Long: `kici runs workflows of git repositories, each job on an agent of its own.

New here: "kici demo" shows everything in a minute. To set up: "kici server", then in a repository "kici init" and
"kici source add local .".`,
	}
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Runs and what runs them:"},
		&cobra.Group{ID: groupWrite, Title: "Writing workflows:"},
		&cobra.Group{ID: groupRun, Title: "Programs:"},
		&cobra.Group{ID: groupAdmit, Title: "Access and set-up:"},
	)
	group(root, groupWork, registrationcmd.New(c), schedulecmd.New(c))
	group(root, groupWork, runcmd.New(c), jobcmd.New(c), jobcmd.Why(c), queuecmd.New(c), agents(c, in), scalercmd.New(c, in.Scalers), deliverycmd.New(c), eventcmd.New(c), checkcmd.New(c))
	group(root, groupAdmit, trustcmd.New(c))
	group(root, groupWrite, workflowcmd.Commands(c)...)
	group(root, groupAdmit, sourcecmd.New(c), secretcmd.New(c), tokencmd.New(c), accesscmd.New(c))
	group(root, groupAdmit, operators(c)...)
	group(root, groupAdmit, logincmd.Commands(c)...)
	group(root, groupAdmit, doctorcmd.Doctor(c, in.Checks))
	group(root, groupAdmit, webhookcmd.Commands()...)
	if in.Commands != nil {
		group(root, groupRun, in.Commands(c)...)
	}
	root.AddCommand(admin(c, in), version(c), docs())
	return root
}

// admin is the operator's tree: the same commands under the operator table's names.
func admin(c *console.Console, in Injected) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "admin",
		Long: "The operator's commands under the names of the operator's table; kici-admin X is the same as kici admin X.",
		Example: `  kici admin diagnose
  kici admin runs list`, Short: "The operator's commands (the same as kici-admin)",
	}
	cmd.AddCommand(registrationcmd.New(c), schedulecmd.New(c), eventcmd.DeadLetters(c), trustcmd.New(c))
	cmd.AddCommand(runcmd.New(c), jobcmd.New(c), jobcmd.Why(c), queuecmd.New(c), agents(c, in), scalercmd.New(c, in.Scalers), deliverycmd.New(c), eventcmd.New(c), checkcmd.New(c),
		sourcecmd.New(c), secretcmd.New(c), tokencmd.New(c), accesscmd.New(c), doctorcmd.Diagnose(c), version(c))
	cmd.AddCommand(operators(c)...)
	return cmd
}

// operators are the commands of who operates the cluster.
func operators(c *console.Console) []*cobra.Command {
	return append([]*cobra.Command{orgcmd.New(c), instancecmd.New(c), periodiccmd.New(c)}, settingcmd.Commands(c)...)
}

func agents(c *console.Console, in Injected) *cobra.Command {
	if in.Agent == nil {
		return agentcmd.New(c, nil)
	}
	return agentcmd.New(c, in.Agent(c))
}

func group(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

// globals adds the flags of every command (CLI-1).
func globals(c *console.Console, root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(*cobra.Command, []string) error { // before anything is done, also by commands that print little
		_, err := c.Format()
		return err
	}
	root.Version = first(c.Version, "dev")
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	f := root.PersistentFlags()
	f.StringVar(&c.Server, "server", "", "server `address` (KICI_URL; default the last login, else "+console.DefaultServer+")")
	f.StringVarP(&c.Server, "url", "u", "", "the same as --server")
	f.StringVarP(&c.Token, "token", "t", "", "API token (KICI_TOKEN; found by itself on the server's machine and after \"kici login\")")
	f.StringVar(&c.Org, "org", "", "act in this `organisation` instead of the token's own (KICI_ORG; only who operates the cluster may)")
	f.StringVarP(&c.Output, "output", "o", "table", "table, json or yaml")
	f.StringVar(&c.Output, "format", "table", "the same as --output")
	f.BoolVar(&c.JSON, "json", false, "the same as --output json")
	f.BoolVar(&c.Offline, "offline", false, "without a server, on its database: in KICI_DATA_DIR, or that of --database-url (KICI_DATABASE_URL)")
	f.StringVar(&c.DatabaseURL, "database-url", "", "without a server, on this `postgres://…`")
	f.BoolVar(&c.NoColor, "no-color", false, "no colours (also NO_COLOR; CLICOLOR_FORCE=1 asks for them without a terminal)")
	f.BoolVar(&c.NoTrunc, "no-trunc", false, "do not shorten tables to fit the terminal")
	for _, name := range []string{"output", "format"} {
		_ = root.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, name := range []string{"url", "format", "json"} {
		_ = f.MarkHidden(name)
	}
	if c.Admin {
		root.Flags().BoolP("cli-version", "V", false, "print the version")
	}
}

// strict makes every wrong use an error of its own code, also below groups, where cobra would print help and succeed.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrongFlag(err) })
	noFiles(cmd)
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, a []string) error {
			if err := args(cmd, a); err != nil {
				return wrongArgs(cmd, a, err)
			}
			return nil
		}
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = groupOnly
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// wrongFlag says what a flag wants in words, not in those of the parser below.
func wrongFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return console.Usage("%w", err)
	}
	wants := map[string]string{
		"int": "a whole number", "int64": "a whole number", "duration": "a time such as 90s, 15m or 24h", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if wants == "" {
		return console.Usage("%w", err)
	}
	return console.Usage("--%s is %s, not %q", bad.GetFlag().Name, wants, bad.GetValue())
}

// noFiles keeps completion from offering the files of this folder where none is meant.
func noFiles(cmd *cobra.Command) {
	if _, args, _ := strings.Cut(cmd.Use, " "); cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !fileWord(args) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { noFilesOf(cmd, f) })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { noFilesOf(cmd, f) })
}

func noFilesOf(cmd *cobra.Command, f *pflag.Flag) {
	if _, set := cmd.GetFlagCompletionFunc(f.Name); set || fileWord(f.Name) {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // fails only where one is set
}

// fileWord reports whether a flag's or an argument's name means something on the disk.
func fileWord(name string) bool {
	name = strings.ToLower(name)
	for _, w := range []string{"file", "dir", "path", "repository", "config"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// wrongArgs says what is missing or too much in the words of the command's own usage line, "verb JOB | RUN JOB" or "verb [RUN]".
func wrongArgs(cmd *cobra.Command, args []string, err error) error {
	_, usage, _ := strings.Cut(cmd.Use, " ")
	least, _, _ := strings.Cut(usage, "|")
	least, _, _ = strings.Cut(least, "[")
	switch required := strings.Fields(least); {
	case len(args) > 0 && (usage == "" || strings.HasPrefix(usage, "-")) && !cmd.HasSubCommands():
		return console.Usage("%s takes no argument, got %q", cmd.CommandPath(), args[0])
	case len(args) < len(required):
		return console.Usage("%s is missing: %s %s", required[len(args)], cmd.CommandPath(), usage)
	case strings.HasPrefix(err.Error(), "accepts"):
		return console.Usage("too many arguments: %s %s", cmd.CommandPath(), usage)
	}
	return console.Usage("%w", err)
}

// groupOnly is what a noun without a verb does.
func groupOnly(cmd *cobra.Command, args []string) error {
	if v, err := cmd.Flags().GetBool("cli-version"); err == nil && v {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Version)
		return err
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("there is no %q under %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return console.Usage("%s", text)
}

// report prints what went wrong, and how to go on, and gives the exit code.
func report(c *console.Console, cmd *cobra.Command, err error) int {
	if err == nil {
		return console.ExitOK
	}
	code := console.CodeOf(err)
	var ee *console.ExitError
	if errors.As(err, &ee) && ee.Err == nil {
		return code
	}
	if errors.Is(err, context.Canceled) {
		c.Notice("interrupted; what runs on the server goes on")
		return console.ExitFailed
	}
	// cobra checks required flags and flag groups by itself and has no hook for them.
	if text := err.Error(); strings.HasPrefix(text, "required flag(s)") || strings.HasPrefix(text, "if any flags in the group") {
		code = console.ExitUsage
	}
	fmt.Fprintf(c.Err, "Error: %s\n", console.Clean(c.Explain(err)))
	if code == console.ExitUsage {
		fmt.Fprintf(c.Err, "See %q.\n", cmd.CommandPath()+" --help")
	}
	return code
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
