package runcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func show(c *console.Console) *cobra.Command {
	var steps bool
	cmd := &cobra.Command{
		Use:  "show [RUN]",
		Long: "Show one run: its commit, its event, its jobs, and why those that wait are waiting. What happened to it, and when, is\nsaid by \"kici run timeline\".", Short: "Show one run with its jobs, and why those that wait are waiting", Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Example: `  kici run show acme/shop#482
  kici run show 482 --steps`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			ref, err := named(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			d, err := cl.Run(cmd.Context(), ref)
			if err != nil {
				return err
			}
			return c.Print(d, func() error { return Show(c, d, steps) })
		},
	}
	cmd.Flags().BoolVar(&steps, "steps", false, "show the steps of every job")
	return cmd
}

// Show prints a run for people.
func Show(c *console.Console, d client.RunDetail, steps bool) error {
	word := d.Display.Word
	if d.DurationMs != nil {
		word += " in " + console.Took(*d.DurationMs)
	}
	err := c.Fields(
		console.Field{Name: "run", Value: Name(d.Run) + "  " + d.Title},
		console.Field{Name: "status", Value: word, Class: d.Display.Class},
		console.Field{Name: "reason", Value: d.FailureReason},
		console.Field{Name: "workflow", Value: d.Workflow},
		console.Field{Name: "commit", Value: d.SHA + "  " + d.Branch},
		console.Field{Name: "event", Value: d.TriggerEvent + by(d.Actor)},
		console.Field{Name: "cancelled by", Value: d.CancelledBy},
		console.Field{Name: "created", Value: console.At(&d.CreatedAt)},
		console.Field{Name: "id", Value: d.ID},
		console.Field{Name: "page", Value: d.URL},
		console.Field{Name: "commit statuses", Value: d.Checks.Problem(), Class: "held"},
	)
	if err != nil {
		return err
	}
	for _, w := range d.Warnings {
		if err := c.Fields(console.Field{Name: "warning", Value: w, Class: "held"}); err != nil {
			return err
		}
	}
	if len(d.Jobs) == 0 {
		return nil
	}
	fmt.Fprintln(c.Out)
	return Jobs(c, d.Jobs, steps)
}

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + actor
}

// Jobs prints the jobs of a run.
func Jobs(c *console.Console, jobs []client.Job, steps bool) error {
	var rows [][]console.Cell
	for _, j := range jobs {
		rows = append(rows, []console.Cell{
			{Text: j.DisplayName},
			{Text: j.Display.Word, Class: j.Display.Class},
			{Text: console.TookPtr(j.DurationMs)},
			{Text: j.AgentID},
			{Text: j.Why},
		})
		if !steps {
			continue
		}
		for _, s := range j.Steps {
			rows = append(rows, []console.Cell{
				{Text: fmt.Sprintf("  %d %s", s.Index, s.Name)},
				{Text: s.Display.Word, Class: s.Display.Class},
				{Text: console.TookPtr(s.DurationMs)},
				{},
				{Text: s.Error},
			})
		}
	}
	return c.Table([]string{"JOB", "STATUS", "TOOK", "AGENT", "WHY"}, rows)
}
