package sourcecmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
)

func purgeStale(c *console.Console) *cobra.Command {
	var yes bool
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "purge-stale",
		Long: "Remove sources that have been off for a long time and to which nothing has come since, each with its secrets and registrations.\n" +
			"Their runs stay. Without --confirm it only lists them.",
		Short: "Remove sources that have been off for long (with --confirm)", Args: cobra.NoArgs,
		Example: "  kici source purge-stale\n  kici source purge-stale --idle 720h --confirm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.PurgeSources(cmd.Context(), idle.Milliseconds(), yes)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				switch {
				case len(out.Sources) == 0:
					c.Notice("no source has been off for so long")
					return nil
				case out.DryRun:
					c.Notice("this would remove %d sources: say so with --confirm", len(out.Sources))
				default:
					c.Notice("removed %d sources", len(out.Sources))
				}
				rows := make([][]console.Cell, len(out.Sources))
				for i, s := range out.Sources {
					rows[i] = console.Plain(s.Name, s.Kind, s.Repo, c.Ago(s.UpdatedAt))
				}
				return c.Table([]string{"SOURCE", "KIND", "REPOSITORY", "CHANGED"}, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "confirm", false, "really do it")
	cmd.Flags().DurationVar(&idle, "idle", 90*24*time.Hour, "off for so long")
	return cmd
}
