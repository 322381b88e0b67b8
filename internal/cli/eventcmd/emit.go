package eventcmd

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/stepcmd"
	"github.com/kici-go/kici/internal/wire"
)

type emitted struct {
	EventID string `json:"eventId"`
	Name    string `json:"name"`
}

// emission is what is to be emitted.
type emission struct {
	name    string
	payload json.RawMessage
	repos   []string
	source  string
}

func emit(c *console.Console) *cobra.Command {
	var payload string
	var more []string
	var e emission
	var flags stepcmd.Flags
	cmd := &cobra.Command{
		Use: "emit NAME", Short: "Emit an event", Args: cobra.ExactArgs(1),
		Long: `Emit an event: every registered workflow whose trigger on.kici_event names it, and whose filters let it pass, gets a run. Its id is
printed.

Inside a step of a running job it is emitted for that job, without a token: where it comes from is what the server knows of the job.
Elsewhere it is emitted by whoever is logged in.

The payload is a JSON object of at most 64 KiB. Names that begin with __ or kici. belong to kici itself. Repeated with the same
--request-id it happens once.`,
		Example: `  kici event emit deploy.done
  kici event emit deploy.done --payload '{"env":"prod"}' --target acme/shop
  make-report | kici event emit report.ready --payload -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if e.payload, err = stepcmd.Payload(c, payload); err != nil {
				return err
			}
			e.name, e.repos = args[0], append(e.repos, more...)
			how := outside
			if stepcmd.Inside(c) {
				how = inside
			}
			id, err := how(cmd, c, e, flags)
			if err != nil {
				return err
			}
			return c.Print(emitted{EventID: id, Name: e.name}, func() error {
				_, err := fmt.Fprintln(c.Out, id)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "JSON object; @FILE reads a file, - standard input")
	f.StringArrayVar(&e.repos, "target", nil, "only workflows of this `repository` (repeat for more)")
	f.StringArrayVar(&more, "to", nil, "the same as --target")
	f.StringVar(&e.source, "source", "", "outside a step: emit it as this source's; without it, it reaches the workflows of every source")
	flags.Add(cmd)
	f.Lookup("request-id").Usage = "`id` under which it happens once, however often it is asked (default random)"
	_ = cmd.RegisterFlagCompletionFunc("source", c.CompleteSources())
	return cmd
}

// inside asks the job's own agent.
func inside(cmd *cobra.Command, c *console.Console, e emission, flags stepcmd.Flags) (string, error) {
	if e.source != "" {
		return "", console.Usage("--source is not for steps: an event of a job is its own source's")
	}
	res, err := stepcmd.Ask(cmd.Context(), c, flags, stepcall.Request{
		Type: wire.TypeEventEmit, Name: e.name, Payload: e.payload, TargetRepos: e.repos,
	})
	return res.ID, err
}

// outside emits by the API.
func outside(cmd *cobra.Command, c *console.Console, e emission, flags stepcmd.Flags) (string, error) {
	cl, err := c.Writer(cmd.Context())
	if err != nil {
		return "", err
	}
	if flags.RequestID == "" {
		flags.RequestID = ci.NewID()
	}
	out, err := cl.EmitEvent(cmd.Context(), client.NewEvent{Name: e.name, Payload: e.payload, TargetRepos: e.repos, Source: e.source}, flags.RequestID)
	if err != nil {
		return "", err
	}
	c.Notice("event %s is emitted; see what became of it with: kici event show %s", e.name, out.EventID)
	return out.EventID, nil
}
