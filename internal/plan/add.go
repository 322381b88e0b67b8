package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Existing is a job that a run has already.
type Existing struct {
	Index      int // in the run
	Name, Base string
}

// Add plans the jobs of f.Workflow as additions to a run that has the jobs have, in their order. Added jobs may need those and each
// other; no job that is there already can come to need an added one. Unlike Make it refuses what cannot be run, with an error that
// says which job and why: whoever adds jobs is there to read it. Spans of the plan's edges count in the whole run; its own jobs come
// right behind the last of have.
func Add(f Facts, have []Existing, newID func() string) (Plan, error) {
	a := adder{facts: f, names: map[string]bool{}, byBase: map[string]Span{}}
	for _, e := range have {
		a.names[e.Name] = true
		s, known := a.byBase[e.Base]
		if !known {
			s.From = e.Index
		}
		s.To = e.Index + 1
		a.byBase[e.Base] = s
		a.next = max(a.next, e.Index+1)
	}
	if err := a.check(len(have)); err != nil {
		return Plan{}, err
	}
	if err := a.jobs(newID); err != nil {
		return Plan{}, err
	}
	return a.plan, a.edges()
}

type adder struct {
	facts  Facts
	names  map[string]bool
	byBase map[string]Span
	next   int // index of the first new job
	plan   Plan
}

// check looks at names and circles.
func (a *adder) check(have int) error {
	jobs := a.facts.Workflow.Jobs
	switch {
	case len(jobs) == 0:
		return fmt.Errorf("there are no jobs to add")
	case have+len(jobs) > maxRunJobs:
		return fmt.Errorf("the run would have more than %d jobs; it has %d", maxRunJobs, have)
	}
	seen := map[string]bool{}
	for _, j := range jobs {
		if _, there := a.byBase[j.Name]; there || a.names[j.Name] {
			return fmt.Errorf("the run has a job %q already; give the added one another name", j.Name)
		}
		if seen[j.Name] {
			return fmt.Errorf("two of the added jobs are called %q", j.Name)
		}
		seen[j.Name] = true
	}
	circle := inCircle(jobs)
	for _, j := range jobs {
		if circle[j.Name] {
			return fmt.Errorf("%q needs itself, through %s", j.Name, circleText(jobs, circle, j.Name))
		}
	}
	return nil
}

func (a *adder) jobs(newID func() string) error {
	size := 0
	for i := range a.facts.Workflow.Jobs {
		j := &a.facts.Workflow.Jobs[i]
		from := a.next + len(a.plan.Jobs)
		for _, c := range planJob(j, a.facts, newID) {
			if c.Failure != nil {
				return fmt.Errorf("%s", c.Failure.Message)
			}
			c.Name = unusedName(a.names, c.Name)
			size += len(c.Text)
			a.plan.Jobs = append(a.plan.Jobs, c)
		}
		a.byBase[j.Name] = Span{from, a.next + len(a.plan.Jobs)}
		if a.next+len(a.plan.Jobs) > maxRunJobs {
			return fmt.Errorf("the run would have more than %d jobs; it has %d", maxRunJobs, a.next)
		}
	}
	if size > maxAddedBytes {
		return fmt.Errorf("the added jobs are larger than %d bytes together", maxAddedBytes)
	}
	return nil
}

// maxAddedBytes bounds the definitions of the jobs of one addition; a matrix multiplies them.
const maxAddedBytes = 16 << 20

func (a *adder) edges() error {
	pairs := 0
	for i := range a.facts.Workflow.Jobs {
		j := &a.facts.Workflow.Jobs[i]
		if at := slices.IndexFunc(j.Needs, func(n lock.Need) bool { _, ok := a.byBase[n.Job]; return !ok }); at >= 0 {
			return fmt.Errorf("%q needs %q, which does not exist in this run; %s", j.Name, j.Needs[at].Job, suggest.Cure(j.Needs[at].Job, a.bases()))
		}
		edges, failure := jobEdges(j, a.byBase)
		if failure != nil {
			return fmt.Errorf("%s", failure.Message)
		}
		for _, e := range edges {
			pairs += e.Job.Len() * e.Needs.Len()
		}
		a.plan.Edges = append(a.plan.Edges, edges...)
	}
	if pairs > maxRunEdges {
		return fmt.Errorf("the added jobs make more than %d needs: %s", maxRunEdges, edgeCure)
	}
	return nil
}

func (a *adder) bases() []string {
	names := make([]string, 0, len(a.byBase))
	for name := range a.byBase {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Names are those of the plan's jobs as JSON.
func (p Plan) Names() (names []string, text string) {
	names = make([]string, len(p.Jobs))
	for i, j := range p.Jobs {
		names[i] = j.Name
	}
	b, _ := json.Marshal(names) // strings always encode
	return names, string(b)
}
