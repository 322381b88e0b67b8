// Package trustcmd is "kici trust": whose events may start whose workflows.
package trustcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trust", Aliases: []string{"trusts"}, Short: "Say whose events may start whose workflows",
		Long: `Events of a source start workflows of the same source. To start those of another one, its workflows' owner must trust the repository that
emits them: for every name, or for some. Both must belong to one organisation.`,
		Example: `  kici trust list
  kici trust add shop deploy --event 'release.*'`,
	}
	cmd.AddCommand(list(c), add(c), remove(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List whose events may start whose workflows", Args: cobra.NoArgs,
		Long: "List whose events may start whose workflows.", Example: "  kici trust list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if source != "" {
				s, err := cl.Source(cmd.Context(), source)
				if err != nil {
					return err
				}
				source = s.RoutingKey
			}
			out, err := cl.Trusts(cmd.Context(), source)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "only from or to this source")
	_ = cmd.RegisterFlagCompletionFunc("source", c.CompleteSources())
	return cmd
}

func table(c *console.Console, out client.TrustList) error {
	if len(out.Trust) == 0 {
		c.Notice("no trust: events start workflows of their own source only")
		return nil
	}
	rows := make([][]console.Cell, len(out.Trust))
	for i, t := range out.Trust {
		rows[i] = console.Plain(t.ID, t.SourceRepo, t.TargetRepo, events(t), c.Ago(t.CreatedAt), t.CreatedBy)
	}
	return c.Table([]string{"TRUST", "EVENTS OF", "MAY START WORKFLOWS OF", "NAMES", "ADDED", "BY"}, rows)
}

func events(t client.Trust) string {
	switch {
	case !t.Enabled:
		return "none (turned off)"
	case t.EventNames == nil:
		return "all"
	case len(*t.EventNames) == 0:
		return "none"
	}
	return strings.Join(*t.EventNames, ", ")
}

func add(c *console.Console) *cobra.Command {
	var t client.NewTrust
	var names []string
	cmd := &cobra.Command{
		Use: "add FROM TO", Short: "Let events of a source's repository start workflows of another one", Args: cobra.ExactArgs(2), ValidArgsFunction: c.CompleteSources(),
		Long: `Let events that runs of FROM emit start workflows of TO. Both are sources: a name, an id or a routing key. Adding the same pair again
sets its names. A pattern stands for any run of characters but '/' with '*'.`,
		Example: `  kici trust add shop deploy
  kici trust add shop deploy --event 'release.*' --event deploy.asked`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.SourceRoutingKey, t.TargetRoutingKey = args[0], args[1]
			if len(names) > 0 {
				t.EventNames = &names
			}
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.AddTrust(cmd.Context(), t)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, client.TrustList{Trust: []client.Trust{out}}) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&names, "event", nil, "only events whose name is like this `pattern`; may be repeated (default: every name)")
	f.StringVar(&t.SourceRepo, "from-repo", "", "the repository that emits, where FROM has no repository of its own")
	f.StringVar(&t.TargetRepo, "to-repo", "", "the repository of the workflows, where TO has no repository of its own")
	return cmd
}

func remove(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "remove TRUST", Aliases: []string{"rm"}, Short: "Take a trust back", Args: cobra.ExactArgs(1),
		Long: "Take a trust back. Events that come from now on start nothing there; runs that were started go on.", Example: "  kici trust remove 0197a3c4-5e1f-7a10-9d54-0242ac120002",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			if err := cl.RemoveTrust(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.Done("removed", args[0])
		},
	}
}
