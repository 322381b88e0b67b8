package workflow

import (
	"fmt"
	"path"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

var workflowKeys = keys{
	name: "a workflow",
	known: []string{
		"name", "run-name", "description", "on", "env", "defaults", "concurrency", "timeout-minutes", "permissions", "jobs",
	},
}

// compileFile makes a workflow of one file. The workflow is usable only if no problem is an error.
func compileFile(f Source) (lock.Workflow, []Problem) {
	w := lock.Workflow{SourceFile: f.Path, On: []lock.Trigger{}, Jobs: []lock.Job{}}
	root, problems := parseYAML(f)
	if root == nil {
		return w, problems
	}
	d := &decoder{file: f.Path, data: f.Data}
	d.workflow(newValue(root, nil), &w)
	return w, d.problems
}

func (d *decoder) workflow(v value, w *lock.Workflow) {
	base := path.Base(w.SourceFile)
	w.Name = strings.TrimSuffix(base, path.Ext(base))
	var jobs []jobNode
	hasOn, hasJobs := false, false
	if !d.object(v, workflowKeys, func(key string, v value) {
		switch key {
		case "name":
			d.workflowName(v, w)
		case "run-name":
			w.RunName = d.template(v, scopeRun)
		case "description":
			w.Description, _ = d.text(v)
		case "on":
			hasOn = true
			w.On = d.triggers(v)
		case "env":
			w.Env = d.env(v, scopeEnv)
		case "defaults":
			w.Defaults = d.defaults(v)
		case "concurrency":
			w.Concurrency = d.concurrency(v, scopeRun)
		case "timeout-minutes":
			w.TimeoutMs = d.minutes(v)
		case "permissions":
			d.permissions(v)
		case "jobs":
			hasJobs = true
			jobs = d.jobs(v)
		}
	}) {
		return
	}
	if !hasOn {
		d.errorf(v, "add on: push, for instance", "workflow has no on:, so nothing would ever start it")
	}
	if !hasJobs {
		d.errorf(v, "add jobs:", "workflow has no jobs:")
	}
	d.link(jobs)
	d.checkRefs(w, jobs)
	for _, j := range jobs {
		w.Jobs = append(w.Jobs, j.job)
	}
}

const maxName = 200

func (d *decoder) workflowName(v value, w *lock.Workflow) {
	s, ok := d.word(v)
	if !ok {
		return
	}
	s = strings.TrimSpace(s)
	if len(s) > maxName || strings.ContainsAny(s, "\n\r\t") {
		d.errorf(v, "", "name must be one line of at most %d bytes", maxName)
		return
	}
	w.Name = s
}

// template is a text that may contain expressions.
func (d *decoder) template(v value, scope scope) string {
	s, ok := d.text(v)
	if ok {
		d.expression(v, s, scope)
	}
	return s
}

func (d *decoder) env(v value, scope scope) map[string]string {
	if v.n.Kind == scalarKind && !v.isNull() {
		d.errorf(v, "write one line per variable", "env must be a map; a whole-map expression is not supported")
		return nil
	}
	out := map[string]string{}
	d.object(v, keys{name: "env"}, func(key string, v value) {
		if err := checkEnvName(key); err != nil {
			d.errorf(v, "", "%s", err)
			return
		}
		if v.isNull() {
			out[key] = ""
			return
		}
		out[key] = d.template(v, scope)
	})
	return out
}

func checkEnvName(name string) error {
	if strings.ContainsAny(name, "=\x00\n\r ") {
		return fmt.Errorf("%q cannot be the name of a variable", short(name))
	}
	return nil
}

var (
	defaultsKeys    = keys{name: "defaults", known: []string{"run"}}
	defaultsRunKeys = keys{name: "defaults.run", known: []string{"shell", "working-directory"}}
)

func (d *decoder) defaults(v value) lock.RunDefaults {
	var out lock.RunDefaults
	d.object(v, defaultsKeys, func(_ string, v value) {
		d.object(v, defaultsRunKeys, func(key string, v value) {
			if key == "shell" {
				out.Shell = d.template(v, scopeJobEnv)
			} else {
				out.WorkingDirectory = d.template(v, scopeJobEnv)
			}
		})
	})
	return out
}

var concurrencyKeys = keys{name: "concurrency", known: []string{"group", "cancel-in-progress", "max"}}

// maxConcurrent bounds the owners of one concurrency group that may go on at the same time.
const maxConcurrent = 1000

func (d *decoder) concurrency(v value, scope scope) *lock.Concurrency {
	out := &lock.Concurrency{}
	if v.n.Kind == scalarKind {
		out.Group = d.template(v, scope)
		return out
	}
	d.object(v, concurrencyKeys, func(key string, v value) {
		switch key {
		case "group":
			out.Group = d.template(v, scope)
		case "cancel-in-progress":
			out.CancelInProgress, _ = d.boolean(v)
		case "max":
			out.Max, _ = d.integer(v, 1, maxConcurrent)
		}
	})
	if v.n.Kind == mappingKind && out.Group == "" {
		d.errorf(v, "add group:", "concurrency has no group")
	}
	return out
}

func (d *decoder) permissions(v value) {
	d.warnf(v, "remove it", "permissions is ignored: kici gives jobs no token of the forge")
}

// maxMinutes is 30 days.
const maxMinutes = 30 * 24 * 60

// minutes reads timeout-minutes as milliseconds.
func (d *decoder) minutes(v value) int64 {
	f, ok := d.number(v, 0, maxMinutes)
	if ok && f <= 0 {
		d.errorf(v, "", "%s must be above 0", v.last())
	}
	if ms := int64(f * 60_000); f > 0 {
		return max(1, ms)
	}
	return 0
}
