package runcmd

import (
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
)

func watchCmd(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "watch RUN", Short: "Follow a run to its end; exit 1 unless it succeeds", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteRuns(),
		Example: `  kici run watch acme/shop#482
  kici run watch 482 && ./deploy.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			return follow(c, cmd, cl, args[0])
		},
	}
}

// follow draws the run while it happens, or prints it when it has ended if the output is for a machine.
func follow(c *console.Console, cmd *cobra.Command, cl *client.Client, ref string) error {
	format, err := c.Format()
	if err != nil {
		return err
	}
	if format == "table" {
		d, err := watch.Run(cmd.Context(), cl, ref, c.Out, watch.OptionsOf(c))
		if err != nil {
			return err
		}
		return verdict(d)
	}
	var last client.RunDetail
	err = cl.FollowRun(cmd.Context(), ref, func(d client.RunDetail) error { last = d; return nil })
	if err != nil {
		return err
	}
	if err := c.Print(last, nil); err != nil {
		return err
	}
	return verdict(last)
}
