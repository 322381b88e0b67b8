package local

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/workdir"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

// Options say what to run and how. All fields without a default must be set.
type Options struct {
	Tree       Tree
	Mode       Mode // what of the tree jobs get
	Plan       plan.Plan
	Facts      plan.Facts        // of the run
	Secrets    map[string]string // for ${{ secrets.X }}; masked in logs and outputs
	Env        map[string]string // over the env of workflow and jobs
	Jobs       int               // at most at once; 0 is the number of CPUs
	Grace      time.Duration     // of a step that is told to stop; 0 is the job's own
	Version    string
	Environ    []string // what steps inherit from the machine
	Work       *workdir.Dir
	Now        func() time.Time
	Log        *slog.Logger
	Executable string        // what "kici" is inside a step; "" puts none on their PATH
	Event      func(Emitted) // an event that a step emitted; must not block; nil for none
	Line       func(Line)    // every line of every log; called by several goroutines, one at a time a step; nil for none
}

// Runner is one run.
type Runner struct {
	o     Options
	slots int
	wake  *service.Wake
	work  sync.WaitGroup
	job   func(i int) // runs one job and reports its end; perform, but for tests

	mu         sync.Mutex
	jobs       []unit
	ups        map[string][]string        // ids that a job needs, for plan.Word
	answered   map[string]wire.StepResult // by job and request id
	running    int
	startedAt  int64
	cancelling string // why, "" as long as nobody has asked
	forced     bool
	reason     string             // of the first failure
	told       []func(force bool) // cancels of jobs, to be called without mu
}

// New prepares a run; Run must be called.
func New(o Options) *Runner {
	r := &Runner{o: o, slots: o.Jobs, wake: service.NewWake(), jobs: units(o.Plan, o.Facts), ups: map[string][]string{}, answered: map[string]wire.StepResult{}}
	if r.slots <= 0 {
		r.slots = runtime.NumCPU()
	}
	for _, j := range r.jobs {
		r.ups[j.ID] = j.Needs
	}
	r.job = r.perform
	return r
}

// Cancel stops the run: jobs that have not started are cancelled, those that run get their grace. With force everything is
// killed at once. It may be called at any time, and again to force.
func (r *Runner) Cancel(force bool) { r.cancel(force, "the run was cancelled") }

func (r *Runner) cancel(force bool, why string) {
	r.mu.Lock()
	if r.cancelling == "" {
		r.cancelling = why
	}
	r.forced = r.forced || force
	for i := range r.jobs {
		if c := r.jobs[i].cancel; c != nil {
			r.told = append(r.told, c)
			r.jobs[i].Status = ci.JobCancelling
		}
	}
	r.mu.Unlock()
	r.tell()
	r.wake.Signal()
}

// tell ends jobs that were decided to be ended. Their executors report while they do, so mu is free meanwhile.
func (r *Runner) tell() {
	r.mu.Lock()
	told, force := r.told, r.forced
	r.told = nil
	r.mu.Unlock()
	for _, cancel := range told {
		cancel(force)
	}
}

// Run runs everything to its end and returns how it ended. changed is told of every change, by this goroutine; it may be slow,
// and then sees fewer states.
func (r *Runner) Run(changed func(State)) State {
	r.begin()
	if d := time.Duration(r.o.Facts.Workflow.TimeoutMs) * time.Millisecond; d > 0 {
		t := time.AfterFunc(d, func() { r.cancel(false, fmt.Sprintf("the run exceeded its timeout of %s", d)) })
		defer t.Stop()
	}
	for {
		r.mu.Lock()
		r.settle()
		starts := r.pick()
		s := r.state()
		r.mu.Unlock()
		r.tell()
		for _, i := range starts {
			r.work.Go(func() { r.job(i) })
		}
		changed(s)
		if s.Status.Terminal() {
			r.work.Wait()
			return s
		}
		<-r.wake.C()
	}
}

// State is the run as it is now.
func (r *Runner) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state()
}

func (r *Runner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startedAt = r.now()
	for i := range r.jobs {
		if f := r.jobs[i].Failure; f != nil {
			r.fail(i, f.Category, f.Message)
		}
	}
}

