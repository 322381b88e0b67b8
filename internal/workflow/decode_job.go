package workflow

import (
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var jobKeys = keys{
	name: "a job",
	known: []string{
		"name", "runs-on", "needs", "if", "env", "strategy", "outputs", "timeout-minutes", "continue-on-error", "resources",
		"container", "sandbox", "checkout", "defaults", "concurrency", "grace-period", "permissions", "steps",
	},
	refused: func(key string) string {
		switch key {
		case "uses", "with", "secrets":
			return "reusable workflows are not supported; put shared steps into a script of the repository"
		case "services":
			return "start what the job needs in a step"
		case "environment", "approval":
			return "this version has no environments and approvals"
		}
		return ""
	},
}

// jobNode is a job with the nodes that are checked once all jobs are known.
type jobNode struct {
	job   lock.Job
	v     value
	needs []value // as job.Needs
	refs  []use
}

const (
	idCure = "use letters, digits, - and _, and begin with a letter or _"
	maxID  = 100
)

// validID reports whether s can name a job, step, input or output: it must work after a dot in an expression.
func validID(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

func (d *decoder) jobs(v value) []jobNode {
	var out []jobNode
	seen := map[string]string{}
	ok := d.object(v, keys{name: "jobs"}, func(key string, v value) {
		if !validID(key) {
			d.errorf(v, idCure, "%q cannot be the name of a job", short(key))
			return
		}
		if other, dup := seen[strings.ToLower(key)]; dup {
			d.errorf(v, "rename one", "jobs %q and %q differ only in case", other, key)
		}
		seen[strings.ToLower(key)] = key
		out = append(out, d.job(v, key))
	})
	if ok && len(v.n.Content) == 0 {
		d.errorf(v, "add a job", "jobs is empty")
	}
	if len(out) > lock.MaxJobs {
		d.errorf(v, "split the workflow", "there are %d jobs, at most %d are allowed", len(out), lock.MaxJobs)
	}
	return out
}

func (d *decoder) job(v value, key string) jobNode {
	j := jobNode{job: lock.Job{Name: key, Line: v.start().Line, Steps: []lock.Step{}}, v: v}
	before := len(d.refs)
	hasRunsOn, hasSteps := false, false
	ok := d.object(v, jobKeys, func(key string, v value) {
		switch key {
		case "runs-on":
			hasRunsOn = true
			j.job.RunsOn = d.runsOn(v)
		case "steps":
			hasSteps = true
			j.job.Steps = d.steps(v)
		case "needs":
			d.needs(v, &j)
		default:
			d.jobField(key, v, &j.job)
		}
	})
	if ok && !hasRunsOn {
		d.errorf(v, "add runs-on: linux, or another label of your scalers", "job %q has no runs-on", key)
	}
	if ok && !hasSteps {
		d.errorf(v, "add steps:", "job %q has no steps", key)
	}
	if j.job.Checkout != nil && !*j.job.Checkout {
		d.checkoutConflict(j.job.Steps, v)
	}
	j.refs = append(j.refs, d.refs[before:]...)
	d.refs = d.refs[:before]
	return j
}

func (d *decoder) jobField(key string, v value, j *lock.Job) {
	switch key {
	case "name":
		j.DisplayName = d.template(v, scopeRunJob)
	case "if":
		j.If = d.condition(v, scopeReadyIf)
	case "env":
		j.Env = d.env(v, scopeJobEnv)
	case "strategy":
		d.strategy(v, j)
	case "outputs":
		j.Outputs = d.outputs(v)
	case "timeout-minutes":
		j.TimeoutMs = d.minutes(v)
	case "continue-on-error":
		j.ContinueOnError = d.flag(v, scopeRunJob)
	case "resources":
		j.Resources = d.resources(v)
	case "container":
		j.Container = d.container(v)
	case "sandbox":
		j.Sandbox = d.sandbox(v)
	case "checkout":
		if b, ok := d.boolean(v); ok && !b {
			j.Checkout = &b
		}
	case "defaults":
		j.Defaults = d.defaults(v)
	case "concurrency":
		j.Concurrency = d.concurrency(v, scopeReady)
	case "grace-period":
		j.GracePeriodMs = d.duration(v)
	case "permissions":
		d.permissions(v)
	}
}

// flag is true, false or an expression; "" is false.
func (d *decoder) flag(v value, scope scope) string {
	if v.n.Kind == scalarKind && v.n.Tag != "!!bool" && strings.Contains(v.n.Value, "${{") {
		return d.condition(v, scope)
	}
	if b, ok := d.boolean(v); ok && b {
		return "true"
	}
	return ""
}

func (d *decoder) outputs(v value) map[string]string {
	out := map[string]string{}
	d.object(v, keys{name: "outputs"}, func(key string, v value) {
		if !validID(key) {
			d.errorf(v, idCure, "%q cannot be the name of an output", short(key))
			return
		}
		out[key] = d.template(v, scopeOutputs)
	})
	return out
}

var containerKeys = keys{
	name: "container", known: []string{"image", "env", "credentials"},
	refused: func(key string) string {
		switch key {
		case "ports", "volumes", "options":
			return "volumes and the like are set by the operator, in the label set of scalers.yaml"
		}
		return ""
	},
}

var sandboxKeys = keys{name: "sandbox", known: []string{"capabilities", "network"}}

func (d *decoder) sandbox(v value) *lock.Sandbox {
	s := &lock.Sandbox{}
	d.object(v, sandboxKeys, func(key string, v value) {
		switch key {
		case "capabilities":
			d.list(v, true, func(_ int, v value) {
				name, ok := d.word(v)
				full := ci.CapabilityName(name)
				switch {
				case ok && full == "":
					d.errorf(v, "names are those of capabilities(7): NET_BIND_SERVICE, SYS_PTRACE, …", "%q is no capability of Linux", short(name))
				case ok:
					s.Capabilities = append(s.Capabilities, full)
				}
			})
		case "network":
			switch name, ok := d.word(v); {
			case ok && name == ci.NetworkHost:
				s.Network = name
			case ok && name != ci.NetworkIsolated:
				d.errorf(v, "write isolated or host", "%q is no network of a sandbox", short(name))
			}
		}
	})
	return s
}

var credentialKeys = keys{name: "credentials", known: []string{"username", "password"}}

func (d *decoder) container(v value) *lock.Container {
	c := &lock.Container{}
	if v.n.Kind == scalarKind {
		c.Image = d.template(v, scopeReady)
		return c
	}
	d.object(v, containerKeys, func(key string, v value) {
		switch key {
		case "image":
			c.Image = d.template(v, scopeReady)
		case "env":
			c.Env = d.env(v, scopeJobEnv)
		case "credentials":
			c.Credentials = d.credentials(v)
		}
	})
	if v.n.Kind == mappingKind && c.Image == "" {
		d.errorf(v, "add image:", "container has no image")
	}
	return c
}

func (d *decoder) credentials(v value) *lock.Credentials {
	c := &lock.Credentials{}
	d.object(v, credentialKeys, func(key string, v value) {
		if key == "username" {
			c.Username = d.template(v, scopeJobEnv)
		} else {
			c.Password = d.template(v, scopeJobEnv)
		}
	})
	if v.n.Kind == mappingKind && (c.Username == "" || c.Password == "") {
		d.errorf(v, "add both", "credentials need username and password")
	}
	return c
}
