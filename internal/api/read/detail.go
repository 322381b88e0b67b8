package read

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Run is one run with its jobs, needs, levels and steps, and why each job is where it is. ref is what RunID accepts.
func (r *Reads) Run(ctx context.Context, s Scope, ref string) (client.RunDetail, error) {
	var f runFacts
	var checks *client.Checks
	err := r.view(ctx, func(q *db.Queries) error {
		id, err := runID(ctx, q, s, ref)
		if err != nil {
			return err
		}
		if f, err = readRun(ctx, q, s, id); err != nil {
			return err
		}
		checks, err = readChecks(ctx, q, id)
		return err
	})
	if err != nil {
		return client.RunDetail{}, err
	}
	now := r.now()
	out := client.RunDetail{
		Run: r.run(f.run, now), MatchedTrigger: rawJSON(f.extra.MatchedTrigger), OriginalRunID: f.extra.OriginalRunID.String,
		TrustTier: f.extra.TrustTier, RunAttempt: f.extra.RunAttempt, Checks: checks,
	}
	_ = json.Unmarshal([]byte(f.extra.Inputs), &out.Inputs)
	out.Jobs = f.jobList(now)
	return out, nil
}

// RunHead is one run without its jobs.
func (r *Reads) RunHead(ctx context.Context, s Scope, ref string) (client.Run, error) {
	var row db.ReadRunRow
	err := r.view(ctx, func(q *db.Queries) error {
		id, err := runID(ctx, q, s, ref)
		if err != nil {
			return err
		}
		if row, err = q.ReadRun(ctx, id, s.OrgID); err != nil {
			return notFound(err, fmt.Sprintf("run %q", id))
		}
		return s.check(row.RoutingKey, "this run")
	})
	if err != nil {
		return client.Run{}, err
	}
	return r.run(row, r.now()), nil
}

// Jobs are the jobs of a run, with their steps when asked for.
func (r *Reads) Jobs(ctx context.Context, s Scope, ref string, steps bool) (client.JobList, error) {
	d, err := r.Run(ctx, s, ref)
	if err != nil {
		return client.JobList{}, err
	}
	if !steps {
		for i := range d.Jobs {
			d.Jobs[i].Steps = nil
		}
	}
	return client.JobList{Jobs: d.Jobs}, nil
}

// runFacts is all rows of one run.
type runFacts struct {
	run     db.ReadRunRow
	extra   db.ReadRunExtraRow
	jobs    []db.ReadRunJobsRow
	needs   map[string][]edge // by job
	reasons map[string]shapeReasons
	holds   holds
	rows    []db.ReadRunStepsRow
}

// edge is one upstream job.
type edge struct{ id, runOn string }

func readRun(ctx context.Context, q *db.Queries, s Scope, id string) (f runFacts, err error) {
	if f.run, err = q.ReadRun(ctx, id, s.OrgID); err != nil {
		return f, notFound(err, fmt.Sprintf("run %q", id))
	}
	if err = s.check(f.run.RoutingKey, "this run"); err != nil {
		return f, err
	}
	if f.extra, err = q.ReadRunExtra(ctx, id); err != nil {
		return f, err
	}
	if f.jobs, err = q.ReadRunJobs(ctx, id); err != nil {
		return f, err
	}
	needs, err := q.ReadRunNeeds(ctx, id)
	if err != nil {
		return f, err
	}
	f.needs = map[string][]edge{}
	for _, n := range needs {
		f.needs[n.JobID] = append(f.needs[n.JobID], edge{n.NeedsID, n.RunOn})
	}
	if f.rows, err = q.ReadRunSteps(ctx, id); err != nil {
		return f, err
	}
	if !ci.RunStatus(f.run.Status).Terminal() {
		if f.holds, err = readHolds(ctx, q, id, f.jobs); err != nil {
			return f, err
		}
	}
	reasons, err := q.ReadRunShapeReasons(ctx, id)
	if err != nil {
		return f, err
	}
	f.reasons = map[string]shapeReasons{}
	for _, x := range reasons {
		f.reasons[x.Shape] = parseReasons(x.Reasons, x.UpdatedAt)
	}
	return f, nil
}

