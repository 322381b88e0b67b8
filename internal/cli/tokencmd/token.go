// Package tokencmd is "kici token": the credentials of people and programs that use the API.
package tokencmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "token",
		Long: "Tokens let people and programs use the API. Each has a role; one may be limited to a source and to a time.",
		Example: `  kici token create ci --role admin
  kici token list`, Aliases: []string{"tokens"}, Short: "Create, list and revoke API tokens",
	}
	cmd.AddCommand(create(c), list(c), revoke(c), whoami(c))
	return cmd
}

func create(c *console.Console) *cobra.Command {
	var t client.NewToken
	var expires string
	cmd := &cobra.Command{
		Use: "create LABEL", Short: "Create a token; it is shown once", Args: cobra.ExactArgs(1),
		Long: `Create a token. Roles: owner may do everything, admin everything but managing tokens and keys, auditor may only look.
A token with --routing-key sees only one source and its runs.`,
		Example: `  kici token create ada --role admin
  kici token create dashboard --role auditor --expires 90d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Label = args[0]
			if expires != "" {
				at, err := instant(expires, c.Now())
				if err != nil {
					return err
				}
				t.ExpiresAt = &at
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.CreateToken(cmd.Context(), t)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				c.Notice("%s token %s (%s); it is shown only now:", out.Role, out.Label, out.ID)
				_, err := fmt.Fprintln(c.Out, out.Token)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.Role, "role", "auditor", "owner, admin or auditor")
	f.StringVar(&t.RoutingKey, "routing-key", "", "limit it to one source (see \"kici source show\")")
	f.StringVar(&t.Subject, "subject", "", "whom or what it stands for, for people to read")
	f.StringVar(&expires, "expires", "", "when it ends: 12h, 90d or 2027-01-31")
	return cmd
}

// instant reads a duration from now, in days too, or a date.
func instant(s string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 {
			return now.AddDate(0, 0, n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, console.Usage("--expires %q is not like 12h, 90d or 2027-01-31", s)
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "list",
		Long: "List the tokens of people and programs. The secrets themselves are shown once, when they are made, and never again.",
		Example: `  kici token list
  kici token list -o json`, Aliases: []string{"ls"}, Short: "List tokens, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Tokens))
				for i, t := range out.Tokens {
					word, class := state(t, c.Now())
					rows[i] = []console.Cell{
						{Text: t.ID},
						{Text: t.Label},
						{Text: t.Role},
						{Text: word, Class: class},
						{Text: t.RoutingKey},
						{Text: t.Subject},
						{Text: c.Ago(t.CreatedAt)},
						{Text: console.At(t.ExpiresAt)},
						{Text: console.At(t.LastUsedAt)},
					}
				}
				return c.Table([]string{"ID", "LABEL", "ROLE", "STATE", "ONLY", "FOR", "CREATED", "EXPIRES", "LAST USED"}, rows)
			})
		},
	}
}

func state(t client.Token, now time.Time) (word, class string) {
	switch {
	case t.RevokedAt != nil:
		return "revoked", "skipped"
	case t.ExpiresAt != nil && t.ExpiresAt.Before(now):
		return "expired", "skipped"
	}
	return "valid", "success"
}

func revoke(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Long:    "Revoke a token. Whoever has it is refused from the next request on.",
		Example: "  kici token revoke 0195b2c4-0000-7000-8000-000000000001", Short: "Revoke a token", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.RevokeToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.Done("revoked", args[0])
		},
	}
}

func whoami(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Long:    "Say who the server takes this command for: the token's name, its role and what it is limited to.",
		Example: "  kici whoami", Short: "Say which token this machine uses", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			me, err := cl.WhoAmI(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(me, func() error {
				return c.Fields(
					console.Field{Name: "server", Value: cl.URL()}, console.Field{Name: "token", Value: me.Label + "  " + me.TokenID},
					console.Field{Name: "role", Value: me.Role}, console.Field{Name: "only", Value: me.RoutingKey},
					console.Field{Name: "organisation", Value: me.OrgID},
				)
			})
		},
	}
}
