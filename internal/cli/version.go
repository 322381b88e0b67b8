package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// versions is what "kici version" prints.
type versions struct {
	Client   string               `json:"client"`
	Protocol int                  `json:"protocol"`
	URL      string               `json:"url"`
	Server   *client.Capabilities `json:"server"` // null when it cannot be reached
}

func version(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "version",
		Long: "Print the version of this program, and of the server if one answers within two seconds.",
		Example: `  kici version
  kici version -o json`, Short: "Print the versions of this program and of the server", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: first(c.Version, "dev"), Protocol: client.ProtocolVersion, URL: c.ServerURL()}
			if cl, err := c.Dial(v.URL, ""); err == nil {
				ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
				defer cancel()
				if caps, err := cl.Capabilities(ctx); err == nil {
					v.Server = &caps
				}
			}
			return c.Print(v, func() error {
				server := "not reachable at " + v.URL
				if v.Server != nil {
					server = v.Server.OrchestratorVersion + "  " + v.URL
				}
				return c.Fields(console.Field{Name: "kici", Value: v.Client}, console.Field{Name: "server", Value: server})
			})
		},
	}
}