func (f runFacts) jobList(now int64) []client.Job {
	steps := map[string][]client.Step{}
	for _, x := range f.rows {
		steps[x.JobID] = append(steps[x.JobID], stepOf(x, now))
	}
	byID := map[string]db.ReadRunJobsRow{}
	for _, j := range f.jobs {
		byID[j.ID] = j
	}
	levels := levels(f.needs)
	out := make([]client.Job, len(f.jobs))
	for i, x := range f.jobs {
		j := jobOf(x, now)
		j.Steps = steps[x.ID]
		j.Level = levels(x.ID)
		var up []upstream
		for _, e := range f.needs[x.ID] {
			u := byID[e.id]
			j.Needs = append(j.Needs, e.id)
			up = append(up, upstream{id: e.id, name: u.Name, status: ci.JobStatus(u.Status), allowed: u.AllowedFailure, runOn: e.runOn})
		}
		w := whyOf(whyFacts{job: x, up: up, steps: j.Steps, reasons: f.reasons[x.Shape], holds: f.holds, run: f.run, now: now})
		if !quiet(ci.JobStatus(x.Status)) {
			j.Why = w.Headline
		}
		out[i] = j
	}
	return out
}

// quiet reports whether a list says nothing about a job in this status: it does what everybody expects.
func quiet(s ci.JobStatus) bool { return s == ci.JobSuccess || s == ci.JobRunning }

// levels returns a function that gives the needs-depth of a job: 0 for roots. Edges form no cycle (WF-5); should a corrupt row
// make one, the depth of its members is bounded by the recursion guard.
func levels(needs map[string][]edge) func(string) int {
	memo := map[string]int{}
	var depth func(string) int
	depth = func(id string) int {
		if d, ok := memo[id]; ok {
			return d
		}
		memo[id] = 0
		d := 0
		for _, e := range needs[id] {
			d = max(d, depth(e.id)+1)
		}
		memo[id] = d
		return d
	}
	return depth
}

func jobOf(x db.ReadRunJobsRow, now int64) client.Job {
	d := ci.JobStatus(x.Status).Display(x.AllowedFailure)
	j := client.Job{
		ID: x.ID, RunID: x.RunID, Name: x.Name, BaseName: x.BaseName, DisplayName: x.DisplayName, Status: x.Status,
		Display: client.Status{Status: x.Status, Word: d.Word, Class: d.Class}, Labels: stringList(x.Labels),
		ExcludeLabels: stringList(x.ExcludeLabels), Needs: []string{}, AllowedFailure: x.AllowedFailure,
		AgentID: x.AgentID.String, Node: x.AgentNode.String, Scaler: x.AgentScaler.String, Attempt: int(x.Attempt),
		CreatedAt: client.TimeOf(x.CreatedAt), QueuedAt: timePtr(x.QueuedAt), StartedAt: timePtr(x.StartedAt),
		FinishedAt: timePtr(x.FinishedAt), DurationMs: span(x.StartedAt, x.FinishedAt, now), Error: x.Error,
		InitFailure: x.InitFailure, KillMethod: x.KillMethod, LogBytes: x.LogBytes,
		CPUMilli: x.CpuMilli, MemBytes: x.MemBytes,
	}
	if x.AgentID.Valid {
		j.AssignedAt = timePtr(x.AssignedAt)
	}
	if j.DisplayName == "" {
		j.DisplayName = j.Name
	}
	started := x.StartedAt
	if !started.Valid {
		started = x.FinishedAt
	}
	j.WaitMs = span(x.QueuedAt, started, now)
	_ = json.Unmarshal([]byte(x.Matrix), &j.Matrix)
	_ = json.Unmarshal([]byte(x.Outputs), &j.Outputs)
	return j
}

func stepOf(x db.ReadRunStepsRow, now int64) client.Step {
	d := ci.StepStatus(x.Status).Display()
	if x.Allowed && x.Status == string(ci.StepFailed) {
		d = ci.Display{Word: "failed, allowed", Class: "allowed"}
	}
	s := client.Step{
		Index: int(x.Idx), Name: x.Name, Status: x.Status, Display: client.Status{Status: x.Status, Word: d.Word, Class: d.Class},
		StartedAt: timePtr(x.StartedAt), FinishedAt: timePtr(x.FinishedAt), DurationMs: span(x.StartedAt, x.FinishedAt, now),
		Error: x.Error, Allowed: x.Allowed, Retries: int(x.Retries),
	}
	if x.ExitCode.Valid {
		code := int(x.ExitCode.Int64)
		s.ExitCode = &code
	}
	return s
}

