package sourcecmd

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/git"
)

func installHook(c *console.Console) *cobra.Command {
	var dir string
	var chain bool
	cmd := &cobra.Command{
		Use: "install-hook SOURCE", Short: "Let a repository or its forge tell the server of every push", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Let a repository or its forge tell the server of every push.

For a source on a forge the server creates the webhook there, or brings it up to date: the token needs the right to change webhooks.
For a local source git hooks are written into the repository, so that every push to it and every commit in it is delivered. They
never make a push or a commit fail. Run this on the machine that has the repository.`,
		Example: `  kici source install-hook shop
  kici source install-hook shop --chain      # keep a hook that is there and run it first`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			s, err := cl.Source(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if forges[s.Kind] != "" {
				return installForgeHook(c, cmd, cl, s)
			}
			return installGitHooks(c, cmd, cl, localHook{s, dir, chain})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the repository, when it is not where the source says")
	cmd.Flags().BoolVar(&chain, "chain", false, "keep a hook that is there and run it first")
	return cmd
}

// installForgeHook lets the server make the webhook at the forge.
func installForgeHook(c *console.Console, cmd *cobra.Command, cl *client.Client, s client.Source) error {
	out, err := cl.InstallSourceHook(cmd.Context(), s.ID)
	if err != nil {
		c.Notice("the webhook was not made: %s", c.Explain(err))
		byHand(c, s, "")
		return console.Exit(console.ExitFailed)
	}
	return c.Print(out, func() error {
		fmt.Fprintln(c.Out, console.CleanLine(out.WebhookURL))
		c.Notice("%s now delivers to it; try it with a push, or with \"kici source trigger %s\"", forges[s.Kind], s.Name)
		return nil
	})
}

// localHook is where git hooks are written.
type localHook struct {
	source client.Source
	dir    string
	chain  bool
}

func installGitHooks(c *console.Console, cmd *cobra.Command, cl *client.Client, h localHook) (err error) {
	if h.dir == "" {
		if h.dir, err = pathOf(h.source); err != nil {
			return err
		}
	}
	secret, err := cl.SourceSecret(cmd.Context(), h.source.ID)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	files, err := git.InstallHooks(cmd.Context(), h.dir, git.HookOptions{Kici: exe, URL: h.source.WebhookURL, Secret: secret, Chain: h.chain})
	if err != nil {
		return err
	}
	return c.Print(map[string][]string{"files": files}, func() error {
		for _, f := range files {
			fmt.Fprintln(c.Out, f)
		}
		c.Notice("every push and commit in %s is now delivered to %s", h.dir, h.source.WebhookURL)
		return nil
	})
}

// pathOf is where a local source's repository is.
func pathOf(s client.Source) (string, error) {
	var o struct {
		Path string `json:"path"`
	}
	if s.Kind != "local" || json.Unmarshal(s.Config, &o) != nil || o.Path == "" {
		return "", fmt.Errorf("%s is a %s source: hooks are for local sources and those on a forge", s.Name, s.Kind)
	}
	return o.Path, nil
}
