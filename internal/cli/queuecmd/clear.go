package queuecmd

import (
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
)

func clearQueue(c *console.Console) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "clear",
		Long: "Cancel the jobs that wait for an agent, and whole runs of which nothing has begun, those that wait for a concurrency group among them.\n" +
			"What an agent has goes on. Without --confirm it only says how much that would be.",
		Short: "Cancel everything that waits (with --confirm)", Args: cobra.NoArgs,
		Example: "  kici queue clear\n  kici queue clear --confirm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.ClearQueue(cmd.Context(), yes)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				if out.DryRun {
					c.Notice("this would cancel %d jobs, and %d runs as a whole: say so with --confirm", out.Jobs, out.Runs)
					return nil
				}
				c.Notice("cancelled %d jobs, and %d runs as a whole", out.Jobs, out.Runs)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "confirm", false, "really do it")
	return cmd
}
