package scalercmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// Check reads and checks a scalers.yaml with a folder of fragments, both "" where the server would look. It returns the file that it
// read and the names of the scalers in it.
type Check func(file, dir string) (read string, scalers []string, problems []client.ScalerProblem)

// File is what this program knows of scalers.yaml.
type File struct {
	Check  Check
	Schema func() []byte // the JSON Schema
	Reap   Reaper
}

func schema(c *console.Console, text func() []byte) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of scalers.yaml, for editors",
		Long:    "Print the JSON Schema of scalers.yaml. It catches most mistakes while they are typed; kici scaler validate catches all.",
		Example: "  kici scaler schema > scalers.schema.json\n  # and in scalers.yaml: # yaml-language-server: $schema=scalers.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := c.Out.Write(text())
			return err
		},
	}
}

type validated struct {
	File     string                 `json:"file"`
	Valid    bool                   `json:"valid"`
	Scalers  []string               `json:"scalers"`
	Problems []client.ScalerProblem `json:"problems"`
}

func validate(c *console.Console, check Check) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check scalers.yaml and report every mistake, without a server",
		Long: "Check scalers.yaml on this machine: every mistake at once, with file, line, column, key and cure. Without FILE it is the one that a\n" +
			"server on this machine would read (KICI_SCALER_CONFIG_PATH, or scalers.yaml in the data directory). Exit code 1 when it is not valid.",
		Example: "  kici scaler validate\n  kici scaler validate scalers.yaml --fragments scalers.d",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			v := validated{}
			v.File, v.Scalers, v.Problems = check(file, dir)
			v.Valid = true
			for _, p := range v.Problems {
				v.Valid = v.Valid && p.Warning
			}
			err := c.Print(v, func() error {
				if err := printProblems(c, v.Problems); err != nil || !v.Valid {
					return err
				}
				_, err := fmt.Fprintf(c.Out, "%s is valid: %s\n", console.CleanLine(v.File), console.CleanLine(strings.Join(v.Scalers, ", ")))
				return err
			})
			if err == nil && !v.Valid {
				err = console.Exit(console.ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "fragments", "", "folder with more scalers (KICI_SCALER_CONFIG_DIR)")
	return cmd
}

func printProblems(c *console.Console, problems []client.ScalerProblem) error {
	for _, p := range problems {
		at := p.File
		if p.Line > 0 {
			at += fmt.Sprintf(":%d:%d", p.Line, p.Column)
		}
		class, word := "failed", "error"
		if p.Warning {
			class, word = "held", "warning"
		}
		text := p.Message
		if p.Path != "" {
			text = p.Path + ": " + text
		}
		if p.Cure != "" {
			text += " (" + p.Cure + ")"
		}
		if _, err := fmt.Fprintf(c.Out, "%s: %s: %s\n", console.CleanLine(at), c.Paint(word, class), console.CleanLine(text)); err != nil {
			return err
		}
	}
	return nil
}

func reload(c *console.Console) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the server read scalers.yaml again, all of it or nothing",
		Long: "Make the server that answers read its scalers.yaml again. All of it applies or nothing; running agents are left alone, and a scaler that\n" +
			"is no longer named retires: its agents finish. A server does the same by itself when the file changes, and on SIGHUP.\n" +
			"Exit code 1 when it is refused.",
		Example: "  kici scaler reload --dry-run\n  kici scaler reload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.ReloadScalers(cmd.Context(), dryRun)
			if err != nil {
				return err
			}
			if err := c.Print(out, func() error { return printReload(c, out) }); err != nil {
				return err
			}
			if out.Refused != "" {
				return console.Exit(console.ExitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would change")
	return cmd
}

func printReload(c *console.Console, out client.ScalerReload) error {
	if err := printProblems(c, out.Problems); err != nil {
		return err
	}
	var rows [][]console.Cell
	for _, ch := range out.Changes {
		name := ch.Name
		if name == "" {
			name = "(all)"
		}
		word, class := changeWord(ch)
		row := []console.Cell{{Text: name}, {Text: ch.Type}, {Text: word, Class: class}, {Text: ch.Reason}}
		if len(ch.Fields) == 0 {
			rows = append(rows, row)
		}
		for _, f := range ch.Fields {
			row[3].Text = fieldText(f)
			rows = append(rows, row)
			row = []console.Cell{{}, {}, {}, {}}
		}
	}
	if len(rows) > 0 {
		if err := c.Table([]string{"SCALER", "TYPE", "CHANGE", "WHAT"}, rows); err != nil {
			return err
		}
	}
	switch {
	case out.Refused != "":
		c.Notice("nothing was changed on %s: %s", out.NodeName, out.Refused)
	case out.DryRun:
		c.Notice("a dry run: nothing was changed on %s", out.NodeName)
	case out.Applied:
		c.Notice("%s is taken up on %s", out.File, out.NodeName)
	default:
		c.Notice("%s says what %s does already", out.File, out.NodeName)
	}
	return nil
}

func changeWord(ch client.ScalerChange) (word, class string) {
	switch ch.Change {
	case "added":
		return "added", "success"
	case "resurrected":
		return "back", "success"
	case "retired":
		return "retires", "held"
	case "refused":
		return "refused", "failed"
	}
	if len(ch.Fields) > 0 {
		return "changed", "running"
	}
	return "kept", ""
}

func fieldText(f client.ScalerField) string {
	old, next := f.Old, f.New
	if old == "" {
		old = "none"
	}
	if next == "" {
		next = "none"
	}
	text := f.Key + ": " + old + " → " + next
	if f.Restart {
		text += ", when the server is started again"
	}
	return text
}
