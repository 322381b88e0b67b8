// Package registrationcmd is "kici registration": the workflows that wait for events, schedules and other repositories.
package registrationcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "registration", Aliases: []string{"registrations"}, Short: "Show and switch the workflows that are registered",
		Long: `A push to the default branch of a source registers its workflows: the server keeps a copy of each, with the commit that it runs. Schedules,
events and other repositories start that copy. Name a registration by its id, by repository#workflow, or by the workflow's name where only one
repository has it.`,
		Example: `  kici registration list
  kici registration show nightly
  kici registration run nightly`,
	}
	cmd.AddCommand(list(c), show(c), register(c), refresh(c), enable(c, true), enable(c, false), remove(c), run(c))
	return cmd
}

func list(c *console.Console) *cobra.Command {
	var q client.RegistrationQuery
	var disabled bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List registered workflows", Args: cobra.NoArgs,
		Long: "List registered workflows by repository, with what starts them and the commit that they run.",
		Example: `  kici registration list
  kici registration list --trigger schedule
  kici registration list --source shop --disabled`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if disabled {
				q.State = "disabled"
			}
			out, err := cl.Registrations(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return table(c, out) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Source, "source", "", "only of this source")
	f.StringVar(&q.Repo, "repo", "", "only of this repository")
	f.StringVar(&q.Workflow, "workflow", "", "only of this name")
	f.StringVar(&q.Trigger, "trigger", "", "only with a trigger of this `type`, such as schedule")
	f.BoolVar(&q.Global, "global", false, "only those that follow other repositories")
	f.BoolVar(&disabled, "disabled", false, "only disabled ones")
	f.IntVarP(&q.Limit, "limit", "n", 20, "at most this many (100 at once)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where a page ended")
	_ = cmd.RegisterFlagCompletionFunc("source", c.CompleteSources())
	return cmd
}

func table(c *console.Console, out client.RegistrationList) error {
	if len(out.Registrations) == 0 {
		c.Notice("no registered workflows; a push to the default branch of a source registers its workflows, and so does \"kici registration refresh\"")
		return nil
	}
	rows := make([][]console.Cell, len(out.Registrations))
	for i, r := range out.Registrations {
		state, class := state(r)
		rows[i] = []console.Cell{
			{Text: r.Repo},
			{Text: r.Workflow},
			{Text: state, Class: class},
			{Text: strings.Join(r.Triggers, ", ")},
			{Text: console.ShortSHA(r.SHA)},
			{Text: r.ID},
		}
	}
	if err := c.Table([]string{"REPOSITORY", "WORKFLOW", "STATE", "STARTED BY", "COMMIT", "ID"}, rows); err != nil {
		return err
	}
	if out.NextCursor != "" {
		c.Notice("%d of %d; more with --cursor %s", len(out.Registrations), out.Total, out.NextCursor)
	}
	return nil
}

func state(r client.Registration) (text, class string) {
	switch {
	case r.Disabled:
		return "disabled", "skipped"
	case r.Global:
		return "global", "success"
	}
	return "enabled", "success"
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show REGISTRATION", Aliases: []string{"get"}, Short: "Show a registered workflow with its triggers and schedules", Args: cobra.ExactArgs(1),
		Long: "Show a registered workflow: the commit that it runs, what starts it, and when its schedules are due.",
		Example: `  kici registration show nightly
  kici registration show 'acme/shop#nightly' -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			d, err := cl.Registration(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(d, func() error { return fields(c, d) })
		},
	}
}

func fields(c *console.Console, d client.RegistrationDetail) error {
	text, class := state(d.Registration)
	all := []console.Field{
		{Name: "workflow", Value: d.Workflow},
		{Name: "repository", Value: d.Repo},
		{Name: "source", Value: d.Source},
		{Name: "state", Value: text, Class: class},
		{Name: "problem", Value: d.Problem, Class: "failed"},
		{Name: "file", Value: d.File},
		{Name: "commit", Value: d.SHA},
		{Name: "default branch", Value: d.DefaultBranch},
		{Name: "registered", Value: console.At(d.RegisteredAt)},
		{Name: "id", Value: d.ID},
	}
	for _, t := range d.On {
		all = append(all, console.Field{Name: "started by", Value: trigger(t)})
	}
	for _, s := range d.Schedules {
		all = append(all, console.Field{Name: "schedule", Value: s.Expression + " " + s.Timezone + ", " + when(s), Class: map[bool]string{true: "failed", false: ""}[s.Error != ""]})
	}
	return c.Fields(all...)
}

func trigger(t client.RegistrationTrigger) string {
	parts := []string{t.Type}
	for _, name := range console.SortedKeys(t.Filters) {
		parts = append(parts, name+": "+t.Filters[name])
	}
	return strings.Join(parts, "; ")
}

func when(s client.Schedule) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.Disabled:
		return "disabled"
	case len(s.Next) == 0:
		return "never due again"
	}
	return "next " + console.At(&s.Next[0])
}

func register(c *console.Console) *cobra.Command {
	var n client.NewRegistration
	cmd := &cobra.Command{
		Use: "register SOURCE [WORKFLOW...]", Short: "Register workflows of a commit by hand", Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long: `Register workflows of a branch, tag or commit; without names, all that have a trigger. Other workflows of the repository stay registered as they are.
The next push to the default branch registers what that has.`,
		Example: `  kici registration register shop nightly
  kici registration register shop --ref release/2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			n.Source, n.Workflows = args[0], args[1:]
			out, err := cl.Register(cmd.Context(), n)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return done(c, out) })
		},
	}
	cmd.Flags().StringVar(&n.Ref, "ref", "", "branch, tag or commit (default: the default branch)")
	return cmd
}

