// Package eventcmd is "kici event": what happened inside, which workflows it started, and what could not be routed.
package eventcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "event", Aliases: []string{"events"}, Short: "Emit events, and see which workflows they started",
		Long: `An event is a name and a JSON payload. A step, a person or kici itself emits one; every registered workflow that waits for it
gets a run. kici keeps each event for a while with what became of it.`,
		Example: `  kici event list
  kici event show 0197a3c4-5e1f-7a10-9d54-0242ac120002
  kici event emit deploy.done --payload '{"version": "1.2"}'`,
	}
	cmd.AddCommand(list(c), show(c), emit(c), dlq(c))
	return cmd
}

// DeadLetters returns "kici event-dlq", the operator's name of "kici event dlq".
func DeadLetters(c *console.Console) *cobra.Command {
	cmd := dlq(c)
	cmd.Use, cmd.Aliases = "event-dlq", nil
	cmd.Example = strings.ReplaceAll(cmd.Example, "kici event dlq", "kici event-dlq")
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.EventQuery
	var since, before string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List events, newest first", Args: cobra.NoArgs,
		Long: "List events, newest first, with what became of them. An outcome is matched, buffered, no-registration, no-target-repo, trust-blocked or no-trigger-match.",
		Example: `  kici event list
  kici event list --name deploy.done --since 24h
  kici event list --outcome trust-blocked`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = instant(c, "since", since); err != nil {
				return err
			}
			if q.Before, err = instant(c, "before", before); err != nil {
				return err
			}
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Events(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out, "--after", "no events") })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Name, "name", "", "only events with this name")
	f.StringVar(&q.Outcome, "outcome", "", "only events with this outcome")
	f.StringVar(&since, "since", "", "only of the last `duration`, such as 24h, or since an instant")
	f.StringVar(&before, "before", "", "only older than a `duration`, such as 24h, or than an instant")
	f.StringVar(&q.After, "after", "", "go on behind this event: where a page ended")
	f.IntVarP(&q.Limit, "limit", "n", 50, "at most this many (200 at once)")
	return cmd
}

// instant reads how long ago something was, or when.
func instant(c *console.Console, flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return c.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, console.Usage("--%s %q is neither a duration such as 24h nor an instant such as 2026-01-31T12:00:00Z", flag, text)
	}
	return t, nil
}

func table(c *console.Console, out client.EventList, flag, none string) error {
	if len(out.Events) == 0 {
		c.Notice("%s", none)
	} else {
		rows := make([][]console.Cell, len(out.Events))
		for i, e := range out.Events {
			runs := ""
			if e.Matched != nil {
				runs = fmt.Sprint(*e.Matched)
			}
			rows[i] = []console.Cell{
				{Text: e.ID}, {Text: e.Name}, {Text: state(e), Class: class(e)}, {Text: runs}, {Text: from(e)}, {Text: c.Ago(e.CreatedAt)}, {Text: e.Error},
			}
		}
		if err := c.Table([]string{"EVENT", "NAME", "STATE", "RUNS", "FROM", "EMITTED", "ERROR"}, rows); err != nil {
			return err
		}
	}
	if out.NextCursor != "" {
		c.Notice("more with %s %s", flag, out.NextCursor)
	}
	return nil
}

// state is the outcome of what is processed, and else what it waits for.
func state(e client.Event) string {
	if e.State == "processed" && e.Outcome != "" {
		return e.Outcome
	}
	return e.State
}

func class(e client.Event) string {
	switch state(e) {
	case "matched", "buffered":
		return "success"
	case "pending", "leased", "retrying":
		return "running"
	case "dlq", "trust-blocked":
		return "failed"
	}
	return "skipped"
}

// from is whose the event is.
func from(e client.Event) string {
	for _, text := range []string{e.Repo, e.Source, e.RoutingKey, e.Actor} {
		if text != "" {
			return text
		}
	}
	return e.Emitter
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show EVENT", Short: "Show an event and explain what became of it", Args: cobra.ExactArgs(1),
		Long:    "Show one event: where it comes from, what became of it and why, the runs that it started, and its payload if you may read that.",
		Example: "  kici event show 0197a3c4-5e1f-7a10-9d54-0242ac120002",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			e, err := cl.Event(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(e, func() error { return printEvent(c, e) })
		},
	}
}

