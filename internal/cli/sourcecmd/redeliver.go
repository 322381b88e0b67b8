package sourcecmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func redeliver(c *console.Console) *cobra.Command {
	var since, until string
	var dry bool
	cmd := &cobra.Command{
		Use: "redeliver SOURCE", Short: "Ask GitHub to repeat the deliveries that it could not make", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Ask GitHub to repeat the deliveries that it could not make in a window of time. The server does so by itself every few minutes;
this is for a window further back. Deliveries that are here all the same are left out.`,
		Example: `  kici source redeliver shop --since 6h --dry-run
  kici source redeliver shop --since 2026-05-04T08:00:00Z --until 2026-05-04T10:00:00Z`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := client.Redelivery{DryRun: dry}
			var err error
			if r.Since, err = instant(since, c.Now()); err != nil {
				return console.Usage("--since: %v", err)
			}
			if r.Until, err = instant(until, c.Now()); err != nil {
				return console.Usage("--until: %v", err)
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.RedeliverSource(cmd.Context(), args[0], r)
			if err != nil {
				return err
			}
			if err := c.Print(out, func() error { return printRedelivered(c, out) }); err != nil {
				return err
			}
			if len(out.Failed) > 0 {
				return &console.ExitError{Code: console.ExitNotClean, Err: fmt.Errorf("%d of %d were not repeated", len(out.Failed), out.Matched)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "24h", "begin of the window: a `time` (RFC 3339) or how long ago, such as 6h")
	f.StringVar(&until, "until", "0s", "end of the window, likewise")
	f.BoolVar(&dry, "dry-run", false, "only say how many")
	return cmd
}

// instant reads a time, or how long ago it was.
func instant(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a time such as 2026-05-04T08:00:00Z nor a duration such as 6h", text)
	}
	return at.UTC(), nil
}

func printRedelivered(c *console.Console, out client.Redelivered) error {
	if err := c.Fields(
		console.Field{Name: "not delivered", Value: fmt.Sprint(out.Matched)}, console.Field{Name: "here all the same", Value: fmt.Sprint(out.Known)},
		console.Field{Name: "repeated", Value: fmt.Sprint(out.Redelivered)}, console.Field{Name: "failed", Value: fmt.Sprint(len(out.Failed))},
	); err != nil {
		return err
	}
	if out.More {
		c.Notice("there are more in this window: run it again")
	}
	if len(out.Failed) == 0 {
		return nil
	}
	rows := make([][]console.Cell, len(out.Failed))
	for i, f := range out.Failed {
		rows[i] = console.Plain(f.GUID, f.Event, f.Error)
	}
	return c.Table([]string{"DELIVERY", "EVENT", "ERROR"}, rows)
}
