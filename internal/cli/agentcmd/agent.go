// Package agentcmd is "kici agent": the agents that the server knows, and the tokens of those that people start themselves.
package agentcmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs. process is the command that runs an agent; it becomes the noun itself, so that "kici agent
// --url …" and "kici agent list" both work. It may be nil.
func New(c *console.Console, process *cobra.Command) *cobra.Command {
	cmd := process
	if cmd == nil {
		cmd = &cobra.Command{
			Use:  "agent",
			Long: "Agents run jobs. Scalers start them when jobs need them, and each runs one job; static agents are started by people with a token of their own.",
			Example: `  kici agent list
  kici agent token create --labels linux,gpu`, Short: "List agents, and manage the tokens of static ones",
		}
	}
	cmd.Aliases = append(cmd.Aliases, "agents")
	cmd.AddCommand(list(c), show(c), tokens(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var all bool
	var scaler, cursor string
	var limit int
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List the agents that are connected, starting or ending, newest first, with the job that each holds.", Aliases: []string{"ls"}, Short: "List agents: connected ones and those being started or ended", Args: cobra.NoArgs,
		Example: `  kici agent list
  kici agent list --all --scaler local`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Agents(cmd.Context(), all, scaler, cursor, limit)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&all, "all", "a", false, "also agents that are gone")
	f.StringVar(&scaler, "scaler", "", "only agents of this scaler")
	f.IntVarP(&limit, "limit", "n", 50, "at most this many (100 at once)")
	f.StringVar(&cursor, "cursor", "", "go on where a page ended")
	return cmd
}

func table(c *console.Console, out client.AgentList) error {
	if len(out.Agents) == 0 {
		c.Notice("no agents; scalers start them when jobs need them")
		return nil
	}
	rows := make([][]console.Cell, len(out.Agents))
	for i, a := range out.Agents {
		rows[i] = []console.Cell{
			{Text: a.ID},
			{Text: state(a), Class: class(a)},
			{Text: a.Scaler},
			{Text: a.NodeName},
			{Text: job(a)},
			{Text: strings.Join(own(a.Labels), ",")},
			{Text: c.Ago(a.StateAt)},
			{Text: a.Error},
		}
	}
	if err := c.Table([]string{"AGENT", "STATE", "SCALER", "NODE", "JOB", "LABELS", "SINCE", "ERROR"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("more with --cursor %s", out.NextCursor)
	}
	return nil
}

// own leaves out the labels that kici gives to every agent; "agent show" has them all.
func own(labels []string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return strings.HasPrefix(l, "kici:") })
}

func state(a client.Agent) string {
	switch {
	case a.GoneReason != "" && a.State == "gone":
		return "gone (" + a.GoneReason + ")"
	case a.State == "online" && !a.Connected:
		return "link lost"
	case a.State == "online" && a.JobID == "":
		return "idle"
	case a.State == "online":
		return "working"
	}
	return a.State
}

func class(a client.Agent) string {
	switch state(a) {
	case "idle":
		return "success"
	case "working":
		return "running"
	case "link lost":
		return "failed"
	}
	return ""
}

func job(a client.Agent) string {
	if a.JobName == "" {
		return ""
	}
	return fmt.Sprintf("%s#%d/%s", a.Repo, a.RunNumber, a.JobName)
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show AGENT", ValidArgsFunction: c.CompleteAgents(),
		Long: "Show one agent: its state and since when, its labels, its machine and the job that it holds.",
		Example: `  kici agent show scaler-bare-metal-1
  kici agent show scaler-bare-metal-1 -o json`, Short: "Show one agent, gone or not", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			a, err := cl.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(a, func() error {
				return c.Fields(
					console.Field{Name: "agent", Value: a.ID}, console.Field{Name: "state", Value: state(a), Class: class(a)},
					console.Field{Name: "error", Value: a.Error}, console.Field{Name: "type", Value: a.Type},
					console.Field{Name: "scaler", Value: a.Scaler}, console.Field{Name: "node", Value: a.NodeName},
					console.Field{Name: "job", Value: job(a)}, console.Field{Name: "labels", Value: strings.Join(a.Labels, ", ")},
					console.Field{Name: "host", Value: a.Host}, console.Field{Name: "version", Value: a.Version},
					console.Field{Name: "requested", Value: console.At(&a.RequestedAt)},
					console.Field{Name: "registered", Value: console.At(a.RegisteredAt)},
					console.Field{Name: "ended", Value: console.At(a.EndedAt)},
					console.Field{Name: "jobs done", Value: fmt.Sprint(a.JobsDone)},
				)
			})
		},
	}
}
