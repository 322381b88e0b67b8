// Package orgcmd is "kici org": the organisations of a cluster.
package orgcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "org", Aliases: []string{"orgs"}, Short: "Create and show organisations",
		Long: "An organisation has its own sources, runs, secrets, tokens and settings, and sees nothing of others. The organisation\n" +
			"\"default\" operates the cluster: its owners and admins may act in another one with --org.",
		Example: "  kici org create acme --name \"Acme Ltd\"\n  kici source list --org acme",
	}
	cmd.AddCommand(create(c), list(c), show(c))
	return cmd
}

func create(c *console.Console) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "create ID", Short: "Create an organisation; its first owner's token is shown once", Args: cobra.ExactArgs(1),
		Long: "Create an organisation. The id is 1 to 63 lower-case letters, digits and inner hyphens; it is part of webhook addresses\n" +
			"and never changes. The token of its first owner is printed once.",
		Example: "  kici org create acme --name \"Acme Ltd\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.CreateOrg(cmd.Context(), args[0], name)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				c.Notice("organisation %s; the token of its first owner is shown only now:", out.Org.ID)
				_, err := fmt.Fprintln(c.Out, out.Token)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what people call it")
	return cmd
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List organisations", Args: cobra.NoArgs,
		Long:    "List the organisations that the token may know of: all for who operates the cluster, else its own.",
		Example: "  kici org list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Orgs(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				rows := make([][]console.Cell, len(out.Orgs))
				for i, o := range out.Orgs {
					rows[i] = console.Plain(o.ID, o.Name, c.Ago(o.CreatedAt))
				}
				return c.Table([]string{"ID", "NAME", "CREATED"}, rows)
			})
		},
	}
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show an organisation", Args: cobra.ExactArgs(1),
		Long:    "Show one organisation.",
		Example: "  kici org show default",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Org(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return fields(c, out) })
		},
	}
}

func fields(c *console.Console, o client.Org) error {
	return c.Fields(
		console.Field{Name: "id", Value: o.ID}, console.Field{Name: "name", Value: o.Name},
		console.Field{Name: "created", Value: console.At(&o.CreatedAt)},
	)
}
