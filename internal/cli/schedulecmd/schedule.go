// Package schedulecmd is "kici schedule": when workflows start by the clock.
package schedulecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule", Aliases: []string{"schedules"}, Short: "Show when workflows start by the clock",
		Long: `A schedule is a cron expression of a registered workflow. Switch it with "kici registration disable" and "enable", and start it now with
"kici registration run".`,
		Example: `  kici schedule list
  kici schedule show nightly`,
	}
	cmd.AddCommand(list(c), show(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.ScheduleQuery
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List schedules", Args: cobra.NoArgs,
		Long: "List schedules by repository, with when they fired last and when they are due next.",
		Example: `  kici schedule list
  kici schedule list --repo acme/shop`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Schedules(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Repo, "repo", "", "only of this repository")
	f.StringVar(&q.Workflow, "workflow", "", "only of this workflow")
	f.IntVarP(&q.Limit, "limit", "n", 20, "at most this many (100 at once)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func table(c *console.Console, out client.ScheduleList) error {
	if len(out.Schedules) == 0 {
		c.Notice("no schedules; a workflow gets one with \"on: {schedule: [{cron: '30 4 * * *'}]}\" on the default branch")
		return nil
	}
	rows := make([][]console.Cell, len(out.Schedules))
	for i, s := range out.Schedules {
		next, class := due(s)
		last := "never"
		if s.LastFiredAt != nil {
			last = c.Ago(*s.LastFiredAt)
		}
		rows[i] = []console.Cell{{Text: s.Repo}, {Text: s.Workflow}, {Text: s.Expression}, {Text: s.Timezone}, {Text: last}, {Text: next, Class: class}}
	}
	if err := c.Table([]string{"REPOSITORY", "WORKFLOW", "CRON", "TIME ZONE", "LAST", "NEXT"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("more with --cursor %s", out.NextCursor)
	}
	return nil
}

func due(s client.Schedule) (text, class string) {
	switch {
	case s.Error != "":
		return s.Error, "failed"
	case s.Disabled:
		return "disabled", "skipped"
	case len(s.Next) == 0:
		return "never", "skipped"
	}
	return console.At(&s.Next[0]), ""
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show REGISTRATION", Aliases: []string{"get"}, Short: "Show the schedules of a registered workflow", Args: cobra.ExactArgs(1),
		Long:    "Show every schedule of a registered workflow with its next instants, and what the last one started.",
		Example: "  kici schedule show nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			d, err := cl.Registration(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := client.ScheduleList{Schedules: d.Schedules}
			return c.Print(out, func() error { return fields(c, d) })
		},
	}
}

func fields(c *console.Console, d client.RegistrationDetail) error {
	if len(d.Schedules) == 0 {
		c.Notice("workflow %s of %s has no schedule", d.Workflow, d.Repo)
		return nil
	}
	all := []console.Field{{Name: "workflow", Value: d.Workflow}, {Name: "repository", Value: d.Repo}}
	for _, s := range d.Schedules {
		text, class := due(s)
		all = append(all, console.Field{Name: "schedule", Value: s.Expression + " " + s.Timezone})
		if s.LastFiredAt != nil {
			all = append(all, console.Field{Name: "last", Value: fmt.Sprintf("%s, run %s", console.At(s.LastFiredAt), orNone(s.LastRunID))})
		}
		if len(s.Next) == 0 {
			all = append(all, console.Field{Name: "next", Value: text, Class: class})
		}
		for i := range s.Next {
			all = append(all, console.Field{Name: "next", Value: console.At(&s.Next[i])})
		}
	}
	return c.Fields(all...)
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}
