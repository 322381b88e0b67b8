package runcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
)

func cancel(c *console.Console) *cobra.Command {
	var force bool
	var reason string
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "Cancel a run", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Long: `Cancel a run: jobs that wait end at once, jobs that run are told to stop and have their grace period.
With --force nothing is waited for: whole process trees are killed.`,
		Example: `  kici run cancel acme/shop#482
  kici run cancel 482 --force --reason "wrong branch"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.Cancel(cmd.Context(), args[0], force, reason)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				_, err := fmt.Fprintf(c.Out, "%s: %s\n", out.Status, console.Count(int64(out.CancelledJobs), "job"))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill at once, without a grace period")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the run")
	return cmd
}

func rerun(c *console.Console) *cobra.Command {
	var failed, wait bool
	var timeout time.Duration
	var key string
	cmd := &cobra.Command{
		Use:  "rerun RUN",
		Long: "Run a finished run again: the same workflow, commit, event and inputs, as a new run. With --failed, jobs that succeeded keep their results and are not run again.", Short: "Run a run again at the same commit, as a new run", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Example: `  kici run rerun acme/shop#482
  kici run rerun 482 --failed --wait`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if key == "" {
				key = ci.NewID()
			}
			out, err := cl.Rerun(cmd.Context(), args[0], failed, key)
			if err != nil {
				return err
			}
			return started(c, cmd, cl, startedRun{out, wait, timeout})
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "only the jobs that did not succeed")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the new run; exit 1 unless it succeeds")
	cmd.Flags().StringVar(&key, "request-id", "", "name of this request: repeating it does not run twice")
	timeoutFlag(cmd, &timeout)
	return cmd
}

type startedRun struct {
	run     client.NewRun
	wait    bool
	timeout time.Duration
}

// started prints a new run, or follows it to its end.
func started(c *console.Console, cmd *cobra.Command, cl *client.Client, s startedRun) error {
	if s.wait {
		return follow(c, cmd, cl, followed{s.run.RunID, s.timeout})
	}
	return c.Print(s.run, func() error {
		_, err := fmt.Fprintln(c.Out, s.run.RunID)
		if s.run.URL != "" {
			c.Notice("%s", s.run.URL)
		}
		return err
	})
}
