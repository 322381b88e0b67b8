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
		Use: "install-hook SOURCE", Short: "Write git hooks that tell the server of every push and commit", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Write git hooks into a local source's repository, so that every push to it and every commit in it is delivered.
The hooks never make a push or a commit fail. Run this on the machine that has the repository.`,
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
			if dir == "" {
				if dir, err = pathOf(s); err != nil {
					return err
				}
			}
			secret, err := cl.SourceSecret(cmd.Context(), s.ID)
			if err != nil {
				return err
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			files, err := git.InstallHooks(cmd.Context(), dir, git.HookOptions{Kici: exe, URL: s.WebhookURL, Secret: secret, Chain: chain})
			if err != nil {
				return err
			}
			return c.Print(map[string][]string{"files": files}, func() error {
				for _, f := range files {
					fmt.Fprintln(c.Out, f)
				}
				c.Notice("every push and commit in %s is now delivered to %s", dir, s.WebhookURL)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the repository, when it is not where the source says")
	cmd.Flags().BoolVar(&chain, "chain", false, "keep a hook that is there and run it first")
	return cmd
}

// pathOf is where a local source's repository is.
func pathOf(s client.Source) (string, error) {
	var o struct {
		Path string `json:"path"`
	}
	if s.Kind != "local" || json.Unmarshal(s.Config, &o) != nil || o.Path == "" {
		return "", fmt.Errorf("%s is a %s source: hooks are for local ones", s.Name, s.Kind)
	}
	return o.Path, nil
}
