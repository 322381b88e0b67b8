// Package jobcmd is "kici job" and "kici why".
package jobcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/runcmd"
	"github.com/kici-go/kici/internal/cli/stepcmd"
)

// New returns the noun with its verbs.
func New(c *console.Console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "job",
		Example: `  kici job list acme/shop#482
  kici job why acme/shop#482/test`, Aliases: []string{"jobs"}, Short: "List and show jobs, their logs and why they wait; add jobs to a run",
		Long: `Name a job by its id, by run/job (acme/shop#482/build), or by run and job name as two arguments.`,
	}
	cmd.AddCommand(list(c), show(c), Why(c), logs(c), stepcmd.AddJobs(c))
	return cmd
}

// ref makes one reference of one or two arguments.
func ref(args []string) string {
	if len(args) == 2 {
		return args[0] + "/" + args[1]
	}
	return args[0]
}

func list(c *console.Console) *cobra.Command {
	var steps bool
	cmd := &cobra.Command{
		Use: "list RUN", ValidArgsFunction: c.CompleteRuns(),
		Long: "List the jobs of a run, with the agent of each and why those that wait are waiting.", Aliases: []string{"ls"}, Short: "List the jobs of a run", Args: cobra.ExactArgs(1),
		Example: "  kici job list acme/shop#482",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			out, err := cl.Jobs(cmd.Context(), args[0], steps)
			if err != nil {
				return err
			}
			return c.Print(out, func() error { return runcmd.Jobs(c, out.Jobs, steps) })
		},
	}
	cmd.Flags().BoolVar(&steps, "steps", false, "show the steps of every job")
	cmd.Flags().BoolVar(&steps, "include-steps", false, "the same as --steps")
	_ = cmd.Flags().MarkHidden("include-steps")
	return cmd
}

func show(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "show JOB | RUN JOB", ValidArgsFunction: c.CompleteJobs(),
		Long: "Show one job with its steps, outputs and how its processes were ended.", Short: "Show one job with its steps", Args: cobra.RangeArgs(1, 2),
		Example: "  kici job show acme/shop#482/build",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			j, err := cl.Job(cmd.Context(), ref(args))
			if err != nil {
				return err
			}
			return c.Print(j, func() error { return printJob(c, j) })
		},
	}
}

func printJob(c *console.Console, j client.Job) error {
	word := j.Display.Word
	if j.DurationMs != nil {
		word += " in " + console.Took(*j.DurationMs)
	}
	agent := j.AgentID
	if j.Scaler != "" {
		agent += "  (" + j.Scaler + " on " + j.Node + ")"
	}
	err := c.Fields(
		console.Field{Name: "job", Value: j.DisplayName},
		console.Field{Name: "status", Value: word, Class: j.Display.Class},
		console.Field{Name: "why", Value: j.Why},
		console.Field{Name: "agent", Value: agent},
		console.Field{Name: "runs on", Value: fmt.Sprint(j.Labels)},
		console.Field{Name: "waited", Value: console.TookPtr(j.WaitMs)},
		console.Field{Name: "id", Value: j.ID},
		console.Field{Name: "run", Value: j.RunID},
	)
	if err != nil {
		return err
	}
	for name, value := range j.Outputs {
		if err := c.Fields(console.Field{Name: "output", Value: name + "=" + value}); err != nil {
			return err
		}
	}
	if len(j.Steps) == 0 {
		return nil
	}
	fmt.Fprintln(c.Out)
	rows := make([][]console.Cell, len(j.Steps))
	for i, s := range j.Steps {
		exit := ""
		if s.ExitCode != nil {
			exit = fmt.Sprint(*s.ExitCode)
		}
		rows[i] = []console.Cell{
			{Text: fmt.Sprint(s.Index)},
			{Text: s.Display.Word, Class: s.Display.Class},
			{Text: console.TookPtr(s.DurationMs)},
			{Text: exit},
			{Text: s.Name},
			{Text: s.Error},
		}
	}
	return c.Table([]string{"STEP", "STATUS", "TOOK", "EXIT", "NAME", "ERROR"}, rows)
}

// Why is "kici job why" and "kici why".
func Why(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "why JOB | RUN JOB", ValidArgsFunction: c.CompleteJobs(),
		Long: "Say why a job is where it is: one reason for each scaler, agent or need that it waits for, as they were decided last.", Short: "Say why a job is where it is: for every scaler and agent, why it does not run it now",
		Args: cobra.RangeArgs(1, 2),
		Example: `  kici why acme/shop#482/deploy
  kici why 482 "test (1.26)"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			w, err := cl.Why(cmd.Context(), ref(args))
			if err != nil {
				return err
			}
			return c.Print(w, func() error { return printWhy(c, w) })
		},
	}
}

func printWhy(c *console.Console, w client.Why) error {
	fmt.Fprintln(c.Out, c.Bold(console.CleanLine(w.Name+": "+w.Headline)))
	for _, r := range w.Reasons {
		if r.Text == w.Headline && len(w.Reasons) == 1 {
			continue
		}
		text := "  - " + console.CleanLine(r.Text)
		if r.Until != nil {
			text += c.Dim("  (until " + console.At(r.Until) + ")")
		}
		fmt.Fprintln(c.Out, text)
	}
	if w.AsOf != nil {
		c.Notice("as of %s (%s)", console.At(w.AsOf), c.Ago(*w.AsOf))
	}
	return nil
}

func logs(c *console.Console) *cobra.Command {
	var follow bool
	var step int
	cmd := &cobra.Command{
		Use: "logs JOB | RUN JOB", ValidArgsFunction: c.CompleteJobs(),
		Long: "Print the log of a job, step by step. With --follow it goes on until the job has ended.", Short: "Print the log of a job", Args: cobra.RangeArgs(1, 2),
		Example: "  kici job logs 482 build -f",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			l := runcmd.JobLog{Job: args[0], Step: step, Follow: follow}
			if len(args) == 2 {
				l.Run, l.Job = args[0], args[1]
			}
			return (&runcmd.Printer{Console: c}).Job(cmd.Context(), cl, l)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().IntVar(&step, "step", -1, "only this step (0 is the set-up)")
	return cmd
}
