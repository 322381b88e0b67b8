package runcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
)

func start(c *console.Console) *cobra.Command {
	var r client.StartRequest
	var inputs []string
	var wait bool
	var timeout time.Duration
	var key, file string
	cmd := &cobra.Command{
		Use: "start WORKFLOW", Short: "Start a workflow by hand (workflow_dispatch)", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteStart(),
		Long: `Start a workflow that has the trigger workflow_dispatch, at the tip of a branch or any other ref.
Inputs are checked against the workflow, which also knows their types.`,
		Example: `  kici run start deploy --source shop --ref main -i target=staging
  kici run start nightly --wait`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Workflow = args[0]
			var err error
			if r.Inputs, err = readInputs(inputs, file); err != nil {
				return err
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if r.Source == "" {
				if r.Source, err = onlySource(cmd.Context(), cl); err != nil {
					return err
				}
			}
			if key == "" {
				key = ci.NewID()
			}
			out, err := cl.Start(cmd.Context(), r, key)
			if err != nil {
				return err
			}
			return started(c, cmd, cl, startedRun{out, wait, timeout})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Source, "source", "", "the source that has the workflow (needed when there are several)")
	f.StringVar(&r.Ref, "ref", "", "branch, tag or commit (default: the default branch)")
	f.StringArrayVarP(&inputs, "input", "i", nil, "an input as `name=value`; may be repeated")
	f.StringVar(&file, "inputs-file", "", "a file with a JSON object of inputs")
	f.BoolVar(&wait, "wait", false, "follow the run; exit 1 unless it succeeds")
	f.StringVar(&key, "request-id", "", "name of this request: repeating it does not start twice")
	timeoutFlag(cmd, &timeout)
	_ = cmd.RegisterFlagCompletionFunc("input", c.CompleteInputs())
	_ = cmd.RegisterFlagCompletionFunc("source", c.CompleteSources())
	return cmd
}

func readInputs(pairs []string, file string) (map[string]any, error) {
	out := map[string]any{}
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &out); err != nil {
			return nil, console.Usage("%s is not a JSON object: %w", file, err)
		}
	}
	for _, p := range pairs {
		name, text, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, console.Usage("--input %q is not name=value", p)
		}
		out[name] = text // the server knows the type; here 1.10 would become 1.1
	}
	return out, nil
}

// onlySource is the one source that has a repository.
func onlySource(ctx context.Context, cl *client.Client) (string, error) {
	all, err := cl.Sources(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range all.Sources {
		if s.Kind != "generic" && s.Enabled {
			names = append(names, s.Name)
		}
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("no source has a repository yet; add one with \"kici source add local PATH\"")
	case 1:
		return names[0], nil
	}
	return "", console.Usage("several sources have repositories (%s); say which with --source", strings.Join(names, ", "))
}
