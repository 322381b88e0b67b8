package localcmd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/agent/local"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/workflowcmd"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow"
)

// detail is the run in the API's form, which the drawer and --output know.
func (p *prepared) detail(s local.State) client.RunDetail {
	ev := p.facts.Event
	d := client.RunDetail{Inputs: p.facts.Inputs, RunAttempt: 1, Jobs: []client.Job{}, Run: client.Run{
		ID: s.ID, Repo: p.tree.Name, Workflow: p.facts.Workflow.Name, Status: string(s.Status), Display: shown(string(s.Status), s.Status.Display()),
		Title: s.Title, Ref: ev.Ref, Branch: p.tree.Branch, SHA: ev.SHA, Actor: ev.Actor, TriggerEvent: plan.EventName(ev),
		CreatedAt: client.TimeOf(s.StartedAt), StartedAt: timeOf(s.StartedAt), FinishedAt: timeOf(s.FinishedAt),
		DurationMs: took(s.StartedAt, s.FinishedAt), FailureReason: s.Reason, Warnings: p.plan.Warnings,
	}}
	for _, j := range s.Jobs {
		d.Jobs = append(d.Jobs, jobDetail(d, j))
	}
	return d
}

func jobDetail(d client.RunDetail, j local.JobState) client.Job {
	out := client.Job{
		ID: j.ID, RunID: d.ID, Name: j.Name, BaseName: j.Def.Name, DisplayName: j.Display, Status: string(j.Status),
		Display: shown(string(j.Status), j.Status.Display(j.Allowed)), Labels: j.Labels, Needs: j.Needs, Level: j.Level, AllowedFailure: j.Allowed,
		Attempt: 1, CreatedAt: d.CreatedAt, StartedAt: timeOf(j.StartedAt), FinishedAt: timeOf(j.FinishedAt),
		DurationMs: took(j.StartedAt, j.FinishedAt), Why: j.Why, InitFailure: j.InitFailure, Outputs: j.Outputs, KillMethod: j.KillMethod,
	}
	if j.Status.Failure() {
		out.Error = j.Why
	}
	if out.Labels == nil {
		out.Labels = []string{}
	}
	_ = json.Unmarshal([]byte(j.Matrix), &out.Matrix) // our own JSON
	for _, s := range j.Steps {
		out.Steps = append(out.Steps, stepDetail(s))
	}
	return out
}

func stepDetail(s wire.StepStatus) client.Step {
	word := ci.StepStatus(s.Status).Display()
	if s.Allowed {
		word = ci.Display{Word: "failed, allowed", Class: "allowed"}
	}
	return client.Step{
		Index: s.StepIndex, Name: s.Name, Status: s.Status, Display: shown(s.Status, word), StartedAt: timeOf(s.StartedAt),
		FinishedAt: timeOf(s.FinishedAt), DurationMs: took(s.StartedAt, s.FinishedAt), ExitCode: s.ExitCode, Error: s.Error,
		Allowed: s.Allowed, Retries: s.Retries,
	}
}

func shown(status string, d ci.Display) client.Status {
	return client.Status{Status: status, Word: d.Word, Class: d.Class}
}

func timeOf(ms int64) *client.Time {
	if ms == 0 {
		return nil
	}
	t := client.TimeOf(ms)
	return &t
}

// took is a duration up to the end, or so far; nil before the start.
func took(from, to int64) *int64 {
	if from == 0 {
		return nil
	}
	if to == 0 {
		to = time.Now().UnixMilli()
	}
	d := max(to-from, 0)
	return &d
}

// planned is what --dry-run prints.
type planned struct {
	Repo     string       `json:"repo"`
	Workflow string       `json:"workflow"`
	Event    string       `json:"event"`
	Ref      string       `json:"ref"`
	SHA      string       `json:"sha"`
	Title    string       `json:"title"`
	Notices  []string     `json:"notices"`
	Error    string       `json:"error,omitempty"` // nothing can run
	Jobs     []plannedJob `json:"jobs"`
}

