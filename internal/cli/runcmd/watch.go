package runcmd

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
)

func watchCmd(c *console.Console) *cobra.Command {
	return &cobra.Command{
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
			return follow(c, cmd, cl, ref)
		},
	}
}

// follow draws the run while it happens, or prints it when it has ended if the output is for a machine.
func follow(c *console.Console, cmd *cobra.Command, cl *client.Client, ref string) error {
	format, err := c.Format()
	if err != nil {
		return err
	}
	// An interrupt ends the watching, not the program at once: the terminal must get its cursor back.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if format == "table" {
		d, err := watch.Run(ctx, cl, ref, c.Out, watch.OptionsOf(c))
		if err != nil {
			return err
		}
		return verdict(d)
	}
	var last client.RunDetail
	err = cl.FollowRun(ctx, ref, func(d client.RunDetail) error { last = d; return nil })
	if err != nil {
		return err
	}
	if err := c.Print(last, nil); err != nil {
		return err
	}
	return verdict(last)
}