// Job is one job with its steps; steps that have not begun are taken from its plan. ref is a job id, the beginning of one, or
// <run>/<job name>.
func (r *Reads) Job(ctx context.Context, s Scope, ref string) (client.Job, error) {
	f, err := r.jobFacts(ctx, s, ref)
	if err != nil {
		return client.Job{}, err
	}
	now := r.now()
	j := jobOf(f.why.job, now)
	for _, u := range f.why.up {
		j.Needs = append(j.Needs, u.id)
	}
	j.Level = f.level
	j.Steps = planned(f.why.steps, f.plan, ci.JobStatus(j.Status))
	if !quiet(ci.JobStatus(j.Status)) {
		j.Why = whyOf(f.why).Headline
	}
	return j, nil
}

// Why says why a job is where it is.
func (r *Reads) Why(ctx context.Context, s Scope, ref string) (client.Why, error) {
	f, err := r.jobFacts(ctx, s, ref)
	if err != nil {
		return client.Why{}, err
	}
	return whyOf(f.why), nil
}

type jobFacts struct {
	why   whyFacts
	plan  lock.Job
	level int
}

func (r *Reads) jobFacts(ctx context.Context, s Scope, ref string) (f jobFacts, err error) {
	now := r.now()
	err = r.view(ctx, func(q *db.Queries) error {
		f = jobFacts{}
		id, err := jobID(ctx, q, s, ref)
		if err != nil {
			return err
		}
		f.why, err = readWhy(ctx, q, s, id)
		if err != nil {
			return err
		}
		needs, err := q.ReadRunNeeds(ctx, f.why.job.RunID)
		if err != nil {
			return err
		}
		edges := map[string][]edge{}
		for _, n := range needs {
			edges[n.JobID] = append(edges[n.JobID], edge{id: n.NeedsID})
		}
		f.level = levels(edges)(id)
		plan, err := q.ReadJobPlan(ctx, id)
		if err == nil {
			_ = json.Unmarshal([]byte(plan), &f.plan)
		}
		return err
	})
	f.why.now = now
	return f, err
}

func readWhy(ctx context.Context, q *db.Queries, s Scope, id string) (f whyFacts, err error) {
	row, err := q.ReadJobRow(ctx, id, s.OrgID)
	if err != nil {
		return f, notFound(err, fmt.Sprintf("job %q", id))
	}
	f.job = db.ReadRunJobsRow(row)
	if f.run, err = q.ReadRun(ctx, row.RunID, s.OrgID); err != nil {
		return f, err
	}
	if err = s.check(f.run.RoutingKey, "this job"); err != nil {
		return f, err
	}
	needs, err := q.ReadJobNeeds(ctx, id)
	if err != nil {
		return f, err
	}
	for _, n := range needs {
		f.up = append(f.up, upstream{n.NeedsID, n.Name, ci.JobStatus(n.Status), n.AllowedFailure, n.RunOn})
	}
	steps, err := q.ReadJobSteps(ctx, id)
	if err != nil {
		return f, err
	}
	for _, x := range steps {
		f.steps = append(f.steps, stepOf(db.ReadRunStepsRow(x), 0))
	}
	if f.holds, err = holdsOf(ctx, q, f.job); err != nil {
		return f, err
	}
	if row.Status != string(ci.JobQueued) {
		return f, nil
	}
	if x, err := q.ReadShapeReasons(ctx, row.Shape); err == nil {
		f.reasons = parseReasons(x.Reasons, x.UpdatedAt)
	}
	return f, nil
}

// planned appends the steps of the plan that nobody has reported yet.
func planned(steps []client.Step, plan lock.Job, status ci.JobStatus) []client.Step {
	if status.Terminal() {
		return steps
	}
	seen := map[int]bool{}
	for _, s := range steps {
		seen[s.Index] = true
	}
	d := ci.StepPending.Display()
	for i, p := range plan.Steps {
		if seen[i+1] {
			continue
		}
		steps = append(steps, client.Step{
			Index: i + 1, Name: p.Label(), Status: string(ci.StepPending),
			Display: client.Status{Status: string(ci.StepPending), Word: d.Word, Class: d.Class},
		})
	}
	return steps
}

func stringList(s string) []string {
	out := []string{}
	_ = json.Unmarshal([]byte(s), &out)
	return out
}

func rawJSON(s string) json.RawMessage {
	if s == "" || !json.Valid([]byte(s)) {
		return nil
	}
	return json.RawMessage(s)
}
