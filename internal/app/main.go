package app

import (
	"context"
	"os"

	"github.com/kici-go/kici/internal/cli"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/scalercmd"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/spf13/cobra"
)

// Main is the program: args with its own name first, the exit code back.
func Main(ctx context.Context, args []string) int {
	var self []string
	if exe, err := os.Executable(); err == nil {
		self = []string{exe}
	}
	return cli.Execute(ctx, args, cli.Injected{
		Version: obs.BuildVersion(),
		Self:    self,
		Commands: func(c *console.Console) []*cobra.Command {
			return []*cobra.Command{ServerCommand(), DemoCommand(c)}
		},
		Checks:  hostChecks,
		Scalers: scalercmd.File{Check: validateScalers, Schema: func() []byte { return scaler.Schema(backendKinds()) }},
		Agent:   func(*console.Console) *cobra.Command { return AgentCommand() },
	})
}
