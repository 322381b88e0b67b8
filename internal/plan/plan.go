package plan

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

// Plan is the jobs and edges of a run before anything of it exists.
type Plan struct {
	Title    string
	Warnings []string
	Jobs     []Job
	Edges    []Edge
	Failure  *Failure // of the whole run: it has no jobs then
	Group    *Group   // that the whole run must be let into; nil for none
}

// Bounds of one run. The compiler bounds a file; a matrix multiplies what is in it, and edges multiply matrices.
const (
	maxRunJobs  = 4096
	maxRunEdges = 100_000
)

// Job is one job of a run: a job of the workflow, or one child of its matrix.
type Job struct {
	ID, Name, Display string
	Def               *lock.Job
	Text              string // Def as JSON without its matrix
	Matrix            string // JSON object
	Index, Total      int    // in its fan-out
	ContinueOnError   bool
	Failure           *Failure // it fails as soon as it exists
}

// Edge is one need between two jobs of the workflow: every child of the one waits for every child of the other (NEED-1).
type Edge struct {
	Job, Needs Span
	RunOn      []ci.JobStatus
}

// Span is the children of one job: they stand side by side in Plan.Jobs.
type Span struct{ From, To int }

// Len is how many they are.
func (s Span) Len() int { return s.To - s.From }

// Failure ends a job before an agent has seen it (PIPE-16).
type Failure struct{ Category, Message string }

// Categories of Failure (PIPE-16, D9).
const (
	InitMatrix    = "matrix_expansion"
	InitEval      = "dynamic_eval"
	InitLock      = "lock_resolution"
	InitSandbox   = "sandbox_denied"
	InitContainer = "container_unsupported" // `kici run local` runs no images
)

// Make works out the jobs, the matrix children and the edges of a run. It never fails: what is wrong becomes a failure of the
// job it concerns, so that people see it where it belongs. newID names the jobs.
func Make(f Facts, newID func() string) Plan {
	p := Plan{Title: Title(f)}
	var failure *Failure
	if p.Group, failure = f.group(f.Workflow.Concurrency); failure != nil {
		return p.Refuse(*failure)
	}
	byBase := map[string]Span{}
	names := map[string]bool{}
	for i := range f.Workflow.Jobs {
		j := &f.Workflow.Jobs[i]
		from := len(p.Jobs)
		for _, c := range planJob(j, f, newID) {
			c.Name = unusedName(names, c.Name)
			if _, twice := byBase[j.Name]; twice {
				c.Failure = &Failure{InitLock, fmt.Sprintf("there are two jobs named %q", j.Name)}
			}
			p.Jobs = append(p.Jobs, c)
		}
		if _, twice := byBase[j.Name]; !twice {
			byBase[j.Name] = Span{from, len(p.Jobs)}
		}
		if len(p.Jobs) > maxRunJobs {
			return p.Refuse(Failure{InitMatrix, fmt.Sprintf("the workflow makes more than %d jobs; split it", maxRunJobs)})
		}
	}
	if edges := p.planEdges(f.Workflow.Jobs, byBase); edges > maxRunEdges {
		return p.Refuse(Failure{InitMatrix, fmt.Sprintf("the workflow makes more than %d needs between its jobs: %s", maxRunEdges, edgeCure)})
	}
	return p
}

const edgeCure = "two large matrices that need each other multiply; put a job between them"

// Refuse makes the plan one of a run that fails as a whole.
func (p Plan) Refuse(why Failure) Plan {
	p.Jobs, p.Edges, p.Group, p.Failure = nil, nil, nil, &why
	return p
}

