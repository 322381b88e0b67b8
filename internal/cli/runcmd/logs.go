package runcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// parallelLogs bounds the streams of a followed run.
const parallelLogs = 16

func logs(c *console.Console) *cobra.Command {
	var follow bool
	var job, grep string
	var step int
	cmd := &cobra.Command{
		Use: "logs [RUN [JOB]]",
		Long: "Print the logs of a run, each line after its job's name, or of one job. With --follow it goes on until the end,\n" +
			"with --grep only lines that contain a text are printed; the server looks for them.", Short: "Print the logs of a run, or of one of its jobs", Args: cobra.MaximumNArgs(2), ValidArgsFunction: c.CompleteJobs(),
		Example: `  kici run logs acme/shop#482
  kici run logs 482 build -f
  kici run logs 482 --grep panic
  kici run logs 482 "test (1.26)" --step 2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if job != "" {
					return console.Usage("give the job once: as an argument or as --job")
				}
				job = args[1]
			}
			if step >= 0 && job == "" {
				return console.Usage("--step needs a job")
			}
			cl, err := c.Client()
			if err != nil {
				return err
			}
			ref, err := named(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			p := &Printer{Console: c, Prefix: job == "", Grep: grep}
			if job != "" {
				return p.Job(cmd.Context(), cl, JobLog{Run: ref, Job: job, Step: step, Follow: follow})
			}
			return p.run(cmd.Context(), cl, ref, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run or job has ended")
	cmd.Flags().StringVarP(&grep, "grep", "g", "", "only lines that contain this `text`, whatever its case")
	cmd.MarkFlagsMutuallyExclusive("grep", "follow")
	cmd.Flags().StringVar(&job, "job", "", "only this job (name or id)")
	cmd.Flags().IntVar(&step, "step", -1, "only this step (0 is the set-up)")
	return cmd
}

// Printer writes log lines, cleaned of terminal control sequences; with --output json one object a line.
type Printer struct {
	Console *console.Console
	Prefix  bool   // put the job's name before every line
	Grep    string // only lines that contain it; "" is all

	mu   sync.Mutex
	head map[string]int // last step announced, by job
}

// JobLog says which log to print. Job is an id, or a name when Run is given; Step -1 is every step.
type JobLog struct {
	Run, Job string
	Step     int
	Follow   bool
}

// line is one line of machine output.
type line struct {
	Job   string `json:"job"`
	Step  int    `json:"step"`
	N     int64  `json:"n"`
	TS    int64  `json:"ts"`
	Level string `json:"level"`
	Msg   string `json:"msg"`
}

func (p *Printer) print(job string, l client.StepLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	format, err := p.Console.Format()
	if err != nil {
		return err
	}
	if format != "table" {
		b, err := json.Marshal(line{job, l.Step, l.N, l.TS, l.Level, l.Msg})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Console.Out, "%s\n", b)
		return err
	}
	p.announce(job, l)
	text := console.Clean(l.Msg)
	if p.Prefix {
		text = p.Console.Dim(console.CleanLine(job)+" │ ") + text
	}
	_, err = fmt.Fprintln(p.Console.Out, text)
	return err
}

// announce tells on stderr which step begins.
func (p *Printer) announce(job string, l client.StepLine) {
	if p.head == nil {
		p.head = map[string]int{}
	}
	if last, ok := p.head[job]; ok && last == l.Step {
		return
	}
	p.head[job] = l.Step
	if p.Console.OutTerminal {
		fmt.Fprintln(p.Console.Err, p.Console.Dim(console.CleanLine(fmt.Sprintf("── %s: %s", job, l.Name))))
	}
}

// Job prints the log of one job.
func (p *Printer) Job(ctx context.Context, cl *client.Client, l JobLog) error {
	ref := l.Job
	if l.Run != "" {
		d, err := cl.Run(ctx, l.Run)
		if err != nil {
			return err
		}
		id, err := find(d, l.Job)
		if err != nil {
			return err
		}
		ref = id
	}
	j, err := cl.Job(ctx, ref)
	if err != nil {
		return err
	}
	each := func(s client.StepLine, _ string) error { return p.print(j.DisplayName, s) }
	switch {
	case l.Follow && l.Step >= 0:
		return cl.FollowStepLog(ctx, j.RunID, j.ID, l.Step, "", each)
	case l.Follow:
		return cl.FollowJobLog(ctx, j.ID, "", each)
	}
	return p.stored(ctx, cl, j, l.Step)
}

// stored prints what there is now.
func (p *Printer) stored(ctx context.Context, cl *client.Client, j client.Job, only int) error {
	for _, s := range j.Steps {
		if only >= 0 && s.Index != only {
			continue
		}
		for cursor, more := "", true; more; {
			var lines []client.LogLine
			var err error
			if lines, cursor, more, err = p.page(ctx, cl, j, s.Index, cursor); err != nil {
				return err
			}
			for _, l := range lines {
				if err := p.print(j.DisplayName, client.StepLine{LogLine: l, Step: s.Index, Name: s.Name}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// page is a page of a step's log, or of its lines that match.
func (p *Printer) page(ctx context.Context, cl *client.Client, j client.Job, step int, cursor string) (lines []client.LogLine, next string, more bool, err error) {
	if p.Grep != "" {
		found, err := cl.SearchLog(ctx, j.RunID, j.ID, step, client.LogSearch{Text: p.Grep, Cursor: cursor, Limit: 200})
		return found.Lines, found.NextCursor, !found.Complete && found.NextCursor != cursor, err
	}
	page, err := cl.StepLog(ctx, j.RunID, j.ID, step, cursor, 2000)
	return page.Lines, page.NextCursor, !page.Complete && len(page.Lines) > 0, err
}

func find(d client.RunDetail, job string) (string, error) {
	var base []string
	for _, j := range d.Jobs {
		if j.ID == job || j.Name == job || j.DisplayName == job {
			return j.ID, nil
		}
		if j.BaseName == job {
			base = append(base, j.Name)
		}
	}
	if len(base) > 0 {
		return "", fmt.Errorf("%s has several jobs named %s: %q", Name(d.Run), job, base)
	}
	names := make([]string, len(d.Jobs))
	for i, j := range d.Jobs {
		names[i] = j.Name
	}
	return "", fmt.Errorf("%s has no job %q; its jobs are %q", Name(d.Run), job, names)
}

// run prints the logs of every job: one after the other, or as they come when following.
func (p *Printer) run(ctx context.Context, cl *client.Client, ref string, follow bool) error {
	if !follow {
		d, err := cl.Run(ctx, ref)
		if err != nil {
			return err
		}
		for _, j := range d.Jobs {
			if err := p.stored(ctx, cl, j, -1); err != nil {
				return err
			}
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, parallelLogs)
	begun := map[string]bool{}
	err := cl.FollowRun(ctx, ref, func(d client.RunDetail) error {
		for _, j := range d.Jobs {
			if begun[j.ID] || j.StartedAt == nil && len(j.Steps) == 0 {
				continue
			}
			begun[j.ID] = true
			g.Go(func() error {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				defer func() { <-slots }()
				return cl.FollowJobLog(ctx, j.ID, "", func(s client.StepLine, _ string) error { return p.print(j.DisplayName, s) })
			})
		}
		return nil
	})
	return errors.Join(g.Wait(), err)
}
