package scalercmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show SCALER", ValidArgsFunction: c.CompleteScalers(),
		Long: "Show one scaler: its state and why, what it holds and for whom, what its jobs can reach, and the launches that failed in the last day with their\n" +
			"last output. A name that several servers have is shown for each of them.",
		Example: `  kici scaler show local
  kici scaler show local -o json`, Short: "Show one scaler, what it holds and for whom, and what of it is not protected", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Scalers(cmd.Context())
			if err != nil {
				return err
			}
			var names []string
			out.Scalers = slices.DeleteFunc(out.Scalers, func(s client.Scaler) bool {
				names = append(names, s.Name)
				return s.Name != args[0]
			})
			if len(out.Scalers) == 0 {
				return fmt.Errorf("there is no scaler %s; there are: %s", args[0], strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", "))
			}
			return c.Print(out, func() error { return details(c, out.Scalers) })
		},
	}
}

func details(c *console.Console, scalers []client.Scaler) error {
	for i, s := range scalers {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fields := []console.Field{
			{Name: "scaler", Value: s.Name},
			{Name: "type", Value: s.Type},
			{Name: "node", Value: s.NodeName},
			{Name: "state", Value: s.State, Class: class(s.State)},
			{Name: "why", Value: s.StateText},
			{Name: "agents", Value: agents(s)},
			{Name: "used", Value: used(s)},
		}
		for _, set := range s.LabelSets {
			fields = append(fields, console.Field{Name: "offers", Value: strings.Join(set, ",")})
		}
		for _, h := range s.Holders {
			fields = append(fields, console.Field{Name: "held by", Value: fmt.Sprintf("%s#%d (%d)", h.Repo, h.Number, h.Agents)})
		}
		for _, line := range s.NotProtected {
			fields = append(fields, console.Field{Name: "not protected", Value: line})
		}
		if err := c.Fields(fields...); err != nil {
			return err
		}
		failed(c, s)
	}
	return nil
}
