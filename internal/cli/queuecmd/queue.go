// Package queuecmd is "kici queue".
package queuecmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Long:    "The queue is the jobs that are ready and wait for an agent.",
		Example: "  kici queue list", Short: "Show the jobs that wait for an agent, and why, or cancel them",
	}
	cmd.AddCommand(list(c), clearQueue(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var cursor string
	var limit int
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List the jobs that wait for an agent, oldest first, each with why it waits.", Aliases: []string{"ls"}, Short: "List waiting jobs, oldest first", Args: cobra.NoArgs,
		Example: "  kici queue list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Queue(cmd.Context(), cursor, limit)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "at most this many (100 at once)")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func table(c *console.Console, q client.Queue) error {
	if q.Waiting == 0 {
		c.Notice("nothing waits")
		return nil
	}
	verb := "jobs wait"
	if q.Waiting == 1 {
		verb = "job waits"
	}
	c.Notice("%d %s; the oldest for %s", q.Waiting, verb, console.Took(q.OldestMs))
	rows := make([][]console.Cell, len(q.Items))
	for i, x := range q.Items {
		rows[i] = console.Plain(
			fmt.Sprintf("%s#%d/%s", x.Repo, x.RunNumber, x.JobName), console.Took(x.WaitMs), strings.Join(x.Labels, ","), x.Why,
		)
	}
	if err := c.Table([]string{"JOB", "WAITS", "RUNS ON", "WHY"}, rows); err != nil {
		return err
	}
	if q.NextCursor != "" {
		c.Notice("more with --cursor %s", q.NextCursor)
	}
	return nil
}