func printEvent(c *console.Console, e client.Event) error {
	err := c.Fields(
		console.Field{Name: "event", Value: e.ID}, console.Field{Name: "name", Value: e.Name}, console.Field{Name: "state", Value: e.State, Class: class(e)},
		console.Field{Name: "outcome", Value: e.Outcome, Class: class(e)}, console.Field{Name: "emitted", Value: console.At(&e.CreatedAt)},
		console.Field{Name: "repository", Value: e.Repo}, console.Field{Name: "source", Value: e.Source}, console.Field{Name: "run", Value: e.RunID},
		console.Field{Name: "only for", Value: strings.Join(e.TargetRepos, ", ")}, console.Field{Name: "attempts", Value: fmt.Sprint(e.Attempts)},
		console.Field{Name: "tried again", Value: console.At(e.NextTryAt)}, console.Field{Name: "error", Value: e.Error},
		console.Field{Name: "expires", Value: console.At(&e.ExpiresAt)},
	)
	if err != nil {
		return err
	}
	if len(e.Explanation) > 0 {
		fmt.Fprintln(c.Out)
	}
	for _, s := range e.Explanation {
		fmt.Fprintln(c.Out, console.CleanLine(s))
	}
	if len(e.Runs) > 0 {
		fmt.Fprintln(c.Out)
		rows := make([][]console.Cell, len(e.Runs))
		for i, r := range e.Runs {
			rows[i] = []console.Cell{{Text: fmt.Sprintf("%s#%d", r.Repo, r.Number)}, {Text: r.Status, Class: r.Status}, {Text: r.Workflow}, {Text: r.URL}}
		}
		if err := c.Table([]string{"RUN", "STATUS", "WORKFLOW", "PAGE"}, rows); err != nil {
			return err
		}
	}
	switch {
	case e.Withheld != "":
		c.Notice("%s", e.Withheld)
	case len(e.Payload) > 0:
		fmt.Fprintf(c.Out, "\n%s\n%s\n", c.Bold("payload"), indent(e.Payload))
	}
	return nil
}

func indent(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if b, err := json.MarshalIndent(v, "", "  "); err == nil {
			raw = b
		}
	}
	return console.Clean(string(raw))
}

func dlq(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Aliases: []string{"dead-letters"}, Short: "Look after events that could not be routed",
		Long: `A dead letter is an event that kici could not route: five attempts failed, or one failed for good. It stays until somebody decides.
Retry it once the cause is mended; what it has started already is not started twice. Or discard it.`,
		Example: `  kici event dlq list
  kici event dlq retry 0197a3c4-5e1f-7a10-9d54-0242ac120002`,
	}
	cmd.AddCommand(dlqList(c), dlqShow(c), dlqRetry(c), dlqDiscard(c), dlqCount(c))
	return cmd
}

func dlqList(c *console.Console) *cobra.Command {
	var before string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List dead letters, newest first", Args: cobra.NoArgs,
		Long: "List dead letters, newest first, with the error of their last attempt.", Example: "  kici event dlq list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.DeadLetters(cmd.Context(), before, limit)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out, "--before", "no dead letters") })
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "go on behind this event: where a page ended")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "at most this many (200 at once)")
	return cmd
}

func dlqShow(c *console.Console) *cobra.Command {
	cmd := show(c)
	cmd.Short, cmd.Long = "Show a dead letter", "Show one dead letter: what failed, which of its workflows were started all the same, and its payload if you may read that."
	cmd.Example = "  kici event dlq show 0197a3c4-5e1f-7a10-9d54-0242ac120002"
	return cmd
}

func dlqRetry(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "retry EVENT", Short: "Route a dead letter again", Args: cobra.ExactArgs(1),
		Long:    "Route a dead letter again at once, with all its attempts. Workflows that it has started are not started twice.",
		Example: "  kici event dlq retry 0197a3c4-5e1f-7a10-9d54-0242ac120002",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			e, err := cl.RetryDeadLetter(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(e, func() error {
				c.Notice("event %s is routed again; see what became of it with: kici event show %s", e.ID, e.ID)
				return nil
			})
		},
	}
}

func dlqDiscard(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "discard EVENT", Short: "Delete a dead letter", Args: cobra.ExactArgs(1),
		Long: "Delete a dead letter for good. The runs that it had started stay.", Example: "  kici event dlq discard 0197a3c4-5e1f-7a10-9d54-0242ac120002",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.DiscardDeadLetter(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.Done("discarded", args[0])
		},
	}
}

func dlqCount(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "count", Short: "Count the dead letters", Args: cobra.NoArgs,
		Long: "Count the dead letters that you may see.", Example: "  kici event dlq count",
		RunE: func(cmd *cobra.Command, _ []string) error { return count(cmd.Context(), c) },
	}
}

func count(ctx context.Context, c *console.Console) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	n, err := cl.CountDeadLetters(ctx)
	if err != nil {
		return err
	}
	return c.Print(n, func() error {
		_, err := fmt.Fprintln(c.Out, n.Count)
		return err
	})
}
