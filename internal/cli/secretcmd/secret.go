// Package secretcmd is "kici secret": the organisation's secrets, and those of one repository.
package secretcmd

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret",
		Example: `  kici secret set DEPLOY_KEY --from-file key.pem
  kici secret list`, Aliases: []string{"secrets"}, Short: "Set, list and delete secrets",
		Long: `Secrets are for ${{ secrets.NAME }} in workflows. Values are stored encrypted and never shown again.`,
	}
	cmd.AddCommand(set(c), list(c), remove(c))
	return cmd
}

func scopeOf(repo string) string {
	if repo == "" {
		return ""
	}
	return "repo/" + strings.Trim(repo, "/")
}

func set(c *console.Console) *cobra.Command {
	var in console.SecretInput
	var repo string
	var dry, fingerprint bool
	cmd := &cobra.Command{
		Use:  "set NAME",
		Long: "Set a secret, which jobs read as ${{ secrets.NAME }}. The value comes from a prompt, a pipe, a file or a variable, and is never shown again.", Short: "Set a secret: from a prompt, standard input, a file or a variable", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSecrets(),
		Example: `  kici secret set DEPLOY_KEY                        # asks for it
  kici secret set DEPLOY_KEY --from-file ~/.ssh/deploy
  vault read -field=key deploy | kici secret set DEPLOY_KEY
  kici secret set DEPLOY_KEY --repo acme/shop        # only for this repository`,
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := in.Read(c, "value of "+args[0])
			if err != nil {
				return err
			}
			if fingerprint {
				sum := sha256.Sum256([]byte(value))
				c.Notice("fingerprint sha256:%s", hex.EncodeToString(sum[:8]))
			}
			if dry {
				c.Notice("would set %s (%d bytes); nothing was changed", args[0], len(value))
				return nil
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.SetSecret(cmd.Context(), scopeOf(repo), args[0], value); err != nil {
				return err
			}
			return c.Done("set", args[0])
		},
	}
	in.Flags(cmd, "", "the secret")
	cmd.Flags().StringVar(&repo, "repo", "", "only for this repository")
	cmd.Flags().BoolVar(&fingerprint, "confirm-fingerprint", false, "print a fingerprint of the value")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing")
	return cmd
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "list",
		Long: "List the names of secrets. Their values cannot be read back.",
		Example: `  kici secret list
  kici secret list -o json`, Aliases: []string{"ls"}, Short: "List the names of secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Secrets(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
}

func table(c *console.Console, out client.SecretList) error {
	if len(out.Secrets) == 0 {
		c.Notice("no secrets; set one with \"kici secret set NAME\"")
		return nil
	}
	rows := make([][]console.Cell, len(out.Secrets))
	for i, s := range out.Secrets {
		where, note := "organisation", ""
		if s.Scope != "" {
			where = strings.TrimPrefix(s.Scope, "repo/")
		}
		if s.Unreadable {
			note = "sealed with another master key"
		}
		rows[i] = console.Plain(s.Key, where, c.Ago(s.UpdatedAt), note)
	}
	return c.Table([]string{"NAME", "FOR", "UPDATED", "NOTE"}, rows)
}

func remove(c *console.Console) *cobra.Command {
	var repo string
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Long:    "Delete a secret. Jobs that have it already keep it; jobs that start later do not get it.",
		Example: "  kici secret delete DEPLOY_KEY", Aliases: []string{"rm", "remove"}, Short: "Delete a secret", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSecrets(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.DeleteSecret(cmd.Context(), scopeOf(repo), args[0]); err != nil {
				return err
			}
			return c.Done("deleted", args[0])
		},
	}
	cmd.Flags().StringVar(&repo, "repo", "", "the one of this repository")
	return cmd
}
