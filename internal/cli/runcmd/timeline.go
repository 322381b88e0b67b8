package runcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func timeline(c *console.Console) *cobra.Command {
	var q client.TimelineQuery
	cmd := &cobra.Command{
		Use: "timeline [RUN]", Short: "Say what happened to a run and its jobs, and why", Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Long: `Say what happened to a run, oldest first: what delivered it and why it matched, where its jobs waited and why, which agents had them,
what was lost, repeated or cancelled and by whom, how they ended, and what the run caused.`,
		Example: `  kici run timeline acme/shop#482
  kici run timeline 482 --job build --steps`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			ref, err := named(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			out, err := wholeTimeline(cmd.Context(), cl, ref, q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return printTimeline(c, out) })
		},
	}
	cmd.Flags().StringVar(&q.Job, "job", "", "only this job, by name or `id`")
	cmd.Flags().BoolVar(&q.Steps, "steps", false, "also steps that went well")
	return cmd
}

// maxTimelinePages bounds what is fetched for one print: 20,000 lines.
const maxTimelinePages = 20

func wholeTimeline(ctx context.Context, cl *client.Client, ref string, q client.TimelineQuery) (client.Timeline, error) {
	q.Limit = 1000
	out, err := cl.Timeline(ctx, ref, q)
	for n := 1; err == nil && out.NextCursor != "" && n < maxTimelinePages; n++ {
		var next client.Timeline
		q.Cursor = out.NextCursor
		if next, err = cl.Timeline(ctx, ref, q); err == nil {
			out.Entries, out.NextCursor = append(out.Entries, next.Entries...), next.NextCursor
		}
	}
	return out, err
}

func printTimeline(c *console.Console, t client.Timeline) error {
	rows := make([][]console.Cell, len(t.Entries))
	for i, e := range t.Entries {
		text := e.Text
		if e.Actor != "" {
			text += " (" + e.Actor + ")"
		}
		if e.Until != nil {
			text += fmt.Sprintf(" [%s]", console.Took(e.Until.Sub(e.At.Time).Milliseconds()))
		}
		rows[i] = []console.Cell{{Text: e.At.UTC().Format("2006-01-02 15:04:05.000")}, {Text: e.Job}, {Text: text}}
	}
	if err := c.Table([]string{"AT", "JOB", "WHAT"}, rows); err != nil {
		return err
	}
	if t.Cut != "" {
		c.Notice("%s", t.Cut)
	}
	if t.NextCursor != "" {
		c.Notice("there is more: --output json with the API's cursor shows all of it")
	}
	return nil
}
