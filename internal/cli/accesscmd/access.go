// Package accesscmd is "kici access-log": who did, or tried to do, what.
package accesscmd

import (
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "access-log",
		Long:    "The access log records who asked the server for what, and what became of it: every change, every refusal, and a sample of reads. Nothing deletes a line but retention.",
		Example: "  kici access-log list --limit 20", Short: "Show who did, or tried to do, what",
	}
	cmd.AddCommand(list(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var cursor string
	var limit int
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List entries of the access log, newest first. Changes, refusals and failures are all there; of reads only a sample is.", Aliases: []string{"ls"}, Short: "List the access log, newest first", Args: cobra.NoArgs,
		Example: "  kici access-log list -n 50",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.AccessLog(cmd.Context(), cursor, limit)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "at most this many (100 at once)")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func table(c *console.Console, out client.AccessLog) error {
	rows := make([][]console.Cell, len(out.Items))
	for i, e := range out.Items {
		class := map[string]string{"denied": "failed", "error": "held", "allowed": "success"}[e.Outcome]
		who := e.Label
		if who == "" {
			who = e.Actor
		}
		rows[i] = []console.Cell{
			{Text: console.At(&e.At)},
			{Text: e.Outcome, Class: class},
			{Text: who},
			{Text: e.Action},
			{Text: e.Target},
			{Text: e.Source},
			{Text: e.Error},
		}
	}
	if err := c.Table([]string{"AT", "OUTCOME", "WHO", "ACTION", "TARGET", "FROM", "ERROR"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("more with --cursor %s", out.NextCursor)
	}
	return nil
}
