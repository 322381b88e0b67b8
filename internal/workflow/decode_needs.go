package workflow

import (
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var needKeys = keys{name: "an element of needs", known: []string{"job", "on"}}

// needs reads edges; link checks that their jobs exist.
func (d *decoder) needs(v value, j *jobNode) {
	seen := map[string]bool{}
	d.list(v, true, func(_ int, v value) {
		n := lock.Need{RunOn: runOn("success")}
		if v.n.Kind == mappingKind {
			d.object(v, needKeys, func(key string, v value) {
				if key == "job" {
					n.Job, _ = d.word(v)
					return
				}
				if on := d.edge(v); len(on) > 0 {
					n.RunOn = on
				}
			})
			if n.Job == "" {
				d.errorf(v, "add job:", "an element of needs has no job")
			}
		} else {
			n.Job, _ = d.word(v)
		}
		if seen[n.Job] {
			d.errorf(v, "keep one of them", "job %q is needed twice", n.Job)
		}
		if n.Job == "" || seen[n.Job] {
			return
		}
		seen[n.Job] = true
		j.job.Needs = append(j.job.Needs, n)
		j.needs = append(j.needs, v)
	})
}

var edgeWords = []string{"success", "failure", "always", "skip"}

// edge reads on: of an edge, a word or several.
func (d *decoder) edge(v value) []ci.JobStatus {
	var out []ci.JobStatus
	for _, w := range d.choices(v, edgeWords) {
		out = append(out, runOn(w)...)
	}
	return inOrder(out)
}

// runOn is the set of terminal statuses that an edge's word admits (WF-5, D8).
func runOn(word string) []ci.JobStatus {
	switch word {
	case "success":
		return []ci.JobStatus{ci.JobSuccess}
	case "failure":
		return []ci.JobStatus{ci.JobFailed, ci.JobStale, ci.JobDrift, ci.JobUnroutable}
	case "skip":
		return []ci.JobStatus{ci.JobSuccess, ci.JobSkipped}
	case "always":
		return ci.TerminalJobStatuses
	}
	return nil
}

// inOrder returns a set of terminal statuses in the order of ci.TerminalJobStatuses.
func inOrder(set []ci.JobStatus) []ci.JobStatus {
	var out []ci.JobStatus
	for _, s := range ci.TerminalJobStatuses {
		if slices.Contains(set, s) {
			out = append(out, s)
		}
	}
	return out
}
