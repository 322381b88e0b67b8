package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Only keeps the named jobs and those that they need, directly or through others. A name is that of a job of the workflow, with
// all its children, or that of one child.
func (p Plan) Only(names []string) (Plan, error) {
	keep := make([]bool, len(p.Jobs))
	for _, name := range names {
		found := false
		for i, j := range p.Jobs {
			if name == j.Name || name == j.Display || name == j.Def.Name {
				keep[i], found = true, true
			}
		}
		if !found {
			return p, fmt.Errorf("there is no job %q: %s", name, suggest.Cure(name, p.names()))
		}
	}
	for grew := true; grew; {
		grew = false
		for _, e := range p.Edges {
			if !slices.Contains(keep[e.Job.From:e.Job.To], true) {
				continue
			}
			for i := e.Needs.From; i < e.Needs.To; i++ {
				grew = grew || !keep[i]
				keep[i] = true
			}
		}
	}
	return p.keep(keep), nil
}

// Matrix keeps, of jobs whose matrix has one of the keys, the children with one of its values. A key that no matrix has, and
// values that leave nothing of a job, are errors.
func (p Plan) Matrix(values map[string][]string) (Plan, error) {
	keep := make([]bool, len(p.Jobs))
	seen := map[string]map[string]bool{}
	for i, j := range p.Jobs {
		keep[i] = true
		var cell map[string]any
		_ = json.Unmarshal([]byte(j.Matrix), &cell) // our own JSON
		for key, wanted := range values {
			v, has := cell[key]
			if !has {
				continue
			}
			if seen[key] == nil {
				seen[key] = map[string]bool{}
			}
			seen[key][expr.Text(v)] = true
			keep[i] = keep[i] && slices.Contains(wanted, expr.Text(v))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[key] {
			switch {
			case seen[key] == nil:
				return p, fmt.Errorf("no job has %q in its matrix", key)
			case !seen[key][v]:
				return p, fmt.Errorf("no job has %s=%s in its matrix; the values are %s", key, v, strings.Join(slices.Sorted(maps.Keys(seen[key])), ", "))
			}
		}
	}
	if name := p.emptied(keep); name != "" {
		return p, fmt.Errorf("no combination of the matrix of %s has these values together", name)
	}
	return p.keep(keep), nil
}

// emptied is the name of a job that keeps none of its children.
func (p Plan) emptied(keep []bool) string {
	left := map[string]bool{}
	for i, j := range p.Jobs {
		left[j.Def.Name] = left[j.Def.Name] || keep[i]
	}
	for _, name := range p.names() {
		if !left[name] {
			return name
		}
	}
	return ""
}

// names are those of the workflow's jobs, in its order.
func (p Plan) names() []string {
	var out []string
	for _, j := range p.Jobs {
		if !slices.Contains(out, j.Def.Name) {
			out = append(out, j.Def.Name)
		}
	}
	return out
}

// keep drops jobs, and edges that join nothing any more.
func (p Plan) keep(keep []bool) Plan {
	at := make([]int, len(keep)+1) // of every index, how many before it stay
	var jobs []Job
	for i, j := range p.Jobs {
		at[i+1] = at[i]
		if keep[i] {
			jobs = append(jobs, j)
			at[i+1]++
		}
	}
	var edges []Edge
	for _, e := range p.Edges {
		e.Job, e.Needs = Span{at[e.Job.From], at[e.Job.To]}, Span{at[e.Needs.From], at[e.Needs.To]}
		if e.Job.Len() > 0 && e.Needs.Len() > 0 {
			edges = append(edges, e)
		}
	}
	p.Jobs, p.Edges = jobs, edges
	return p
}
