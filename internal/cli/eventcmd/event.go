// Package eventcmd is "kici event".
package eventcmd

import (
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "event", Aliases: []string{"events"}, Short: "Emit internal events, which start workflows",
		Long:    `Events start the workflows that wait for them with on.kici_event.`,
		Example: `  kici event emit deploy.done --payload '{"env":"prod"}'`,
	}
	cmd.AddCommand(emit(c))
	return cmd
}
