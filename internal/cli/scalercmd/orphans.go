package scalercmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/cli/console"
)

// Reap asks for what the scalers of this machine have left.
type Reap struct {
	Config, DataDir string // "" where the server would look
	DryRun          bool   // only list it
}

// Orphan is something that a scaler has left.
type Orphan struct {
	Scaler  string `json:"scaler"`
	Type    string `json:"type"`
	Agent   string `json:"agent"`
	Running bool   `json:"running"`
	Detail  string `json:"detail,omitempty"` // "pid 4711"

	Holds []string `json:"holds,omitempty"` // kinds of what it is made of: "container", "volume"
	Error string   `json:"error,omitempty"` // why it is still there
}

// Reaped is what was found, and ended unless it was only listed.
type Reaped struct {
	Skipped bool   // the server runs: it looks after its agents itself
	Reason  string // "orchestrator-healthy"
	Orphans []Orphan
}

// Reaper does it, without server and database.
type Reaper func(ctx context.Context, r Reap) (Reaped, error)

// reapDocument is OP-1's.
type reapDocument struct {
	Skipped bool           `json:"skipped"`
	Reason  string         `json:"reason,omitempty"`
	Counts  map[string]int `json:"counts"`
	Total   int            `json:"total"`
	Orphans []Orphan       `json:"orphans"`
}

func reapOrphans(c *console.Console, reaper Reaper) *cobra.Command {
	var r Reap
	var force bool
	cmd := &cobra.Command{
		Use:   "reap-orphans",
		Short: "End what scalers have left on this machine while its server is down",
		Long: "End every agent that the scalers of this machine's server have left here: processes, containers and what belongs to them. It needs neither the\n" +
			"server nor its database, and is for a server that will not start again; one that does takes its agents up by itself. While the server runs it\n" +
			"does nothing and says so, with --force too. Things of other servers are left alone. Exit code 1 when something could not be ended.",
		Example: "  kici scaler orphans\n  kici scaler reap-orphans --data-dir /var/lib/kici",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return reap(cmd.Context(), c, reaper, r) },
	}
	reapFlags(cmd, &r)
	cmd.Flags().BoolVar(&force, "force", false, "accepted; a server that runs is never disturbed")
	return cmd
}

func orphans(c *console.Console, reaper Reaper) *cobra.Command {
	cmd := listOrphans(c, reaper, "orphans")
	cmd.AddCommand(listOrphans(c, reaper, "list"))
	return cmd
}

// listOrphans is "kici scaler orphans", and as the other nouns have it "orphans list".
func listOrphans(c *console.Console, reaper Reaper, use string) *cobra.Command {
	r := Reap{DryRun: true}
	cmd := &cobra.Command{
		Use:     use,
		Short:   "List what scalers have left on this machine while its server is down",
		Long:    "List the agents that the scalers of this machine's server have left here, without the server and its database. kici scaler reap-orphans ends them.",
		Example: "  kici scaler orphans list\n  kici scaler orphans list --output json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return reap(cmd.Context(), c, reaper, r) },
	}
	reapFlags(cmd, &r)
	return cmd
}

func reapFlags(cmd *cobra.Command, r *Reap) {
	cmd.Flags().StringVar(&r.Config, "config", "", "scalers.yaml (default: the server's)")
	cmd.Flags().StringVar(&r.DataDir, "data-dir", "", "the server's data directory (default: the usual one)")
}

func reap(ctx context.Context, c *console.Console, reaper Reaper, r Reap) error {
	found, failed := reaper(ctx, r)
	out := reapDocument{Skipped: found.Skipped, Reason: found.Reason, Counts: map[string]int{}, Orphans: append([]Orphan{}, found.Orphans...)}
	for _, o := range found.Orphans {
		if o.Error == "" {
			out.Counts[o.Scaler]++
			out.Total++
		}
	}
	err := c.Print(out, func() error { return printOrphans(c, out, r.DryRun) })
	if err == nil {
		err = failed
	}
	return err
}

func printOrphans(c *console.Console, out reapDocument, dryRun bool) error {
	switch {
	case out.Skipped:
		c.Notice("the server of this data directory runs, and looks after its agents itself")
		return nil
	case len(out.Orphans) == 0:
		c.Notice("nothing is left")
		return nil
	case !dryRun:
		c.Notice("ended %d", out.Total)
	}
	rows := make([][]console.Cell, len(out.Orphans))
	for i, o := range out.Orphans {
		state := "dead"
		if o.Running {
			state = "running"
		}
		rows[i] = console.Plain(o.Agent, o.Scaler, o.Type, state, o.Detail, o.Error)
	}
	return c.Table([]string{"AGENT", "SCALER", "TYPE", "STATE", "WHAT", "ERROR"}, rows)
}
