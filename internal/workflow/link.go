package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// link checks the edges between jobs and widens those of jobs that ask for the status themselves.
func (d *decoder) link(jobs []jobNode) {
	names := make([]string, len(jobs))
	index := make(map[string]int, len(jobs))
	for i, j := range jobs {
		names[i] = j.job.Name
		index[j.job.Name] = i
	}
	for i := range jobs {
		j := &jobs[i]
		for k, n := range j.job.Needs {
			if _, ok := index[n.Job]; !ok && !d.partial {
				d.errorf(j.needs[k], suggest.Cure(n.Job, names), "job %q needs %q, which does not exist", j.job.Name, short(n.Job))
			}
		}
		d.widen(j)
	}
	for _, c := range circles(len(jobs), func(i int) []int { return edges(jobs[i].job, index) }) {
		j := jobs[c[0]]
		var b strings.Builder
		for _, i := range c {
			b.WriteString(names[i] + " → ")
		}
		at := j.v
		for k, n := range j.job.Needs {
			if index[n.Job] == c[1%len(c)] && k < len(j.needs) {
				at = j.needs[k]
			}
		}
		d.errorf(at, "remove one of these needs", "jobs need each other in a circle: %s%s", b.String(), names[c[0]])
	}
}

// widen makes the edges of a job whose if uses always(), failure(), cancelled() or success() admit every ending, so that
// the if decides (D8). An on: of their own has no effect then.
func (d *decoder) widen(j *jobNode) {
	if j.job.If == "" || !expr.UsesStatus(j.job.If) {
		return
	}
	for k := range j.job.Needs {
		j.job.Needs[k].RunOn = ci.TerminalJobStatuses
		for i, c := range j.needs[k].n.Content {
			if i%2 == 0 && c.Value == "on" {
				d.warnf(newValue(c, j.needs[k].at), "remove one of the two", "on has no effect: the if of job %q uses a status function and decides alone", j.job.Name)
			}
		}
	}
}

func edges(j lock.Job, index map[string]int) []int {
	var out []int
	for _, n := range j.Needs {
		if k, ok := index[n.Job]; ok {
			out = append(out, k)
		}
	}
	return out
}

// circles finds circles in a graph of n nodes, at least one for every set of nodes that reach each other.
func circles(n int, next func(int) []int) [][]int {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, n)
	var stack []int
	var found [][]int
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		stack = append(stack, i)
		for _, k := range next(i) {
			switch state[k] {
			case unseen:
				visit(k)
			case open:
				found = append(found, slices.Clone(stack[slices.Index(stack, k):]))
			}
		}
		stack = stack[:len(stack)-1]
		state[i] = done
	}
	for i := range n {
		if state[i] == unseen {
			visit(i)
		}
	}
	return found
}

// checkRefs warns about names that no context will have: they are null, which is seldom meant.
func (d *decoder) checkRefs(w *lock.Workflow, jobs []jobNode) {
	inputs := dispatchInputs(w)
	d.warnRefs(d.refs, func(u use) (string, string) { return checkCommonRef(u, inputs) })
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.job.Name
	}
	for i := range jobs {
		j := &jobs[i]
		d.warnRefs(j.refs, func(u use) (string, string) { return checkJobRef(u, &j.job, inputs, names) })
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

func (d *decoder) warnRefs(refs []use, check func(use) (message, cure string)) {
	for _, u := range refs {
		if message, cure := check(u); message != "" && !d.unknownHere(u) {
			d.addAt(u.in, u.Off, Problem{Message: message, Cure: cure, Warning: true})
		}
	}
}

func dispatchInputs(w *lock.Workflow) []string {
	var names []string
	for _, t := range w.On {
		names = append(names, sortedKeys(t.Inputs)...)
	}
	return names
}

func checkCommonRef(u use, inputs []string) (message, cure string) {
	switch {
	case u.Context == "kici" && u.Name == "token", u.Context == "secrets" && strings.EqualFold(u.Name, "GITHUB_TOKEN"):
		return "kici gives jobs no token of the forge", "store one with kici secret set, under a name of your own"
	case u.Context == "kici" && !known(u.Name, kiciNames):
		return fmt.Sprintf("kici has no %q: it is always null", u.Name), suggest.Cure(u.Name, kiciNames)
	case u.Context == "inputs" && !known(u.Name, inputs):
		return fmt.Sprintf("there is no input %q: it is always null", u.Name), cureFor(u.Name, inputs, "declare it under on.workflow_dispatch.inputs")
	}
	return "", ""
}

func checkJobRef(u use, j *lock.Job, inputs, jobs []string) (message, cure string) {
	switch u.Context {
	case "needs":
		var needs []string
		for _, n := range j.Needs {
			needs = append(needs, n.Job)
		}
		switch {
		case known(u.Name, needs):
		case known(u.Name, jobs):
			return fmt.Sprintf("job %q does not need %q: needs.%s is always null", j.Name, u.Name, u.Name), "add it to needs"
		default:
			return fmt.Sprintf("job %q does not need %q: needs.%s is always null", j.Name, u.Name, u.Name), suggest.Cure(u.Name, needs)
		}
	case "steps":
		var ids []string
		for _, s := range j.Steps {
			if s.ID != "" {
				ids = append(ids, s.ID)
			}
		}
		if !known(u.Name, ids) {
			return fmt.Sprintf("no step has the id %q: it is always null", u.Name), cureFor(u.Name, ids, "give the step an id")
		}
	case "matrix":
		if names, all := matrixNames(j.Matrix); all && !known(u.Name, names) {
			return fmt.Sprintf("the matrix has no %q: it is always null", u.Name), suggest.Cure(u.Name, names)
		}
	}
	return checkCommonRef(u, inputs)
}

// matrixNames are the properties of the matrix context; all is false when an expression may add more.
func matrixNames(m *lock.Matrix) (names []string, all bool) {
	if m == nil {
		return nil, true
	}
	names = slices.Clone(m.Order)
	for _, e := range m.Include {
		names = append(names, sortedKeys(e)...)
	}
	return names, m.Expression == "" && m.IncludeExpression == ""
}

func known(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
