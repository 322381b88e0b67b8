package local

import (
	"context"
	"strings"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow"
)

// Emitted is an event that a step emitted. Nothing waits for it on this machine.
type Emitted struct {
	ID, Job, Name string
	Payload       string   // JSON
	TargetRepos   []string // none is every repository
}

// reserved are the beginnings of names that steps may not emit (EVT-2).
var reserved = []string{"__", "kici."}

// ask answers the steps of a job as a server would: events are told to Options.Event, jobs are added to the run.
func (r *Runner) ask(i int) stepcall.Handler {
	return func(_ context.Context, q stepcall.Request) wire.StepResult {
		r.mu.Lock()
		defer r.mu.Unlock()
		job := r.jobs[i].JobState
		key := job.ID + "/" + q.RequestID
		if res, again := r.answered[key]; again {
			return res
		}
		var res wire.StepResult
		switch {
		case job.Status != ci.JobRunning:
			res = stepcall.Refused(wire.StepEnded, "the job is %s; only a running job can ask", job.Status)
		case q.Type == wire.TypeEventEmit:
			res = r.emit(job, q)
		default:
			res = r.addJobs(q.Jobs)
		}
		if res.Code == "" {
			r.answered[key] = res
		}
		return res
	}
}

func (r *Runner) emit(job JobState, q stepcall.Request) wire.StepResult {
	for _, prefix := range reserved {
		if strings.HasPrefix(q.Name, prefix) {
			return stepcall.Refused("reserved_name", "names that begin with %q are the orchestrator's own", prefix)
		}
	}
	e := Emitted{ID: ci.NewID(), Job: job.Display, Name: q.Name, Payload: string(q.Payload), TargetRepos: q.TargetRepos}
	if e.Payload == "" {
		e.Payload = "{}"
	}
	if r.o.Event != nil {
		r.o.Event(e)
	}
	return wire.StepResult{ID: e.ID}
}

// addJobs plans the jobs of a text into the run. The caller holds mu.
func (r *Runner) addJobs(text string) wire.StepResult {
	jobs, problems := workflow.CompileJobs("jobs", []byte(text))
	if workflow.HasErrors(problems) {
		var lines []string
		for _, p := range problems {
			if !p.Warning {
				lines = append(lines, p.Error())
			}
		}
		return stepcall.Refused(wire.StepInvalid, "%s", strings.Join(lines, "\n"))
	}
	f := r.o.Facts
	w := *f.Workflow
	w.Jobs = jobs
	f.Workflow = &w
	have := make([]plan.Existing, len(r.jobs))
	for i, j := range r.jobs {
		have[i] = plan.Existing{Index: i, Name: j.Name, Base: j.Def.Name}
	}
	p, err := plan.Add(f, have, ci.NewID)
	if err != nil {
		return stepcall.Refused(wire.StepInvalid, "%s", err)
	}
	r.join(p)
	names, _ := p.Names()
	r.wake.Signal()
	return wire.StepResult{Names: names}
}

// join appends the jobs of an addition, whose edges count in the whole run.
func (r *Runner) join(p plan.Plan) {
	first := len(r.jobs)
	r.jobs = append(r.jobs, units(plan.Plan{Jobs: p.Jobs}, r.o.Facts)...)
	for _, e := range p.Edges {
		set := plan.RunOnSet(e.RunOn)
		for i := e.Job.From; i < e.Job.To; i++ {
			for n := e.Needs.From; n < e.Needs.To; n++ {
				r.jobs[i].ups = append(r.jobs[i].ups, upstream{n, set})
				r.jobs[i].Needs = append(r.jobs[i].Needs, r.jobs[n].ID)
			}
		}
	}
	level(r.jobs)
	for _, j := range r.jobs[first:] {
		r.ups[j.ID] = j.Needs
	}
}
