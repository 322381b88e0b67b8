// Package periodiccmd is "kici scheduled-job": the server's own periodic jobs.
package periodiccmd

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "scheduled-job", Aliases: []string{"scheduled-jobs"}, Short: "Show and run the server's own periodic jobs",
		Long:    "The server's own periodic jobs delete what is old and look for what nothing else would notice. They run on the instance that leads.",
		Example: "  kici scheduled-job list\n  kici scheduled-job trigger cleanup",
	}
	cmd.AddCommand(list(c), trigger(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the server's periodic jobs", Args: cobra.NoArgs,
		Long:    "List the server's periodic jobs with how each went last.",
		Example: "  kici scheduled-job list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.ScheduledJobs(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Jobs))
				for i, j := range out.Jobs {
					word, class := state(j)
					rows[i] = []console.Cell{
						{Text: j.Name},
						{Text: (time.Duration(j.EveryMs) * time.Millisecond).String()},
						{Text: word, Class: class},
						{Text: console.At(j.LastRunAt)},
						{Text: console.Took(j.DurationMs)},
						{Text: or(j.LastError, j.About)},
					}
				}
				return c.Table([]string{"NAME", "EVERY", "STATE", "LAST RUN", "TOOK", "WHAT IT DOES, OR THE LAST ERROR"}, rows)
			})
		},
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func state(j client.ScheduledJob) (word, class string) {
	switch {
	case j.LastRunAt == nil:
		return "not run yet", "skipped"
	case j.Failures > 0:
		return "fails", "failed"
	}
	return "well", "success"
}

func trigger(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "trigger NAME", Short: "Run one of the server's periodic jobs now", Args: cobra.ExactArgs(1),
		Long:    "Run one of the server's periodic jobs now, wait for it, and say what it did.",
		Example: "  kici scheduled-job trigger cleanup",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.TriggerScheduledJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.Print(out, func() error {
				for _, line := range out.Report {
					c.Notice("%s", line)
				}
				if out.OK {
					c.Notice("%s ran in %s", args[0], console.Took(out.DurationMs))
				}
				return nil
			}); err != nil {
				return err
			}
			if !out.OK {
				return errors.New(out.Error)
			}
			return nil
		},
	}
}
