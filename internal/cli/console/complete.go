package console

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
)

// completion is what cobra asks for the words that may come next.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// ask runs f with a client that has little time: completion must never hang a shell.
func (c *Console) ask(cmd *cobra.Command, args []string, f func(context.Context, *client.Client) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c.Err = io.Discard // a shell would print it into the line that is typed
	cl, err := c.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	return f(ctx, cl), cobra.ShellCompDirectiveNoFileComp
}

// word is a completion with its description.
func word(text, about string) string { return CleanLine(text) + "\t" + CleanLine(about) }

// CompleteRuns offers the newest runs.
func (c *Console) CompleteRuns() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Runs(ctx, client.RunQuery{Limit: 30})
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Runs))
			for i, r := range list.Runs {
				words[i] = word(fmt.Sprintf("%s#%d", r.Repo, r.Number), fmt.Sprintf("%s, %s: %s", r.Workflow, r.Display.Word, r.Title))
			}
			return words
		})
	}
}

// CompleteSources offers the sources.
func (c *Console) CompleteSources() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Sources(ctx)
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Sources))
			for i, s := range list.Sources {
				words[i] = word(s.Name, s.Kind+" "+s.Repo)
			}
			return words
		})
	}
}

// CompleteSecrets offers the names of secrets.
func (c *Console) CompleteSecrets() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Secrets(ctx)
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Secrets))
			for i, s := range list.Secrets {
				words[i] = word(s.Key, strings.TrimPrefix(s.Scope, "repo/"))
			}
			return words
		})
	}
}

// CompleteWorkflows offers the workflows that ran lately.
func (c *Console) CompleteWorkflows() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Runs(ctx, client.RunQuery{Limit: 100})
			if err != nil {
				return nil
			}
			var words []string
			for _, r := range list.Runs {
				if w := word(r.Workflow, r.Repo); !slices.Contains(words, w) {
					words = append(words, w)
				}
			}
			return words
		})
	}
}

// CompleteJobs offers the newest runs, and after one of them its jobs.
func (c *Console) CompleteJobs() completion {
	runs := c.CompleteRuns()
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return runs(cmd, args, typed)
		}
		return c.ask(cmd, nil, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Jobs(ctx, args[0], false)
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Jobs))
			for i, j := range list.Jobs {
				words[i] = word(j.Name, j.Display.Word)
			}
			return words
		})
	}
}

// CompleteAgents offers the agents that are there.
func (c *Console) CompleteAgents() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Agents(ctx, false, "", "", 100)
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Agents))
			for i, a := range list.Agents {
				words[i] = word(a.ID, a.State)
			}
			return words
		})
	}
}

// CompleteScalers offers the scalers of all servers.
func (c *Console) CompleteScalers() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Scalers(ctx)
			if err != nil {
				return nil
			}
			words := make([]string, len(list.Scalers))
			for i, s := range list.Scalers {
				words[i] = word(s.Name, s.State)
			}
			return words
		})
	}
}

// CompleteStart offers the workflows that can be started: those of the source that a flag names, at the ref that another names;
// without a source, those that ran lately.
func (c *Console) CompleteStart() completion {
	lately := c.CompleteWorkflows()
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		source, ref := flagText(cmd, "source"), flagText(cmd, "ref")
		if source == "" {
			return lately(cmd, args, typed)
		}
		return c.ask(cmd, args, func(ctx context.Context, cl *client.Client) []string {
			var words []string
			list, err := cl.Workflows(ctx, source, ref)
			if err != nil {
				return nil
			}
			for _, w := range list.Workflows {
				if w.Startable {
					words = append(words, word(w.Name, w.File))
				}
			}
			return words
		})
	}
}

// CompleteInputs offers the inputs of the workflow that is typed already, as name=; it needs the source.
func (c *Console) CompleteInputs() completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		source, ref := flagText(cmd, "source"), flagText(cmd, "ref")
		if source == "" || len(args) != 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words, directive := c.ask(cmd, nil, func(ctx context.Context, cl *client.Client) []string {
			list, err := cl.Workflows(ctx, source, ref)
			if err != nil {
				return nil
			}
			at := slices.IndexFunc(list.Workflows, func(w client.Workflow) bool { return w.Name == args[0] })
			if at < 0 {
				return nil
			}
			var words []string
			for _, in := range list.Workflows[at].Inputs {
				words = append(words, word(in.Name+"=", strings.TrimSpace(in.Type+" "+in.Description)))
			}
			return words
		})
		return words, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// flagText is what a flag was given, also one that the command does not have.
func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