func (r *Runner) now() int64 { return r.o.Now().UnixMilli() }

// settle decides about jobs that wait until nothing moves. The caller holds mu.
func (r *Runner) settle() {
	for moved := true; moved; {
		moved = false
		for i := range r.jobs {
			if j := &r.jobs[i]; j.Status == ci.JobPending || j.ready && r.cancelling != "" {
				moved = r.decide(i) || moved
			}
		}
	}
}

// decide is NEED-2 and NEED-4 for one job that waits; it reports whether its status changed.
func (r *Runner) decide(i int) bool {
	j := &r.jobs[i]
	if r.cancelling != "" {
		j.end(ci.JobCancelled, r.cancelling, r.now())
		return true
	}
	needs := r.needs(j)
	switch plan.Judge(needs) {
	case plan.NeedsRefused:
		j.end(ci.JobSkipped, "a job that it needs did not end as it asks", r.now())
	case plan.NeedsMet:
		r.evaluate(i, needs)
	default:
		j.Why = r.waitsFor(j)
		return false
	}
	return true
}

func (r *Runner) needs(j *unit) []plan.Need {
	out := make([]plan.Need, len(j.ups))
	for k, u := range j.ups {
		up := &r.jobs[u.index]
		out[k] = plan.Need{Name: up.Def.Name, RunOn: u.runOn, Status: up.Status, Allowed: up.Allowed, Outputs: up.outputs}
	}
	return out
}

func (r *Runner) waitsFor(j *unit) string {
	for _, u := range j.ups {
		if up := &r.jobs[u.index]; !up.Status.Terminal() {
			return "waits for " + up.Display
		}
	}
	return ""
}

// evaluate does what the condition and the selector of a ready job say.
func (r *Runner) evaluate(i int, needs []plan.Need) {
	j := &r.jobs[i]
	j.facts.Needs = plan.NeedsContext(needs)
	j.facts.Sandbox = plan.Sandbox{Capabilities: ci.Capabilities, HostNetwork: true} // there is none here to ask things of
	if len(needs) > 0 {
		j.facts.Status = r.word(j, needs)
	}
	out := j.facts.Evaluate()
	switch {
	case out.Failure != nil:
		r.fail(i, out.Failure.Category, out.Failure.Message)
	case out.Skip != "":
		j.end(ci.JobSkipped, out.Skip, r.now())
	case out.Image != "":
		r.fail(i, plan.InitContainer, fmt.Sprintf("this job asks for the image %s, and jobs run here as processes of this machine: push it to a server with a scaler of type container, or remove container: from the job", out.Image))
	default:
		j.Status, j.Labels, j.ready, j.Why = ci.JobQueued, out.Labels, true, waitsForPlace
	}
}

func (r *Runner) word(j *unit, needs []plan.Need) string {
	if plan.AllSucceeded(needs) {
		return "success"
	}
	results := make(map[string]string, len(r.jobs))
	for k := range r.jobs {
		results[r.jobs[k].ID] = r.jobs[k].Status.Result(r.jobs[k].Allowed)
	}
	return plan.Word(j.ID, r.ups, results)
}

func (r *Runner) fail(i int, category, message string) {
	j := &r.jobs[i]
	j.InitFailure = category
	j.end(ci.JobFailed, message, r.now())
	r.note(j)
	r.failFast(i)
}

// failFast ends the other jobs of a matrix after a failure that is not allowed: what runs or is queued is cancelled, what is held or pending is skipped
// (NEED-9). The caller holds mu and calls tell.
func (r *Runner) failFast(failed int) {
	f := &r.jobs[failed]
	if !f.Def.FailFast || !f.Status.Failure() || f.Allowed {
		return
	}
	why := f.Name + " failed, and fail-fast is on"
	for i := range r.jobs {
		j := &r.jobs[i]
		switch {
		case j.Def.Name != f.Def.Name:
		case j.Status == ci.JobPending || j.Status == ci.JobHeld:
			j.end(ci.JobSkipped, why, r.now())
		case j.ready:
			j.end(ci.JobCancelled, why, r.now())
		case j.Status == ci.JobRunning && j.stopped == "":
			j.stopped = why
			if j.cancel != nil { // it has not come so far otherwise, and looks before it does
				j.Status = ci.JobCancelling
				r.told = append(r.told, j.cancel)
			}
		}
	}
}

