package workflow

import (
	"encoding/json"

	"github.com/kici-go/kici/internal/workflow/lock"
)

var addedKeys = keys{
	name: "a list of jobs to add", known: []string{"jobs"},
	refused: func(key string) string {
		if workflowKeys.has(key) {
			return "jobs that a step adds belong to the workflow of their run, which has this already; write only jobs:"
		}
		return ""
	},
}

// CompileJobs reads jobs that a running step adds to its run: a document with jobs:, as in a workflow file. name stands for the file in
// messages. The jobs may need jobs of the run, which are not known here, so needs are only checked among the jobs of the text; plan.Add
// checks the others. The jobs are nil when some problem is an error.
func CompileJobs(name string, text []byte) ([]lock.Job, []Problem) {
	root, problems := parseYAML(Source{Path: name, Data: text})
	if root == nil {
		return nil, problems
	}
	d := &decoder{file: name, data: text, partial: true}
	var nodes []jobNode
	v, hasJobs := newValue(root, nil), false
	if d.object(v, addedKeys, func(_ string, v value) { hasJobs, nodes = true, d.jobs(v) }) && !hasJobs {
		d.errorf(v, "add jobs:", "there are no jobs to add")
	}
	d.link(nodes)
	d.checkRefs(&lock.Workflow{}, nodes)
	jobs := make([]lock.Job, len(nodes))
	for i, n := range nodes {
		jobs[i] = n.job
	}
	if b, err := json.Marshal(jobs); !HasErrors(d.problems) && (err != nil || len(b) > lock.MaxBytes) {
		d.errorf(v, "add fewer at once", "the jobs would be larger than %d bytes", lock.MaxBytes)
	}
	problems = limit(d.problems)
	if HasErrors(problems) {
		return nil, problems
	}
	return jobs, problems
}

// unknownHere reports whether a name may be one of the run that the jobs are added to.
func (d *decoder) unknownHere(u use) bool { return d.partial && u.Context == "inputs" }
