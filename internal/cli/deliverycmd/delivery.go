// Package deliverycmd is "kici delivery": what was received, and what was decided.
package deliverycmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "delivery",
		Long: "A delivery is what a webhook, a hook or a person sent to a source. kici keeps each with what became of it: which workflows matched, and why the others did not.",
		Example: `  kici delivery list
  kici delivery show d-1`, Aliases: []string{"deliveries", "event-log"}, Short: "Show what was delivered, and why it did or did not start a run",
	}
	cmd.AddCommand(list(c), show(c), replay(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.DeliveryQuery
	var since time.Duration
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List deliveries, newest first, with what became of them.", Aliases: []string{"ls"}, Short: "List deliveries, newest first", Args: cobra.NoArgs,
		Example: `  kici delivery list
  kici delivery list --source shop --status failed`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if since > 0 {
				q.Since = c.Now().Add(-since)
			}
			out, err := cl.Deliveries(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Source, "source", "", "only from this source")
	f.StringVar(&q.Status, "status", "", "only with this status")
	f.StringVar(&q.Event, "event", "", "only this event")
	f.DurationVar(&since, "since", 0, "only of the last `duration`, such as 24h")
	f.IntVarP(&q.Limit, "limit", "n", 20, "at most this many (100 at once)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func table(c *console.Console, out client.DeliveryList) error {
	if len(out.Deliveries) == 0 {
		c.Notice("no deliveries")
		return nil
	}
	rows := make([][]console.Cell, len(out.Deliveries))
	for i, d := range out.Deliveries {
		event := d.Event
		if d.Action != "" {
			event += ":" + d.Action
		}
		rows[i] = []console.Cell{
			{Text: d.ID},
			{Text: d.Status, Class: class(d.Status)},
			{Text: d.Source},
			{Text: event},
			{Text: d.Ref},
			{Text: fmt.Sprint(d.Matched)},
			{Text: c.Ago(d.ReceivedAt)},
			{Text: d.Error},
		}
	}
	if err := c.Table([]string{"DELIVERY", "STATUS", "SOURCE", "EVENT", "REF", "RUNS", "RECEIVED", "ERROR"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("more with --cursor %s", out.NextCursor)
	}
	return nil
}

func class(status string) string {
	switch status {
	case "processed":
		return "success"
	case "received", "processing":
		return "running"
	case "skipped":
		return "skipped"
	}
	return "failed"
}

func show(c *console.Console) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:  "show DELIVERY",
		Long: "Show one delivery with the decision about every workflow. The payload is only shown to tokens that may read it.", Short: "Show a delivery and what was decided for every workflow", Args: cobra.ExactArgs(1),
		Example: "  kici delivery show 72d3162e-cc78-11e3-81ab-4c9367dc0958 --include-payload",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			d, err := cl.Delivery(cmd.Context(), args[0], payload)
			var withheld error
			if payload && client.IsStatus(err, http.StatusForbidden) { // XC-149: what may be seen is shown
				withheld = err
				d, err = cl.Delivery(cmd.Context(), args[0], false)
			}
			if err != nil {
				return err
			}
			if err := c.Print(d, func() error { return printDelivery(c, d) }); err != nil || withheld == nil {
				return err
			}
			return &console.ExitError{Code: console.ExitNotClean, Err: fmt.Errorf("what was sent is withheld: %w", withheld)}
		},
	}
	cmd.Flags().BoolVar(&payload, "include-payload", false, "also what was sent; this is recorded")
	return cmd
}

func replay(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "replay DELIVERY", Short: "Process a failed delivery again", Args: cobra.ExactArgs(1),
		Long: `Process a failed delivery again, as if it had just arrived: once what it failed at is mended.

What it has started already is not started twice. Only a delivery whose status is failed can be replayed.`,
		Example: `  kici delivery list --status failed
  kici delivery replay 72d3162e-cc78-11e3-81ab-4c9367dc0958`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			d, err := cl.ReplayDelivery(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(d, func() error {
				c.Notice("delivery %s is processed again; see what became of it with: kici delivery show %s", d.ID, d.ID)
				return nil
			})
		},
	}
}