// note remembers why the run fails; the first job that may not fail gives the reason.
func (r *Runner) note(j *unit) {
	if r.reason == "" && j.Status.Failure() && !j.Allowed {
		r.reason = j.Name + ": " + cmp.Or(j.Why, string(j.Status))
	}
}

const waitsForPlace = "waits for a free place"

// pick takes the jobs that may start now, in the order of the workflow, and of a matrix no more than its max-parallel allows (NEED-9).
// The caller holds mu.
func (r *Runner) pick() (starts []int) {
	going := map[string]int{} // by base job
	for _, j := range r.jobs {
		if j.Status == ci.JobRunning || j.Status == ci.JobCancelling {
			going[j.Def.Name]++
		}
	}
	for i := range r.jobs {
		j := &r.jobs[i]
		switch full := j.Def.MaxParallel > 0 && going[j.Def.Name] >= j.Def.MaxParallel; {
		case !j.ready:
		case full:
			j.Status, j.Why = ci.JobHeld, fmt.Sprintf("waits for others of its matrix: max-parallel is %d", j.Def.MaxParallel)
		case r.running >= r.slots:
			j.Status, j.Why = ci.JobQueued, waitsForPlace
		default:
			j.ready, j.Status, j.Why, j.StartedAt = false, ci.JobRunning, "", r.now()
			going[j.Def.Name]++
			r.running++
			starts = append(starts, i)
		}
	}
	return starts
}

// ended takes the result of a job that ran.
func (r *Runner) ended(i int, status ci.JobStatus, why string, apply func(*unit)) {
	r.mu.Lock()
	j := &r.jobs[i]
	if apply != nil {
		apply(j)
	}
	switch {
	case why == "" && status.Failure():
		why = failedStep(j.Steps)
	case status == ci.JobCancelled && j.stopped != "":
		why = j.stopped
	}
	j.end(status, why, r.now())
	r.note(j)
	r.failFast(i)
	r.running--
	r.mu.Unlock()
	r.tell()
	r.wake.Signal()
}

func failedStep(steps []wire.StepStatus) string {
	for _, s := range steps {
		if s.Status == string(ci.StepFailed) && !s.Allowed {
			text := fmt.Sprintf("step %q failed", s.Name)
			if s.ExitCode != nil {
				text += fmt.Sprintf(" with exit code %d", *s.ExitCode)
			}
			return text
		}
	}
	return ""
}

// state copies what there is. The caller holds mu.
func (r *Runner) state() State {
	s := State{ID: r.o.Facts.Run.ID, Title: r.o.Plan.Title, Status: ci.RunRunning, StartedAt: r.startedAt}
	outcomes := make([]ci.JobOutcome, len(r.jobs))
	for i := range r.jobs {
		j := r.jobs[i].JobState
		j.Steps = slices.Clone(j.Steps)
		s.Jobs = append(s.Jobs, j)
		outcomes[i] = ci.JobOutcome{Status: j.Status, AllowedFailure: j.Allowed}
	}
	switch verdict, over := ci.Verdict(outcomes); {
	case r.o.Plan.Failure != nil:
		s.Status, s.Reason = ci.RunFailed, r.o.Plan.Failure.Message
	case len(r.jobs) == 0:
		s.Status, s.Reason = ci.RunFailed, "the workflow has no jobs"
	case !over && r.cancelling != "":
		s.Status, s.Reason = ci.RunCancelling, r.cancelling
	case !over:
	case r.cancelling != "":
		s.Status, s.Reason = ci.RunCancelled, r.cancelling
	default:
		s.Status = verdict
		if verdict == ci.RunFailed {
			s.Reason = r.reason
		}
	}
	if s.Status.Terminal() {
		s.FinishedAt = r.now()
	}
	return s
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // contexts are made of JSON
	}
	return b
}
