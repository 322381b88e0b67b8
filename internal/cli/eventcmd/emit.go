package eventcmd

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/stepcmd"
	"github.com/kici-go/kici/internal/wire"
)

type emitted struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// emission is what is to be emitted.
type emission struct {
	name    string
	payload json.RawMessage
	repos   []string
}

func emit(c *console.Console) *cobra.Command {
	var payload string
	var e emission
	var flags stepcmd.Flags
	cmd := &cobra.Command{
		Use: "emit NAME", Short: "Emit an event", Args: cobra.ExactArgs(1),
		Long: `Emit an event: workflows that wait for it with on.kici_event are started. Its id is printed.

Inside a step of a running job it is emitted for that job, without a token: where it comes from is what the server knows of the job.
Names that begin with __ or kici. are reserved. Repeated with the same --request-id it happens once.`,
		Example: `  kici event emit deploy.done
  kici event emit deploy.done --payload '{"env":"prod"}' --to acme/shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if e.payload, err = stepcmd.Payload(c, payload); err != nil {
				return err
			}
			e.name = args[0]
			if !stepcmd.Inside(c) {
				return outside(e)
			}
			res, err := stepcmd.Ask(cmd.Context(), c, flags, stepcall.Request{
				Type: wire.TypeEventEmit, Name: e.name, Payload: e.payload, TargetRepos: e.repos,
			})
			if err != nil {
				return err
			}
			return c.Print(emitted{ID: res.ID, Name: e.name}, func() error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), res.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "JSON object; @FILE reads a file, - standard input")
	cmd.Flags().StringArrayVar(&e.repos, "to", nil, "only workflows of this `repository` (repeat for more)")
	flags.Add(cmd)
	return cmd
}

// outside emits by the API.
func outside(emission) error { return stepcall.ErrOutside }
