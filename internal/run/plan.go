package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// New is what a run is made from: one workflow that matched one event.
type New struct {
	OrgID, RoutingKey, Repo string
	Workflow                lock.Workflow
	Event                   ci.Event
	TriggerEvent            string // WF-20
	Decision                workflow.Decision
	DeliveryRow             string // deliveries.id, '' for none
	DedupKey                string // '<deliveries.id>:<workflow>'; '' never conflicts
	Inputs                  map[string]any
	Actor                   string
	TrustTier               ci.TrustTier
	ParentRunID             string
	OriginalRunID           string
	ChainDepth              int
	Attempt                 int64 // 0 is 1; a rerun counts on
}

// Planned is a run with its jobs and edges before it has rows. It is a value: inserting it twice under one DedupKey makes
// one run.
type Planned struct {
	RunID    string
	Title    string
	Warnings []string
	new      New
	lockJSON string
	jobs     []plannedJob
	edges    []plannedEdge
	failure  *initFailure // of the whole run: it has no jobs then
}

// Bounds of one run. The compiler bounds a file; a matrix multiplies what is in it, and edges multiply matrices.
const (
	maxRunJobs  = 4096
	maxRunEdges = 100_000
)

type plannedJob struct {
	id, name, display string
	job               *lock.Job
	jobJSON           string
	matrix            string // JSON object
	index, total      int    // in its fan-out
	continueOnError   bool
	failure           *initFailure // it fails as soon as it exists
	copied            *copiedResult
}

// plannedEdge is one need between two jobs of the workflow: every child of the one waits for every child of the other (NEED-1).
type plannedEdge struct {
	job, needs span
	runOn      []ci.JobStatus
}

// span is the children of one job: they stand side by side in Planned.jobs, and so in the run.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// copiedResult is how a job ended in the run that this one repeats, when it is not run again.
type copiedResult struct {
	status              ci.JobStatus
	allowed             bool
	outputs             string
	startedAt, finished int64
}

// initFailure ends a job before an agent has seen it (PIPE-16).
type initFailure struct{ category, message string }

// Categories of initFailure (PIPE-16, D9).
const (
	initMatrix    = "matrix_expansion"
	initEval      = "dynamic_eval"
	initLock      = "lock_resolution"
	initContainer = "container_unsupported"
	initNoAgent   = "no_agent"
	initQueueFull = "queue_full"
)

// runOnAlways is every terminal status: the edge of a job whose condition asks for statuses itself (D8).
var runOnAlways = ci.TerminalJobStatuses

// Plan works out the jobs, the matrix children and the edges of a run. It never fails: what is wrong becomes an init failure
// of the job it concerns, so that people see it where it belongs.
func (s *Service) Plan(n New) Planned {
	p := Planned{RunID: s.env.NewID(), new: n, Warnings: workflow.Warnings(&n.Workflow), lockJSON: mustJSON(n.Workflow)}
	f := facts{server: s.settings.ServerURL, run: runFacts(p), event: n.Event, inputs: n.Inputs, workflow: &n.Workflow}
	p.Title = title(n, f)
	byBase := map[string]span{}
	names := map[string]bool{}
	for i := range n.Workflow.Jobs {
		j := &n.Workflow.Jobs[i]
		children := s.planJob(j, f)
		from := len(p.jobs)
		for _, c := range children {
			c.name = unusedName(names, c.name)
			if _, twice := byBase[j.Name]; twice {
				c.failure = &initFailure{initLock, fmt.Sprintf("there are two jobs named %q", j.Name)}
			}
			p.jobs = append(p.jobs, c)
		}
		if _, twice := byBase[j.Name]; !twice {
			byBase[j.Name] = span{from, len(p.jobs)}
		}
		if len(p.jobs) > maxRunJobs {
			return p.refuse(fmt.Sprintf("the workflow makes more than %d jobs; split it", maxRunJobs))
		}
	}
	if edges := p.planEdges(byBase); edges > maxRunEdges {
		return p.refuse(fmt.Sprintf("the workflow makes more than %d needs between its jobs: two large matrices that need each other multiply; put a job between them", maxRunEdges))
	}
	return p
}

// refuse makes the plan of a run that fails as a whole.
func (p Planned) refuse(message string) Planned {
	p.jobs, p.edges, p.failure = nil, nil, &initFailure{initMatrix, message}
	return p
}

