package console

import (
	"context"
	"fmt"
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