func done(c *console.Console, out client.Registered) error {
	names := "no workflows"
	if len(out.Workflows) > 0 {
		names = strings.Join(out.Workflows, ", ")
	}
	c.Notice("%s at %s: %s", out.Repo, console.ShortSHA(out.SHA), names)
	return nil
}

func refresh(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "refresh SOURCE", Short: "Register what the default branch of a source has now", Args: cobra.ExactArgs(1), ValidArgsFunction: c.CompleteSources(),
		Long:    "Make the workflows of a source's default branch, as it is now, its registrations: what a push would do, without its runs. Workflows that are gone are removed.",
		Example: "  kici registration refresh shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.RefreshRegistrations(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return done(c, out) })
		},
	}
}

func enable(c *console.Console, on bool) *cobra.Command {
	verb, long := "disable", "Turn a registered workflow off: no event and no schedule starts it until it is enabled again. What falls due meanwhile is not made up."
	if on {
		verb, long = "enable", "Turn a registered workflow on again. Its schedules begin anew: what they missed is not made up."
	}
	return &cobra.Command{
		Use: verb + " REGISTRATION", Short: fmt.Sprintf("Turn a registered workflow %s", map[bool]string{true: "on", false: "off"}[on]), Args: cobra.ExactArgs(1),
		Long: long, Example: "  kici registration " + verb + " nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.EnableRegistration(cmd.Context(), args[0], on)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				c.Notice("%s of %s is %sd", out.Workflow, out.Repo, verb)
				return nil
			})
		},
	}
}

func remove(c *console.Console) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete REGISTRATION", Aliases: []string{"remove", "rm"}, Short: "Remove a registered workflow and the history of its schedules", Args: cobra.ExactArgs(1),
		Long:    "Remove a registered workflow and the history of its schedules; its runs stay. The next push to the default branch registers it again if it is still there: to keep it quiet, disable it.",
		Example: "  kici registration delete nightly --confirm",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			d, err := cl.Registration(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !yes {
				return fmt.Errorf("this would remove workflow %s of %s: say so with --confirm", d.Workflow, d.Repo)
			}
			if err := cl.DeleteRegistration(cmd.Context(), d.ID); err != nil {
				return err
			}
			return c.Done("deleted", d.ID)
		},
	}
	cmd.Flags().BoolVar(&yes, "confirm", false, "really remove it")
	return cmd
}

func run(c *console.Console) *cobra.Command {
	var request string
	cmd := &cobra.Command{
		Use: "run REGISTRATION", Short: "Start a scheduled workflow now", Args: cobra.ExactArgs(1),
		Long: `Start a registered workflow as if its first schedule had just come due: the registered commit, with the schedule's default inputs. It does not change when
the schedule is due next.`,
		Example: `  kici registration run nightly
  kici registration run 'acme/shop#nightly' --request-id release-42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Writer(cmd.Context())
			if err != nil {
				return err
			}
			out, err := cl.RunRegistration(cmd.Context(), args[0], request)
			if err != nil {
				return err
			}
			return c.Print(out, func() error {
				c.Notice("run %s is started: kici run watch %s", out.RunID, out.RunID)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&request, "request-id", "", "a repeat with the same `id` gives the first one's run")
	return cmd
}
