package runcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
)

func purgeStale(c *console.Console) *cobra.Command {
	var yes bool
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "purge-stale",
		Long: "End runs of which nothing has moved for a long time, without waiting for their agents. The server ends what hangs by itself;\n" +
			"this is for what it does not. Without --confirm it only lists them.",
		Short: "End runs that stand still (with --confirm)", Args: cobra.NoArgs,
		Example: "  kici run purge-stale\n  kici run purge-stale --idle 48h --confirm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.PurgeStale(cmd.Context(), idle.Milliseconds(), yes)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				switch {
				case len(out.Runs) == 0:
					c.Notice("no run stands still")
					return nil
				case out.DryRun:
					c.Notice("this would end %d runs: say so with --confirm", len(out.Runs))
				default:
					c.Notice("ended %d runs", len(out.Runs))
				}
				rows := make([][]console.Cell, len(out.Runs))
				for i, r := range out.Runs {
					rows[i] = console.Plain(fmt.Sprintf("%s#%d", r.Repo, r.Number), r.Workflow, r.Status, c.Ago(r.CreatedAt))
				}
				return c.Table([]string{"RUN", "WORKFLOW", "STATUS", "CREATED"}, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "confirm", false, "really do it")
	cmd.Flags().DurationVar(&idle, "idle", 24*time.Hour, "nothing of the run has moved for so long")
	return cmd
}
