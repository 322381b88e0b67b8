// Package sourcecmd is "kici source": where deliveries and repositories come from.
package sourcecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use:  "source",
		Long: "A source is where deliveries come from and workflows are read: a repository here or on a forge, or a program that sends webhooks.",
		Example: `  kici source add local .
  kici source list
  kici source check shop`, Aliases: []string{"sources"}, Short: "Manage where deliveries and repositories come from",
	}
	cmd.AddCommand(add(c), list(c), show(c), remove(c), enable(c, true), enable(c, false), check(c), trigger(c), installHook(c), webhookSecret(c),
		update(c), rotateSecret(c), dropOldSecret(c), setToken(c), setSSHKey(c), redeliver(c), purgeStale(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "list",
		Long: "List sources with their kind, their repository and whether they are enabled.", Aliases: []string{"ls"}, Short: "List sources", Args: cobra.NoArgs, Example: "  kici source list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Sources(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
}

func table(c *console.Console, out client.SourceList) error {
	if len(out.Sources) == 0 {
		c.Notice("no sources; add one with \"kici source add local PATH\" or \"kici source add github OWNER/NAME\"")
		return nil
	}
	rows := make([][]console.Cell, len(out.Sources))
	for i, s := range out.Sources {
		state, class := "enabled", "success"
		if !s.Enabled {
			state, class = "disabled", "skipped"
		}
		rows[i] = []console.Cell{{Text: s.Name}, {Text: s.Kind}, {Text: state, Class: class}, {Text: s.Repo}, {Text: s.WebhookURL}}
	}
	return c.Table([]string{"SOURCE", "KIND", "STATE", "REPOSITORY", "WEBHOOK"}, rows)
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:  "show SOURCE",
		Long: "Show one source: its settings, the address for webhooks, its last delivery and how looking for new commits goes. Secrets are never shown.",
		Example: `  kici source show shop
  kici source show shop -o json`, Aliases: []string{"get"}, Short: "Show a source", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			s, err := cl.Source(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(s, func() error { return fields(c, s) })
		},
	}
}

func fields(c *console.Console, s client.Source) error {
	all := []console.Field{
		{Name: "source", Value: s.Name},
		{Name: "kind", Value: s.Kind},
		{Name: "enabled", Value: fmt.Sprint(s.Enabled)},
		{Name: "repository", Value: s.Repo},
		{Name: "webhook", Value: s.WebhookURL},
		{Name: "options", Value: string(s.Config)},
		{Name: "routing key", Value: s.RoutingKey},
		{Name: "id", Value: s.ID},
		{Name: "created", Value: console.At(&s.CreatedAt)},
	}
	for _, k := range s.Secrets {
		text := "set " + console.At(&k.UpdatedAt)
		if k.EndsAt != nil {
			text += ", accepted until " + console.At(k.EndsAt)
		}
		all = append(all, console.Field{Name: k.Key, Value: text})
	}
	if d := s.LastDelivery; d != nil {
		all = append(all, console.Field{Name: "last delivery", Value: fmt.Sprintf("%s %s %s (%s)", console.At(&d.ReceivedAt), d.Event, d.Status, d.ID)})
	}
	if p := s.Poll; p != nil {
		all = append(all, console.Field{Name: "last look", Value: looked(p)})
		if p.Message != "" {
			all = append(all, console.Field{Name: "look says", Value: p.Message, Class: map[bool]string{true: "failed", false: ""}[p.Failures > 0]})
		}
	}
	return c.Fields(all...)
}

// looked says when kici looked for missed pushes.
func looked(p *client.SourcePoll) string {
	text := "never"
	if p.LastAt != nil {
		text = console.At(p.LastAt)
	}
	if p.Failures > 0 {
		text += fmt.Sprintf("; %s since, next %s", console.Count(p.Failures, "failure"), console.At(p.NextAt))
	}
	return text
}

func remove(c *console.Console) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:  "remove SOURCE",
		Long: "Remove a source. Its runs stay; deliveries to it are refused from then on.", Aliases: []string{"rm", "delete"}, Short: "Remove a source and what it has registered; its runs stay",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(), Example: "  kici source remove shop --confirm",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			s, err := cl.Source(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !yes {
				return fmt.Errorf("this would remove the %s source %s (%s): say so with --confirm", s.Kind, s.Name, s.Repo)
			}
			if err := cl.RemoveSource(cmd.Context(), s.ID); err != nil {
				return err
			}
			return c.Done("removed", s.Name)
		},
	}
	cmd.Flags().BoolVar(&yes, "confirm", false, "really do it")
	return cmd
}

func enable(c *console.Console, on bool) *cobra.Command {
	verb, short := "enable", "Take deliveries from a source again"
	if !on {
		verb, short = "disable", "Take no more deliveries from a source"
	}
	return &cobra.Command{
		Use:  verb + " SOURCE",
		Long: "A source that is disabled keeps its settings and refuses deliveries.",
		Example: `  kici source enable shop
  kici source disable shop`, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			s, err := cl.EnableSource(cmd.Context(), args[0], on)
			if err != nil {
				return err
			}
			return c.Done(verb+"d", s.Name)
		},
	}
}

func check(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "check SOURCE",
		Long:    "Ask a source's repository for its default branch, to see that address and credentials are right.",
		Example: "  kici source check shop", Short: "Let the server reach the source now; exit 1 when it cannot", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.CheckSource(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			err = c.Print(out, func() error {
				for _, w := range out.Warnings {
					c.Notice("warning: %s", console.CleanLine(w))
				}
				if !out.OK {
					return fmt.Errorf("%s: %s", args[0], out.Message)
				}
				_, err := fmt.Fprintln(c.Out, console.CleanLine("ok  "+found(out)))
				return err
			})
			if err == nil && !out.OK {
				return console.Exit(console.ExitFailed)
			}
			return err
		},
	}
}

// found says what a check has seen.
func found(s client.SourceCheck) string {
	switch {
	case s.DefaultBranch == "":
		return "it takes webhooks; it has no repository to read"
	case s.SHA == "":
		return s.DefaultBranch + ", without a commit yet"
	}
	return fmt.Sprintf("%s %s %s", s.DefaultBranch, console.ShortSHA(s.SHA), s.Title)
}

func trigger(c *console.Console) *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:  "trigger SOURCE",
		Long: "Pretend a push to a source of this machine, as its hook would report it.", Aliases: []string{"trigger-local"}, Short: "Treat the tip of a branch as just pushed", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Example: `  kici source trigger shop
  kici source trigger shop --ref release/2.0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.TriggerSource(cmd.Context(), args[0], ref)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				_, err := fmt.Fprintln(c.Out, out.DeliveryID)
				c.Notice("accepted; what it started: kici run list --delivery %s", out.DeliveryID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&ref, "ref", "", "branch, tag or full ref (default: the default branch)")
	return cmd
}

func webhookSecret(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "webhook-secret SOURCE",
		Long:    "Print the secret with which webhooks of a source are signed. Reading it is recorded.",
		Example: "  kici source webhook-secret shop", Aliases: []string{"get-webhook-secret"}, Short: "Print what senders of a source sign with; this is recorded",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			secret, err := cl.SourceSecret(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(map[string]string{"secret": secret}, func() error {
				_, err := fmt.Fprintln(c.Out, console.CleanLine(secret))
				return err
			})
		},
	}
}