// planJob expands one job into its children: one without a matrix, one that carries the failure if it cannot be expanded.
func planJob(j *lock.Job, f Facts, newID func() string) []Job {
	bare := *j
	bare.Matrix = nil // the children carry their values, not the whole matrix 256 times
	text := encode(bare)
	children, err := workflow.Expand(j, workflow.ExpandContext{Contexts: f.Contexts()})
	if err != nil {
		return []Job{{
			ID: newID(), Name: j.Name, Display: j.Name, Def: j, Text: text, Matrix: "{}", Total: 1,
			Failure: &Failure{InitMatrix, fmt.Sprintf("the matrix of %q: %s", j.Name, strings.TrimPrefix(err.Error(), workflow.ErrMatrix.Error()+": "))},
		}}
	}
	out := make([]Job, len(children))
	for i, c := range children {
		planned := Job{ID: newID(), Name: c.Name, Display: c.DisplayName, Def: j, Text: text, Matrix: "{}", Index: c.Index, Total: c.Total}
		if len(c.Matrix) > 0 {
			planned.Matrix = string(c.Matrix)
		}
		if planned.Display == "" {
			planned.Display = c.Name
		}
		planned.settleContinue(f)
		out[i] = planned
	}
	return out
}

// settleContinue evaluates continue-on-error, which is settled at run creation (D8).
func (c *Job) settleContinue(f Facts) {
	switch src := c.Def.ContinueOnError; src {
	case "", "false":
	case "true":
		c.ContinueOnError = true
	default:
		f.Job, f.Matrix = c.Def, json.RawMessage(c.Matrix)
		v, err := expr.Eval(src, expr.Env{Contexts: f.Contexts()})
		if err != nil {
			c.Failure = &Failure{InitEval, fmt.Sprintf("continue-on-error of %q: %v", c.Name, err)}
			return
		}
		c.ContinueOnError = expr.Truthy(v)
	}
}

// planEdges plans the needs and returns how many pairs of jobs they join. What would never be satisfied is a failure of the
// job instead.
func (p *Plan) planEdges(jobs []lock.Job, byBase map[string]Span) (pairs int) {
	circle := inCircle(jobs)
	done := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if done[j.Name] { // the second job of one name has failed already
			continue
		}
		done[j.Name] = true
		if circle[j.Name] {
			p.fail(byBase[j.Name], &Failure{InitLock, fmt.Sprintf("%q needs itself, through %s", j.Name, circleText(jobs, circle, j.Name))})
			continue
		}
		edges, failure := jobEdges(j, byBase)
		if failure != nil {
			p.fail(byBase[j.Name], failure)
			continue
		}
		p.Edges = append(p.Edges, edges...)
		for _, e := range edges {
			pairs += e.Job.Len() * e.Needs.Len()
		}
	}
	return pairs
}

func jobEdges(j *lock.Job, byBase map[string]Span) ([]Edge, *Failure) {
	var edges []Edge
	widen := expr.UsesStatus(j.If)
	for _, need := range mergeNeeds(j.Needs) {
		ups, ok := byBase[need.Job]
		if !ok {
			return nil, &Failure{InitLock, fmt.Sprintf("%q needs %q, which does not exist", j.Name, need.Job)}
		}
		runOn := need.RunOn
		if widen { // a condition that asks for statuses decides itself (D8)
			runOn = ci.TerminalJobStatuses
		}
		edges = append(edges, Edge{Job: byBase[j.Name], Needs: ups, RunOn: runOn})
	}
	return edges, nil
}

// fail makes the jobs of a span fail as soon as they exist; an earlier reason stays.
func (p *Plan) fail(s Span, why *Failure) {
	for i := s.From; i < s.To; i++ {
		if p.Jobs[i].Failure == nil {
			p.Jobs[i].Failure = why
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

// Title is what a run is called in lists: run-name, else the event's title, else the workflow's name.
func Title(f Facts) string {
	t := f.Event.Title
	if f.Workflow.RunName != "" {
		if text, err := expr.Interpolate(f.Workflow.RunName, expr.Env{Contexts: f.Contexts()}); err == nil && strings.TrimSpace(text) != "" {
			t = text
		}
	}
	if strings.TrimSpace(t) == "" {
		t = f.Workflow.Name
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

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // our own structs always encode
	}
	return string(b)
}
