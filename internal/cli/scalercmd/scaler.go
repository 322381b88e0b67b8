// Package scalercmd is "kici scaler".
package scalercmd

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console, file File) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "scaler",
		Long: "Scalers start agents when jobs need them. They are configured in scalers.yaml in the server's data directory.",
		Example: `  kici scaler list
  kici scaler show local
  kici scaler validate
  kici scaler reload --dry-run`, Aliases: []string{"scalers"}, Short: "Show what starts agents, how full it is and what failed",
	}
	cmd.AddCommand(list(c), show(c), reload(c))
	if file.Check != nil {
		cmd.AddCommand(validate(c, file.Check), schema(c, file.Schema), orphans(c, file.Reap), reapOrphans(c, file.Reap))
	}
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var failures bool
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List scalers: how many agents each holds of how many, what they use, and whether it is ready, full, backing off or in trouble.", Aliases: []string{"ls", "status"}, Short: "List scalers with what they hold and their state", Args: cobra.NoArgs,
		Example: `  kici scaler list
  kici scaler list --failures`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Scalers(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out, failures) })
		},
	}
	cmd.Flags().BoolVar(&failures, "failures", false, "show recent failed launches with the last output")
	return cmd
}

func table(c *console.Console, out client.ScalerList, failures bool) error {
	if len(out.Scalers) == 0 {
		c.Notice("no scalers; the server reads them from scalers.yaml in its data directory")
		return nil
	}
	rows := make([][]console.Cell, len(out.Scalers))
	for i, s := range out.Scalers {
		sets := make([]string, len(s.LabelSets))
		for k, ls := range s.LabelSets {
			sets[k] = strings.Join(ls, ",")
		}
		rows[i] = []console.Cell{
			{Text: s.Name},
			{Text: s.Type},
			{Text: s.NodeName},
			{Text: s.State, Class: class(s.State)},
			{Text: agents(s)},
			{Text: used(s)},
			{Text: strings.Join(sets, " | ")},
			{Text: s.StateText},
		}
	}
	if err := c.Table([]string{"SCALER", "TYPE", "NODE", "STATE", "AGENTS", "USED", "LABELS", "NOTE"}, rows); err != nil {
		return err
	}
	if !failures {
		return nil
	}
	for _, s := range out.Scalers {
		failed(c, s)
	}
	return nil
}

// failed prints a scaler's failed launches with their last output.
func failed(c *console.Console, s client.Scaler) {
	for _, f := range s.Failures {
		fmt.Fprintf(c.Out, "\n%s  %s  %s: %s\n", console.At(&f.At), console.CleanLine(s.Name), console.CleanLine(f.Agent), console.CleanLine(f.Error))
		for l := range strings.Lines(console.Clean(f.Tail)) {
			fmt.Fprint(c.Out, "  "+c.Dim(strings.TrimRight(l, "\n"))+"\n")
		}
	}
}

func class(state string) string {
	switch state {
	case "ready":
		return "success"
	case "full":
		return "running"
	case "backing off", "retiring", "draining":
		return "held"
	}
	return "failed"
}

func agents(s client.Scaler) string {
	text := fmt.Sprintf("%d/%d", s.ActiveCount, s.MaxAgents)
	var parts []string
	for _, p := range []struct {
		n    int
		word string
	}{{s.StartingCount, "starting"}, {s.WarmCount, "warm"}, {s.EndingCount, "ending"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.word))
		}
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

func used(s client.Scaler) string {
	var parts []string
	if s.CapCPUMilli > 0 {
		parts = append(parts, fmt.Sprintf("%g/%g CPUs", float64(s.UsedCPUMilli)/1000, float64(s.CapCPUMilli)/1000))
	}
	if s.CapMemBytes > 0 {
		parts = append(parts, humanize.IBytes(uint64(max(s.UsedMemBytes, 0)))+"/"+humanize.IBytes(uint64(s.CapMemBytes)))
	}
	return strings.Join(parts, ", ")
}
