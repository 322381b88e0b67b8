// Package checkcmd is "kici check-run": what runs show beside their commits at the forge.
package checkcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "check-run",
		Long: "Runs of sources on a forge show their state beside the commit. This says what was posted, what is wanted, and why the two differ.",
		Example: `  kici check-run list --run acme/shop#482
  kici check-run list --failing`, Aliases: []string{"check-runs"}, Short: "Show the commit statuses of runs, and which could not be posted",
	}
	cmd.AddCommand(list(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.CheckRunQuery
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List commit statuses, those of the newest runs first", Args: cobra.NoArgs,
		Long: `List what runs show beside their commits: for each name the state that was posted last, the state that is wanted now, and why the
two differ. A status that cannot be posted never changes what becomes of a run.`,
		Example: `  kici check-run list --run acme/shop#482
  kici check-run list --failing`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.CheckRuns(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&q.Run, "run", "r", "", "only of this `run`: an id or the first characters of one, a number, or repository#number")
	f.BoolVar(&q.Failing, "failing", false, "only those that could not be posted")
	f.IntVarP(&q.Limit, "limit", "n", 60, "at most this many (100 is the most)")
	_ = cmd.RegisterFlagCompletionFunc("run", c.CompleteRuns())
	return cmd
}

func table(c *console.Console, out client.CheckRunList) error {
	if len(out.CheckRuns) == 0 {
		c.Notice("no commit statuses: sources of kind github, gitea and gitlab show them, for runs that have begun since")
		return nil
	}
	rows := make([][]console.Cell, len(out.CheckRuns))
	for i, x := range out.CheckRuns {
		posted, class := "not yet", ""
		if x.PostedAt != nil {
			posted = c.Ago(*x.PostedAt)
		}
		why := x.Error
		if x.FailingSince != nil {
			class = "held"
		}
		if x.GaveUpAt != nil {
			class, why = "failed", "given up: "+why
		}
		rows[i] = []console.Cell{
			{Text: fmt.Sprintf("%s#%d", x.Repo, x.RunNumber)},
			{Text: x.Context},
			{Text: or(x.State, "none"), Class: classOf(x.State)},
			{Text: x.Wanted, Class: classOf(x.Wanted)},
			{Text: posted},
			{Text: why, Class: class},
		}
	}
	return c.Table([]string{"RUN", "CONTEXT", "STATE", "WANTED", "POSTED", "ERROR"}, rows)
}

func or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}

// classOf is the colour of a state.
func classOf(state string) string {
	switch state {
	case "failure":
		return "failed"
	case "error":
		return "cancelled"
	}
	return state
}