// planJob expands one job into its children: one without a matrix, one that carries the failure if it cannot be expanded.
func (s *Service) planJob(j *lock.Job, f facts) []plannedJob {
	children, err := workflow.Expand(j, workflow.ExpandContext{Contexts: f.contexts()})
	if err != nil {
		bare := *j
		bare.Matrix = nil
		return []plannedJob{{
			id: s.env.NewID(), name: j.Name, display: j.Name, job: j, jobJSON: mustJSON(bare), matrix: "{}", total: 1,
			failure: &initFailure{initMatrix, fmt.Sprintf("the matrix of %q: %s", j.Name, strings.TrimPrefix(err.Error(), workflow.ErrMatrix.Error()+": "))},
		}}
	}
	bare := *j
	bare.Matrix = nil // the children carry their values, not the whole matrix 256 times
	text := mustJSON(bare)
	out := make([]plannedJob, len(children))
	for i, c := range children {
		planned := plannedJob{
			id: s.env.NewID(), name: c.Name, display: c.DisplayName, job: j, jobJSON: text, matrix: "{}", index: c.Index, total: c.Total,
		}
		if len(c.Matrix) > 0 {
			planned.matrix = string(c.Matrix)
		}
		if planned.display == "" {
			planned.display = c.Name
		}
		planned.settleContinue(f)
		out[i] = planned
	}
	return out
}

// settleContinue evaluates continue-on-error, which is settled at run creation (D8).
func (c *plannedJob) settleContinue(f facts) {
	switch src := c.job.ContinueOnError; src {
	case "", "false":
	case "true":
		c.continueOnError = true
	default:
		f.job, f.matrix = c.job, json.RawMessage(c.matrix)
		v, err := expr.Eval(src, expr.Env{Contexts: f.contexts()})
		if err != nil {
			c.failure = &initFailure{initEval, fmt.Sprintf("continue-on-error of %q: %v", c.name, err)}
			return
		}
		c.continueOnError = expr.Truthy(v)
	}
}

// planEdges plans the needs and returns how many rows they will be. What would never be satisfied is a failure of the job
// instead.
func (p *Planned) planEdges(byBase map[string]span) (rows int) {
	circle := inCircle(p.new.Workflow.Jobs)
	done := map[string]bool{}
	for i := range p.new.Workflow.Jobs {
		j := &p.new.Workflow.Jobs[i]
		if done[j.Name] { // the second job of one name has failed already
			continue
		}
		done[j.Name] = true
		edges, failure := p.jobEdges(j, byBase, circle)
		if failure != nil {
			p.fail(byBase[j.Name], failure)
			continue
		}
		p.edges = append(p.edges, edges...)
		for _, e := range edges {
			rows += e.job.len() * e.needs.len()
		}
	}
	return rows
}

func (p *Planned) jobEdges(j *lock.Job, byBase map[string]span, circle map[string]bool) ([]plannedEdge, *initFailure) {
	if circle[j.Name] {
		return nil, &initFailure{initLock, fmt.Sprintf("%q needs itself, through %s", j.Name, circleText(p.new.Workflow.Jobs, circle, j.Name))}
	}
	var edges []plannedEdge
	widen := expr.UsesStatus(j.If)
	for _, need := range mergeNeeds(j.Needs) {
		ups, ok := byBase[need.Job]
		if !ok {
			return nil, &initFailure{initLock, fmt.Sprintf("%q needs %q, which does not exist", j.Name, need.Job)}
		}
		runOn := need.RunOn
		if widen {
			runOn = runOnAlways
		}
		edges = append(edges, plannedEdge{job: byBase[j.Name], needs: ups, runOn: runOn})
	}
	return edges, nil
}

// fail makes the jobs of a span fail as soon as they exist; an earlier reason stays.
func (p *Planned) fail(s span, why *initFailure) {
	for i := s.from; i < s.to; i++ {
		if p.jobs[i].failure == nil {
			p.jobs[i].failure = why
		}
	}
}

// mergeNeeds joins entries that name the same job: an edge exists once per pair.
func mergeNeeds(needs []lock.Need) []lock.Need {
	out := make([]lock.Need, 0, len(needs))
	for _, n := range needs {
		if len(n.RunOn) == 0 {
			n.RunOn = []ci.JobStatus{ci.JobSuccess}
		}
		at := slices.IndexFunc(out, func(o lock.Need) bool { return o.Job == n.Job })
		if at < 0 {
			out = append(out, n)
			continue
		}
		out[at].RunOn = slices.Concat(out[at].RunOn, n.RunOn)
	}
	return out
}

func runOnText(set []ci.JobStatus) string {
	var b strings.Builder
	b.WriteByte(',')
	for _, s := range slices.Compact(slices.Sorted(slices.Values(set))) {
		b.WriteString(string(s))
		b.WriteByte(',')
	}
	return b.String()
}

func title(n New, f facts) string {
	t := n.Event.Title
	if n.Workflow.RunName != "" {
		if text, err := expr.Interpolate(n.Workflow.RunName, expr.Env{Contexts: f.contexts()}); err == nil && strings.TrimSpace(text) != "" {
			t = text
		}
	}
	if strings.TrimSpace(t) == "" {
		t = n.Workflow.Name
	}
	t, _, _ = strings.Cut(strings.TrimSpace(t), "\n")
	return clip(t, 300)
}

func unusedName(used map[string]bool, name string) string {
	name = clip(name, 400)
	free := name
	for i := 2; used[free]; i++ {
		free = fmt.Sprintf("%s #%d", name, i)
	}
	used[free] = true
	return free
}

// clip cuts text at about n bytes, at a rune's border.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // our own structs always encode
	}
	return string(b)
}
