package agentcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

func tokens(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "token",
		Long: "Tokens let static agents register. A token fixes the labels that its agents have; scalers make the tokens of their agents themselves.",
		Example: `  kici agent token create --labels linux,gpu
  kici agent token list`, Aliases: []string{"tokens"}, Short: "Manage the tokens with which static agents register",
	}
	cmd.AddCommand(create(c), listTokens(c), revoke(c))
	return cmd
}

func create(c *console.Console) *cobra.Command {
	var t client.NewAgentToken
	cmd := &cobra.Command{
		Use: "create", Short: "Create a token for agents that you start yourself; it is shown once", Args: cobra.NoArgs,
		Long: `Create a token for static agents. An agent with it may register with the given labels and no others;
mandatory labels are those that a job must name to run on it.`,
		Example: `  kici agent token create --labels linux,gpu > agent.token
  kici agent --url http://ci.example.org:4000 --token-file agent.token`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.CreateAgentToken(cmd.Context(), t)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				c.Notice("token %s for agents with %s; it is shown only now:", out.ID, strings.Join(out.Labels, ", "))
				_, err := fmt.Fprintln(c.Out, out.Token)
				return err
			})
		},
	}
	cmd.Flags().StringSliceVar(&t.Labels, "labels", nil, "`labels` that its agents may have")
	cmd.Flags().StringSliceVar(&t.MandatoryLabels, "mandatory-label", nil, "`labels` that a job must name")
	return cmd
}

func listTokens(c *console.Console) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:  "list",
		Long: "List the tokens of static agents. The secrets themselves are shown once, when they are made, and never again.",
		Example: `  kici agent token list
  kici agent token list -o json`, Aliases: []string{"ls"}, Short: "List agent tokens, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.AgentTokens(cmd.Context(), kind)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Tokens))
				for i, t := range out.Tokens {
					state, class := "valid", "success"
					if t.RevokedAt != nil {
						state, class = "revoked", "skipped"
					}
					rows[i] = []console.Cell{
						{Text: t.ID},
						{Text: t.Prefix},
						{Text: t.Type},
						{Text: state, Class: class},
						{Text: strings.Join(t.Labels, ",")},
						{Text: c.Ago(t.CreatedAt)},
						{Text: console.At(t.LastUsedAt)},
					}
				}
				return c.Table([]string{"ID", "TOKEN", "TYPE", "STATE", "LABELS", "CREATED", "LAST USED"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&kind, "type", "static", "static, ephemeral or \"\" for both")
	return cmd
}

func revoke(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Long:    "Revoke a token of static agents. Agents that registered with it are refused from then on.",
		Example: "  kici agent token revoke 0195b2c4-0000-7000-8000-000000000001", Short: "Revoke an agent token; its agents are disconnected", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.RevokeAgentToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.Done("revoked", args[0])
		},
	}
}
