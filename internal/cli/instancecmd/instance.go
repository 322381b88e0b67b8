// Package instancecmd is "kici orchestrator": the servers of a cluster, and whether they take work.
package instancecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "orchestrator", Aliases: []string{"instance", "instances", "orchestrators"}, Short: "Show the servers of the cluster; drain and resume them",
		Long: "The servers of the cluster. One that drains takes no new work: jobs that run there go on, new ones wait or go elsewhere,\n" +
			"and its scalers start nothing. Starting it again ends that.",
		Example: "  kici orchestrator list\n  kici orchestrator drain --wait",
	}
	cmd.AddCommand(list(c), drain(c), resume(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the servers of the cluster", Args: cobra.NoArgs,
		Long:    "List the servers of the cluster with their state, what they run, and which versions of settings and registrations they have.",
		Example: "  kici orchestrator list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Instances(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Instances))
				for i, x := range out.Instances {
					class := map[string]string{"ready": "success", "draining": "held", "starting": "held", "lost": "failed", "stopped": "skipped"}[x.State]
					leads := ""
					if x.Leader {
						leads = "leads"
					}
					rows[i] = []console.Cell{
						{Text: x.Name},
						{Text: x.InstanceID},
						{Text: x.State, Class: class},
						{Text: leads},
						{Text: fmt.Sprint(x.JobsRunning)},
						{Text: fmt.Sprint(x.Agents)},
						{Text: x.Version},
						{Text: c.Ago(x.StartedAt)},
					}
				}
				return c.Table([]string{"NAME", "ID", "STATE", "LEADER", "JOBS", "AGENTS", "VERSION", "STARTED"}, rows)
			})
		},
	}
}

const pollEvery = 2 * time.Second

func drain(c *console.Console) *cobra.Command {
	var wait, status bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "drain [INSTANCE]", Short: "Make a server take no new work", Args: cobra.MaximumNArgs(1),
		Long: "Make a server take no new work; without INSTANCE the one that answers. Jobs that run there go on.\n" +
			"With --wait the command ends when none is left: exit 0, or 2 when the time is over first.",
		Example: "  kici orchestrator drain --wait --timeout 10m\n  kici orchestrator drain --status",
		RunE: func(cmd *cobra.Command, args []string) error {
			if status {
				return look(cmd.Context(), c, target(args))
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			state, err := cl.Drain(cmd.Context(), target(args))
			if err != nil {
				return err
			}
			if wait {
				state, err = settle(cmd.Context(), c, cl, state, limit)
			}
			if perr := show(c, state); perr != nil {
				return perr
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&wait, "wait", false, "wait until nothing runs there")
	f.DurationVar(&limit, "timeout", 300*time.Second, "with --wait: how long at most")
	f.BoolVar(&status, "status", false, "only say how it is")
	cmd.MarkFlagsMutuallyExclusive("wait", "status")
	return cmd
}

// look says how it is, and changes nothing.
func look(ctx context.Context, c *console.Console, instance string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	state, err := cl.DrainState(ctx, instance)
	if err != nil {
		return err
	}
	return show(c, state)
}

// settle asks until nothing runs (CLI-10).
func settle(ctx context.Context, c *console.Console, cl *client.Client, state client.DrainState, limit time.Duration) (client.DrainState, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for state.JobsRunning > 0 {
		c.Notice("draining=%t jobsRunning=%d", state.Draining, state.JobsRunning)
		timer := time.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return state, over(ctx, state)
		case <-timer.C:
		}
		next, err := cl.DrainState(ctx, state.InstanceID)
		if err != nil {
			if ctx.Err() != nil {
				return state, over(ctx, state)
			}
			return state, err
		}
		state = next
	}
	return state, nil
}

func over(ctx context.Context, state client.DrainState) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &console.ExitError{Code: console.ExitNotClean, Err: fmt.Errorf("the time is over and %d jobs still run", state.JobsRunning)}
	}
	return ctx.Err()
}

func target(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func show(c *console.Console, s client.DrainState) error {
	return c.Print(s, func() error {
		_, err := fmt.Fprintf(c.Out, "draining=%t jobsRunning=%d\n", s.Draining, s.JobsRunning)
		return err
	})
}

func resume(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "resume [INSTANCE]", Short: "Make a server take work again", Args: cobra.MaximumNArgs(1),
		Long:    "Make a server that drains take work again; without INSTANCE the one that answers.",
		Example: "  kici orchestrator resume",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			state, err := cl.Resume(cmd.Context(), target(args))
			if err != nil {
				return err
			}
			return show(c, state)
		},
	}
}
