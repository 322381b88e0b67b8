package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// verifier checks a lock that was not made here a moment ago: everything the rest of kici relies on.
type verifier struct {
	at       string
	problems []Problem
}

func (v *verifier) errorf(field, format string, args ...any) {
	v.problems = append(v.problems, Problem{
		File: LockPath, Field: v.at + field, Message: v.at + field + ": " + fmt.Sprintf(format, args...), Cure: "run kici compile",
	})
}

// fail is errorf for an error, if there is one.
func (v *verifier) fail(field string, err error) {
	if err != nil {
		v.errorf(field, "%s", err)
	}
}

func verify(f *lock.File) []Problem {
	v := &verifier{}
	if len(f.Workflows) > lock.MaxWorkflows {
		v.errorf("workflows", "there are %d, at most %d are allowed", len(f.Workflows), lock.MaxWorkflows)
		return v.problems
	}
	names := map[string]bool{}
	for i := range f.Workflows {
		w := &f.Workflows[i]
		v.at = fmt.Sprintf("workflows[%d].", i)
		switch {
		case w.Name == "" || len(w.Name) > maxName || strings.ContainsAny(w.Name, "\n\r\t"):
			v.errorf("name", "must be one line of 1 to %d bytes", maxName)
		case names[w.Name]:
			v.errorf("name", "%q is there twice", w.Name)
		}
		names[w.Name] = true
		v.workflow(w)
	}
	return v.problems
}

func (v *verifier) workflow(w *lock.Workflow) {
	v.text("runName", w.RunName, scopeRun)
	v.texts("env", w.Env, scopeEnv)
	v.concurrency("concurrency", w.Concurrency, scopeRun)
	for i := range w.On {
		v.trigger(fmt.Sprintf("on[%d]", i), &w.On[i])
	}
	if len(w.Jobs) == 0 || len(w.Jobs) > lock.MaxJobs {
		v.errorf("jobs", "there must be 1 to %d jobs, got %d", lock.MaxJobs, len(w.Jobs))
		return
	}
	index := map[string]int{}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if _, dup := index[j.Name]; dup || !validID(j.Name) {
			v.errorf("jobs", "%q cannot be the name of a job, or is there twice", short(j.Name))
		}
		index[j.Name] = i
	}
	for i := range w.Jobs {
		v.job(fmt.Sprintf("jobs[%d]", i), &w.Jobs[i], index)
	}
	for _, c := range circles(len(w.Jobs), func(i int) []int { return edges(w.Jobs[i], index) }) {
		v.errorf("jobs", "job %q needs itself through others", w.Jobs[c[0]].Name)
	}
}

func (v *verifier) trigger(at string, t *lock.Trigger) {
	for _, list := range [][]string{t.Branches, t.Patterns, t.Paths, t.TargetBranches, t.SourceBranches, t.Repos} {
		for _, p := range list {
			if err := checkGlob(p); err != nil {
				v.errorf(at, "invalid pattern %q: %s", short(p), err)
			}
		}
	}
	for _, m := range []map[string]any{t.Match, t.Not} {
		for _, p := range sortedKeys(m) {
			_, err := parseJSONPath(p)
			v.fail(at, err)
			v.fail(at, checkExpected(m[p]))
		}
	}
	for _, name := range sortedKeys(t.Inputs) {
		v.fail(at+".inputs."+name, checkPattern(t.Inputs[name].Pattern))
	}
	switch t.Type {
	case TypeSchedule:
		v.fail(at+".cronExpression", checkCron(t.Cron))
		v.fail(at+".timezone", checkTimezone(t.Timezone))
		_, err := ScheduleInputs(t)
		v.fail(at+".inputs", err)
	case TypeComment:
		if t.BodyMatch != "" {
			v.fail(at+".bodyMatch", checkBodyMatch(t.BodyMatch))
		}
	case "":
		v.errorf(at, "has no type")
	}
}

