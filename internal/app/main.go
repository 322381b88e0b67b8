package app

import (
	"context"

	"github.com/kici-go/kici/internal/cli"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/obs"
	"github.com/spf13/cobra"
)

// Main is the program: args with its own name first, the exit code back.
func Main(ctx context.Context, args []string) int {
	return cli.Execute(ctx, args, cli.Injected{
		Version: obs.BuildVersion(),
		Commands: func(c *console.Console) []*cobra.Command {
			return []*cobra.Command{ServerCommand(), DemoCommand(c)}
		},
		Agent: func(*console.Console) *cobra.Command { return AgentCommand() },
	})
}
