// Package runcmd is "kici run": one file a verb.
package runcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/localcmd"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run",
		Example: `  kici run list
  kici run watch
  kici run local`, Aliases: []string{"runs", "execution"}, Short: "List, show, follow, start, cancel and repeat runs",
		Long: `A run is one workflow at one commit. Name a run by its id, by the first 8 characters of
its id, as repository#number (acme/shop#482), or as 482 when only one repository has that number.
show, timeline, watch and logs mean the newest run when none is named.`,
	}
	cmd.AddCommand(list(c), show(c), timeline(c), logs(c), cancel(c), rerun(c), start(c), watchCmd(c), jobs(c), purgeStale(c), localcmd.New(c), localcmd.Guard())
	return cmd
}

// jobs is the operator table's name of "kici job list".
func jobs(c *console.Console) *cobra.Command {
	var steps bool
	cmd := &cobra.Command{
		Use:     "jobs RUN",
		Long:    "List the jobs of a run: the operator table's name of \"kici job list\".",
		Example: "  kici run jobs acme/shop#482 --include-steps", Short: "List the jobs of a run", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Jobs(cmd.Context(), args[0], steps)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return Jobs(c, out.Jobs, steps) })
		},
	}
	cmd.Flags().BoolVar(&steps, "include-steps", false, "show the steps of every job")
	return cmd
}

// named is the run that the arguments name, else the newest one.
func named(ctx context.Context, cl *client.Client, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	list, err := cl.Runs(ctx, client.RunQuery{Limit: 1})
	if err != nil {
		return "", err
	}
	if len(list.Runs) == 0 {
		return "", errors.New("there is no run yet")
	}
	return list.Runs[0].ID, nil
}

// Name is a run as people name it.
func Name(r client.Run) string { return fmt.Sprintf("%s#%d", r.Repo, r.Number) }

// verdict is the exit code of a run that has ended.
func verdict(d client.RunDetail) error {
	if d.Status == "success" {
		return nil
	}
	return console.Exit(console.ExitFailed)
}
