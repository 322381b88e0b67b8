package runcmd

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
)

func list(c *console.Console) *cobra.Command {
	var q client.RunQuery
	var since time.Duration
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List runs, newest first. Filters go together: all of them must fit.", Aliases: []string{"ls"}, Short: "List runs, newest first", Args: cobra.NoArgs,
		Example: `  kici run list
  kici run list --status failed --branch main --since 24h
  kici run list --source shop --actor ada
  kici run list --text "fix login" -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkStatuses(q.Status); err != nil {
				return err
			}
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if since > 0 {
				q.Since = c.Now().Add(-since)
			}
			out, err := cl.Runs(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&q.Status, "status", nil, "only these `statuses` (pending, running, held, cancelling, success, failed, cancelled)")
	f.StringVar(&q.Workflow, "workflow", "", "only this workflow")
	f.StringVar(&q.Repo, "repo", "", "only this repository")
	f.StringVar(&q.Branch, "branch", "", "only this branch")
	f.StringVar(&q.Source, "source", "", "only runs of this source (name or id)")
	f.StringVar(&q.Actor, "actor", "", "only runs that this person caused")
	f.StringVar(&q.Event, "event", "", "only runs of this event, such as push or pr:opened")
	f.StringVar(&q.Text, "text", "", "only runs with this in title, workflow, repository, branch, actor, commit or number")
	f.StringVar(&q.Delivery, "delivery", "", "only runs that this delivery started")
	f.DurationVar(&since, "since", 0, "only runs of the last `duration`, such as 24h")
	f.IntVarP(&q.Limit, "limit", "n", 20, "at most this many (100 at once)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func checkStatuses(given []string) error {
	var known []string
	for _, s := range ci.RunStatuses {
		known = append(known, string(s))
	}
	for _, s := range given {
		if !slices.Contains(known, s) {
			return console.Usage("%q is no status of a run; there are %s", s, strings.Join(known, ", "))
		}
	}
	return nil
}

func table(c *console.Console, out client.RunList) error {
	if len(out.Runs) == 0 {
		c.Notice("no runs")
		return nil
	}
	rows := make([][]console.Cell, len(out.Runs))
	for i, r := range out.Runs {
		rows[i] = []console.Cell{
			{Text: Name(r)},
			{Text: r.Display.Word, Class: r.Display.Class},
			{Text: r.Workflow},
			{Text: r.Branch},
			{Text: console.ShortSHA(r.SHA)},
			{Text: r.TriggerEvent},
			{Text: console.TookPtr(r.DurationMs)},
			{Text: c.Ago(r.CreatedAt)},
			{Text: r.Title},
		}
	}
	if err := c.Table([]string{"RUN", "STATUS", "WORKFLOW", "BRANCH", "COMMIT", "EVENT", "TOOK", "CREATED", "TITLE"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("more with --cursor %s", out.NextCursor)
	}
	return nil
}