type plannedJob struct {
	Name            string         `json:"name"`
	DisplayName     string         `json:"displayName"`
	Level           int            `json:"level"` // 0 starts at once
	Needs           []string       `json:"needs"` // names
	If              string         `json:"if,omitempty"`
	RunsOn          []string       `json:"runsOn"`
	Matrix          map[string]any `json:"matrix,omitempty"`
	ContinueOnError bool           `json:"continueOnError,omitempty"`
	Steps           []string       `json:"steps"`
	Error           string         `json:"error,omitempty"` // it fails before it starts
}

// show prints the plan.
func (p *prepared) show(c *console.Console) error {
	out := planned{
		Repo: p.tree.Name, Workflow: p.facts.Workflow.Name, Event: plan.EventName(p.facts.Event), Ref: p.facts.Event.Ref, SHA: p.facts.Event.SHA,
		Title: p.plan.Title, Notices: append([]string{}, p.notices...), Jobs: []plannedJob{},
	}
	if p.plan.Failure != nil {
		out.Error = p.plan.Failure.Message
	}
	states := local.New(local.Options{Plan: p.plan, Facts: p.facts, Now: time.Now}).State().Jobs
	names := map[string]string{}
	for _, s := range states {
		names[s.ID] = s.Name
	}
	for _, s := range states {
		out.Jobs = append(out.Jobs, plannedOf(s, names))
	}
	err := c.Print(out, func() error { return out.table(c) })
	if err == nil && out.Error != "" {
		err = fmt.Errorf("%s", out.Error)
	}
	return err
}

func plannedOf(s local.JobState, names map[string]string) plannedJob {
	j := plannedJob{
		Name: s.Name, DisplayName: s.Display, Level: s.Level, Needs: []string{}, If: s.Def.If, RunsOn: append([]string{}, s.Def.RunsOn.Labels...),
		ContinueOnError: s.ContinueOnError, Steps: []string{},
	}
	_ = json.Unmarshal([]byte(s.Matrix), &j.Matrix) // our own JSON
	for _, id := range s.Needs {
		j.Needs = append(j.Needs, names[id])
	}
	for _, step := range s.Def.Steps {
		j.Steps = append(j.Steps, step.Label())
	}
	if s.Failure != nil {
		j.Error = s.Failure.Message
	}
	return j
}

func (p planned) table(c *console.Console) error {
	err := c.Fields(
		console.Field{Name: "workflow", Value: p.Workflow}, console.Field{Name: "event", Value: strings.TrimSpace(p.Event + "  " + p.Ref)},
		console.Field{Name: "commit", Value: strings.TrimSpace(p.SHA + "  " + p.Title)},
	)
	for _, n := range p.Notices {
		c.Notice("note: %s", n)
	}
	if err != nil || len(p.Jobs) == 0 {
		return err
	}
	fmt.Fprintln(c.Out)
	rows := make([][]console.Cell, len(p.Jobs))
	for i, j := range p.Jobs {
		why := j.If
		if j.Error != "" {
			why = j.Error
		}
		rows[i] = console.Plain(strconv.Itoa(j.Level+1), j.DisplayName, strings.Join(j.RunsOn, ","), strings.Join(j.Needs, ", "), console.Count(int64(len(j.Steps)), "step"), why)
	}
	return c.Table([]string{"ORDER", "JOB", "RUNS ON", "NEEDS", "STEPS", "CONDITION"}, rows)
}

// complete offers the workflows of the checkout.
func complete(f *flags) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		root, err := workflowcmd.Root(f.dir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		files, err := workflowcmd.Read(root)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		if file, _ := workflow.Compile(files); file != nil {
			for _, w := range file.Workflows {
				words = append(words, console.CleanLine(w.Name)+"\t"+console.CleanLine(w.SourceFile))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