func (v *verifier) job(at string, j *lock.Job, index map[string]int) {
	if len(j.Steps) == 0 || len(j.Steps) > lock.MaxSteps {
		v.errorf(at+".steps", "there must be 1 to %d steps, got %d", lock.MaxSteps, len(j.Steps))
	}
	v.labels(at+".runsOn", j.RunsOn)
	for _, n := range j.Needs {
		if _, ok := index[n.Job]; !ok {
			v.errorf(at+".needs", "job %q does not exist", short(n.Job))
		}
		v.runOn(at+".needs", n)
	}
	if m := j.Matrix; m != nil && !dynamic(m) {
		_, err := combine(m)
		v.fail(at+".matrix", err)
	}
	v.text(at+".displayName", j.DisplayName, scopeRunJob)
	v.bare(at+".if", j.If, scopeReadyIf)
	v.texts(at+".env", j.Env, scopeJobEnv)
	v.texts(at+".outputs", j.Outputs, scopeOutputs)
	v.bare(at+".continueOnError", j.ContinueOnError, scopeRunJob)
	v.concurrency(at+".concurrency", j.Concurrency, scopeReady)
	v.container(at+".container", j.Container)
	v.sandbox(at+".sandbox", j.Sandbox)
	if j.MaxParallel < 0 || j.MaxParallel > lock.MaxMatrixCells {
		v.errorf(at+".maxParallel", "must be 0 to %d", lock.MaxMatrixCells)
	}
	for i := range j.Steps {
		v.step(fmt.Sprintf("%s.steps[%d]", at, i), &j.Steps[i])
	}
}

func (v *verifier) container(at string, c *lock.Container) {
	if c == nil {
		return
	}
	if c.Image == "" {
		v.errorf(at, "has no image")
	}
	v.text(at+".image", c.Image, scopeReady)
	v.texts(at+".env", c.Env, scopeJobEnv)
	if c.Credentials != nil {
		v.text(at+".credentials.username", c.Credentials.Username, scopeJobEnv)
		v.text(at+".credentials.password", c.Credentials.Password, scopeJobEnv)
	}
}

func (v *verifier) sandbox(at string, s *lock.Sandbox) {
	if s == nil {
		return
	}
	for _, name := range s.Capabilities {
		if !slices.Contains(ci.Capabilities, name) {
			v.errorf(at+".capabilities", "%q is no capability of Linux", short(name))
		}
	}
	if s.Network != "" && s.Network != ci.NetworkHost {
		v.errorf(at+".network", "%q is no network of a sandbox", short(s.Network))
	}
}

func (v *verifier) concurrency(at string, c *lock.Concurrency, scope scope) {
	if c == nil {
		return
	}
	if c.Group == "" {
		v.errorf(at, "has no group")
	}
	if c.Max < 0 || c.Max > maxConcurrent {
		v.errorf(at, "max must be 0 to %d", maxConcurrent)
	}
	v.text(at+".group", c.Group, scope)
}

func (v *verifier) labels(at string, s lock.Selector) {
	if len(s.Labels) == 0 {
		v.errorf(at, "names no label")
	}
	for _, l := range append(s.Labels[:len(s.Labels):len(s.Labels)], s.Exclude...) {
		v.fail(at, checkLabel(l))
		v.text(at, l, scopeReady)
	}
	if l := ci.SelectorConflict(s.Labels, s.Exclude); l != "" {
		v.errorf(at, "label %q is both required and excluded", short(l))
	}
}

func (v *verifier) runOn(at string, n lock.Need) {
	if len(n.RunOn) == 0 {
		v.errorf(at, "the edge to %q admits no status", short(n.Job))
	}
	for _, s := range n.RunOn {
		if !s.Terminal() {
			v.errorf(at, "%q is not the status of an ended job", short(string(s)))
		}
	}
}

func (v *verifier) step(at string, s *lock.Step) {
	if s.Uses != "" && s.Uses != UsesCheckout {
		v.errorf(at+".uses", "%q is not supported", short(s.Uses))
	}
	if (s.Run == "") == (s.Uses == "") {
		v.errorf(at, "must have either run or uses")
	}
	if s.ID != "" && !validID(s.ID) {
		v.errorf(at+".id", "%q cannot be the id of a step", short(s.ID))
	}
	if r := s.Retry; r != nil && (r.MaxAttempts < 1 || r.MaxAttempts > maxAttempts) {
		v.errorf(at+".retry", "maxAttempts must be 1 to %d", maxAttempts)
	}
	v.text(at+".name", s.Name, scopeStep)
	v.bare(at+".if", s.If, scopeStepIf)
	v.text(at+".run", s.Run, scopeStep)
	v.texts(at+".env", s.Env, scopeStep)
	v.bare(at+".continueOnError", s.ContinueOnError, scopeStep)
}

func (v *verifier) text(at, s string, scope scope) {
	for _, e := range expr.CheckText(s, scope) {
		v.errorf(at, "%s", e)
	}
}

func (v *verifier) texts(at string, m map[string]string, scope scope) {
	for _, k := range sortedKeys(m) {
		v.text(at+"."+k, m[k], scope)
	}
}

func (v *verifier) bare(at, s string, scope scope) {
	if s == "" {
		return
	}
	for _, e := range expr.Check(s, scope) {
		v.errorf(at, "%s", e)
	}
}
