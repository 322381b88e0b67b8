package workflow

import (
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// UsesCheckout is the only value of lock.Step.Uses.
const UsesCheckout = "checkout"

var stepKeys = keys{
	name: "a step",
	known: []string{
		"id", "name", "if", "run", "uses", "with", "shell", "working-directory", "env", "timeout-minutes", "continue-on-error", "retry",
	},
	refused: func(key string) string {
		switch key {
		case "approval":
			return "this version has no approvals"
		case "parallel":
			return "use a matrix, or several jobs"
		}
		return ""
	},
}

func (d *decoder) steps(v value) []lock.Step {
	out := []lock.Step{}
	ids := map[string]bool{}
	ok := d.list(v, false, func(_ int, v value) {
		s := d.step(v)
		if id := strings.ToLower(s.ID); id != "" {
			if ids[id] {
				d.errorf(v, "rename one", "step id %q is there already", s.ID)
			}
			ids[id] = true
		}
		out = append(out, s)
	})
	if ok && len(out) == 0 {
		d.errorf(v, "add a step", "steps is empty")
	}
	if len(out) > lock.MaxSteps {
		d.errorf(v, "put the work into a script", "there are %d steps, at most %d are allowed", len(out), lock.MaxSteps)
	}
	return out
}

func (d *decoder) step(v value) lock.Step {
	s := lock.Step{Line: v.n.Line}
	hasRun, hasUses := false, false
	var with *value
	ok := d.object(v, stepKeys, func(key string, v value) {
		switch key {
		case "run":
			hasRun = true
			s.Run = d.template(v, scopeStep)
			if strings.TrimSpace(s.Run) == "" && v.n.Kind == scalarKind && !v.isNull() {
				d.errorf(v, "", "run is empty")
			}
		case "uses":
			hasUses = true
			s.Uses = d.uses(v)
		case "with":
			with = &v
		case "id":
			s.ID = d.stepID(v)
		default:
			d.stepField(key, v, &s)
		}
	})
	switch {
	case !ok:
	case hasRun && hasUses:
		d.errorf(v, "make two steps of it", "a step has either run or uses")
	case !hasRun && !hasUses:
		d.errorf(v, "add run:", "a step has neither run nor uses")
	case with != nil && hasRun:
		d.errorf(*with, "use env", "with belongs to uses")
	case with != nil && s.Uses == UsesCheckout:
		d.checkoutWith(*with)
	}
	return s
}

func (d *decoder) stepID(v value) string {
	s, ok := d.word(v)
	if ok && !validID(s) {
		d.errorf(v, idCure, "%q cannot be the id of a step", short(s))
		return ""
	}
	return s
}

func (d *decoder) stepField(key string, v value, s *lock.Step) {
	switch key {
	case "name":
		s.Name = d.template(v, scopeStep)
	case "if":
		s.If = d.condition(v, scopeStepIf)
	case "shell":
		s.Shell, _ = d.word(v)
	case "working-directory":
		s.WorkingDirectory = d.template(v, scopeStep)
	case "env":
		s.Env = d.env(v, scopeStep)
	case "timeout-minutes":
		s.TimeoutMs = d.minutes(v)
	case "continue-on-error":
		s.ContinueOnError = d.flag(v, scopeStep)
	case "retry":
		s.Retry = d.retry(v)
	}
}

// uses understands actions/checkout and refuses every other action, with what to do instead.
func (d *decoder) uses(v value) string {
	s, ok := d.word(v)
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(s, "@")
	switch {
	case strings.EqualFold(name, "actions/checkout"):
		return UsesCheckout
	case strings.HasPrefix(strings.ToLower(name), "actions/setup-"):
		d.errorf(v, "install the tool on the agents, or in a run step", "action %q is not supported", short(s))
	case strings.HasPrefix(name, "./"):
		d.errorf(v, "call its script in a run step", "local actions such as %q are not supported", short(s))
	default:
		d.errorf(v, "do the same in a run step; only actions/checkout is understood", "action %q is not supported", short(s))
	}
	return ""
}

// checkoutWith accepts the options that change nothing here and refuses those that would.
func (d *decoder) checkoutWith(v value) {
	harmless := []string{
		"fetch-depth", "fetch-tags", "persist-credentials", "clean", "show-progress", "set-safe-directory", "token", "filter",
		"github-server-url",
	}
	refused := []string{
		"repository", "ref", "path", "submodules", "lfs", "ssh-key", "ssh-known-hosts", "ssh-strict", "ssh-user", "sparse-checkout",
		"sparse-checkout-cone-mode",
	}
	d.filters(v, keys{name: "with"}, func(key string, v value) {
		switch {
		case slices.Contains(harmless, key):
			d.warnf(v, "remove it", "option %q is ignored: the job's own commit is always checked out, clean", key)
		case slices.Contains(refused, key):
			d.errorf(v, "run git in a step", "option %q of checkout is not supported", key)
		default:
			d.errorf(v, cureFor(key, append(harmless, refused...), ""), "checkout has no option %q", short(key))
		}
	})
}

// checkoutConflict reports a checkout step in a job that says checkout: false.
func (d *decoder) checkoutConflict(steps []lock.Step, v value) {
	for _, s := range steps {
		if s.Uses == UsesCheckout {
			d.errorf(v, "remove one of them", "the job says checkout: false and has a checkout step in line %d", s.Line)
		}
	}
}

var retryKeys = keys{name: "retry", known: []string{"max-attempts", "delay", "backoff", "max-delay"}}

const maxAttempts = 100

// retry reads {max-attempts, delay, backoff, max-delay}, or just the number of attempts.
func (d *decoder) retry(v value) *lock.Retry {
	r := &lock.Retry{}
	if v.n.Kind == scalarKind && !v.isNull() {
		r.MaxAttempts, _ = d.integer(v, 1, maxAttempts)
		return r
	}
	good := d.good(func() {
		d.object(v, retryKeys, func(key string, v value) {
			switch key {
			case "max-attempts":
				r.MaxAttempts, _ = d.integer(v, 1, maxAttempts)
			case "delay":
				r.DelayMs = d.duration(v)
			case "max-delay":
				r.MaxDelayMs = d.duration(v)
			case "backoff":
				if w := d.choices(v, []string{"exponential", "fixed"}); len(w) == 1 {
					r.Backoff = w[0]
				}
			}
		})
	})
	if good && r.MaxAttempts == 0 {
		d.errorf(v, "add max-attempts: 3", "retry has no max-attempts")
	}
	return r
}
