package stepcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/wire"
)

type added struct {
	Names []string `json:"names"`
}

// AddJobs is "kici job add".
func AddJobs(c *console.Console) *cobra.Command {
	var flags Flags
	cmd := &cobra.Command{
		Use: "add FILE|-", Short: "Add jobs to the run of this step", Args: cobra.ExactArgs(1),
		Long: `Inside a step of a running job, add jobs to its run: YAML with a jobs: map, as in a workflow file, from a file or standard input.

The jobs may need each other and jobs of the run; jobs that were there before cannot come to need them. All of them are added or
none, and the names are printed. Repeated with the same --request-id it happens once.`,
		Example: `  kici job add jobs.yaml
  ./plan-tests | kici job add -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !Inside(c) {
				return stepcall.ErrOutside
			}
			data, err := text(c, args[0])
			if err != nil {
				return err
			}
			res, err := Ask(cmd.Context(), c, flags, stepcall.Request{Type: wire.TypeJobAdd, Jobs: string(data)})
			if err != nil {
				return err
			}
			return c.Print(added{append([]string{}, res.Names...)}, func() error {
				_, err := cmd.OutOrStdout().Write([]byte(strings.Join(res.Names, "\n") + "\n"))
				return err
			})
		},
	}
	flags.Add(cmd)
	return cmd
}

func text(c *console.Console, name string) ([]byte, error) {
	if name == "-" {
		return bounded(c.In, "standard input", wire.MaxJobAddBytes)
	}
	return ReadFile(name, wire.MaxJobAddBytes)
}
