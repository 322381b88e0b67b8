// Package accesscmd is "kici access-log": who did, or tried to do, what.
package accesscmd

import (
	"time"

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
	cmd.AddCommand(list(c), show(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.AccessQuery
	var since time.Duration
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the access log, newest first", Args: cobra.NoArgs,
		Long:    "List entries of the access log, newest first. Changes, refusals and failures are all there; of reads only a sample is.",
		Example: "  kici access-log list -n 50\n  kici access-log list --action 'secret.*' --outcome denied --since 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if since > 0 {
				q.Since = c.Now().Add(-since)
			}
			out, err := cl.AccessLog(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Action, "action", "", "only this action; secret.* for all that begin so")
	f.StringVar(&q.Actor, "actor", "", "only who has this token (id or label)")
	f.StringVar(&q.Outcome, "outcome", "", "only allowed, denied or error")
	f.StringVar(&q.Target, "target", "", "only about this")
	f.DurationVar(&since, "since", 0, "only the last `time`, such as 24h")
	f.IntVarP(&q.Limit, "limit", "n", 20, "at most this many (100 at once)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show an entry of the access log", Args: cobra.ExactArgs(1),
		Long:    "Show one entry of the access log with all that was recorded, such as old and new values of settings.",
		Example: "  kici access-log show 0195b2c4-0000-7000-8000-000000000001",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			e, err := cl.AccessEntry(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(e, func() error {
				return c.Fields(
					console.Field{Name: "at", Value: console.At(&e.At)}, console.Field{Name: "outcome", Value: e.Outcome},
					console.Field{Name: "who", Value: e.Label + "  " + e.Actor + " (" + e.ActorKind + ")"}, console.Field{Name: "action", Value: e.Action},
					console.Field{Name: "target", Value: e.Target}, console.Field{Name: "from", Value: e.Source},
					console.Field{Name: "request", Value: e.RequestID}, console.Field{Name: "error", Value: e.Error},
					console.Field{Name: "more", Value: string(e.Meta)},
				)
			})
		},
	}
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
