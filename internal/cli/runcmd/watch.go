package runcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
)

func watchCmd(c *console.Console) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "watch [RUN]",
		Long: `Follow a run to its end. On a terminal one picture redraws itself: every job with its step, its time, and why it waits; elsewhere every change is a line.
The exit code is 0 when the run succeeds and 1 when it does not. An interrupt ends the watching; the run goes on.`, Short: "Follow a run to its end; exit 1 unless it succeeds", Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Example: `  kici run watch
  kici run watch acme/shop#482
  kici run watch 482 && ./deploy.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			ref, err := named(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			return follow(c, cmd, cl, followed{ref, timeout})
		},
	}
	timeoutFlag(cmd, &timeout)
	return cmd
}

// followed is a run that somebody waits for, no longer than the timeout; 0 is for ever.
type followed struct {
	ref     string
	timeout time.Duration
}

func timeoutFlag(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "timeout", 0, "wait no longer than this `duration`, such as 15m; exit 2 when it is over (the run goes on)")
}

// follow draws the run while it happens, or prints it when it has ended if the output is for a machine.
func follow(c *console.Console, cmd *cobra.Command, cl *client.Client, f followed) error {
	format, err := c.Format()
	if err != nil {
		return err
	}
	// An interrupt ends the watching, not the program at once: the terminal must get its cursor back.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	if format == "table" {
		d, err := watch.Run(ctx, cl, f.ref, c.Out, watch.OptionsOf(c))
		if err != nil {
			return f.over(err)
		}
		return verdict(d)
	}
	var last client.RunDetail
	err = cl.FollowRun(ctx, f.ref, func(d client.RunDetail) error { last = d; return nil })
	if err != nil {
		return f.over(err)
	}
	if err := c.Print(last, nil); err != nil {
		return err
	}
	return verdict(last)
}

// over turns the end of the time into an exit code of its own.
func (f followed) over(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && f.timeout > 0 {
		return &console.ExitError{Code: console.ExitNotClean, Err: fmt.Errorf("the run has not ended within %s; it goes on", f.timeout)}
	}
	return err
}