func printDelivery(c *console.Console, d client.Delivery) error {
	err := c.Fields(
		console.Field{Name: "delivery", Value: d.ID}, console.Field{Name: "sender's id", Value: d.DeliveryID}, console.Field{Name: "status", Value: d.Status, Class: class(d.Status)},
		console.Field{Name: "error", Value: d.Error}, console.Field{Name: "waits until", Value: console.At(d.NextTryAt)}, console.Field{Name: "source", Value: d.Source},
		console.Field{Name: "event", Value: strings.TrimSpace(d.Event + " " + d.Action)}, console.Field{Name: "repository", Value: d.Repo},
		console.Field{Name: "ref", Value: strings.TrimSpace(d.Ref + " " + console.ShortSHA(d.SHA))}, console.Field{Name: "received", Value: console.At(&d.ReceivedAt)},
		console.Field{Name: "attempts", Value: fmt.Sprint(d.Attempts)}, console.Field{Name: "repeats", Value: fmt.Sprint(d.Duplicates)},
		console.Field{Name: "first run", Value: d.RunID},
	)
	if err != nil {
		return err
	}
	decided, err := printDecisions(c, d.Decisions)
	if err != nil {
		return err
	}
	switch {
	case decided && d.Matched == 0 && d.Status == "processed":
		c.Notice("this delivery started nothing: the filters of every workflow that waits for such an event turned it away")
	case !decided && d.Status == "processed" && d.RunID == "":
		c.Notice("no registered workflow has a trigger for this event; a push to the default branch of a source registers its workflows")
	}
	if d.Omitted != "" {
		c.Notice("the payload, %d bytes, was too large to be kept (eventLogMaxPayloadBytes)", d.Size)
	}
	if d.Payload != nil {
		fmt.Fprintf(c.Out, "\n%s\n%s\n", c.Bold("payload"), indent(json.RawMessage(*d.Payload)))
	}
	return nil
}

// decision is what was decided for one workflow.
type decision struct {
	Repo     string  `json:"repo"`
	Workflow string  `json:"workflow"`
	Matched  bool    `json:"matched"`
	Trigger  string  `json:"trigger"`
	Reason   string  `json:"reason"`
	Checks   []check `json:"checks"`
}

// check is one comparison of one of the workflow's triggers.
type check struct {
	Trigger                       int
	Check, Pattern, Value, Reason string
	Passed                        bool
}

// against is what stood against the workflow, a sentence for each check that failed.
func (d decision) against() (why []string) {
	if d.Reason != "" {
		return []string{d.Reason}
	}
	var wanted []string
	value := ""
	for _, k := range d.Checks {
		switch {
		case k.Passed:
		case k.Check == "event":
			value = k.Value
			if k.Pattern != "" && !slices.Contains(wanted, k.Pattern) {
				wanted = append(wanted, k.Pattern)
			}
		default:
			why = append(why, k.sentence())
		}
	}
	switch {
	case len(why) > 0:
		return why
	case len(wanted) > 0 && value != "":
		return []string{fmt.Sprintf("no trigger is for this event: it is %s, and the workflow waits for %s", value, strings.Join(wanted, ", "))}
	}
	return []string{"no trigger is for this event"}
}

func (k check) sentence() string {
	switch {
	case k.Reason != "":
		return k.Check + ": " + k.Reason
	case k.Check == "match" || k.Check == "not": // both are JSON already
		return fmt.Sprintf("%s: %s, and the payload has %s", k.Check, k.Pattern, k.Value)
	}
	return fmt.Sprintf("%s: %q is not in %q", k.Check, k.Value, k.Pattern)
}

// printDecisions says for each workflow whether it matched, and otherwise what stood against it. It is false when there is none.
func printDecisions(c *console.Console, raw json.RawMessage) (bool, error) {
	var list []decision
	_ = json.Unmarshal(raw, &list) // nothing was decided, or not in a form that this program knows
	if len(list) == 0 {
		return false, nil
	}
	fmt.Fprintln(c.Out)
	var rows [][]console.Cell
	for _, d := range list {
		name := d.Workflow
		if d.Repo != "" {
			name = d.Repo + " " + name
		}
		if d.Matched && d.Reason == "" {
			rows = append(rows, []console.Cell{{Text: name}, {Text: "matched", Class: "success"}, {Text: "by " + d.Trigger}})
			continue
		}
		said := "not matched"
		if d.Reason != "" {
			said = "refused"
		}
		for i, why := range d.against() {
			row := []console.Cell{{Text: name}, {Text: said, Class: "skipped"}, {Text: why}}
			if i > 0 {
				row[0], row[1] = console.Cell{}, console.Cell{}
			}
			rows = append(rows, row)
		}
	}
	return true, c.Table([]string{"WORKFLOW", "DECISION", "WHY"}, rows)
}

// indent makes JSON readable; text that is no JSON stays as it is. Both are cleaned.
func indent(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if b, err := json.MarshalIndent(v, "", "  "); err == nil {
			raw = b
		}
	}
	return console.Clean(string(raw))
}
