package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Decision is whether an event starts a workflow, and everything that was looked at (WF-11).
type Decision struct {
	Matched     bool    `json:"matched"`
	Trigger     int     `json:"trigger"`               // index in Workflow.On of the first that matched; -1 if none
	TriggerType string  `json:"triggerType,omitempty"` // its type
	Degraded    bool    `json:"degraded,omitempty"`    // path filters passed because the changed files are unknown (WF-15)
	Checks      []Check `json:"checks"`
}

// Check is one comparison of one trigger.
type Check struct {
	Trigger int    `json:"trigger"` // index in Workflow.On
	Check   string `json:"check"`   // event, branches, tags, paths, types, source, match, …
	Pattern string `json:"pattern,omitempty"`
	Value   string `json:"value,omitempty"`
	Passed  bool   `json:"passed"`
	Reason  string `json:"reason,omitempty"`
}

// ManualEvent may be ci.Event.Name of a dispatch made by hand or by the API (workflow_dispatch in YAML); one with neither name
// nor action is manual too. Any other dispatch is a repository_dispatch, whose type is ci.Event.Action.
const ManualEvent = "workflow_dispatch"

// NeedsChangedFiles reports whether some trigger filters by paths, so that the list is worth fetching (PIPE-6).
func NeedsChangedFiles(w *lock.Workflow) bool {
	return slices.ContainsFunc(w.On, func(t lock.Trigger) bool { return len(t.Paths) > 0 })
}

// Match decides whether an event starts a workflow. Triggers are tried in order, the first that matches wins, and every
// check up to there is recorded (WF-11…WF-16).
func Match(w *lock.Workflow, ev ci.Event) Decision {
	return match(w, ev, func(*lock.Trigger) bool { return true })
}

func match(w *lock.Workflow, ev ci.Event, counts func(*lock.Trigger) bool) Decision {
	m := matcher{ev: ev, out: Decision{Trigger: -1, Checks: []Check{}}}
	for i := range w.On {
		m.index = i
		if counts(&w.On[i]) && m.trigger(&w.On[i]) {
			m.out.Matched, m.out.Trigger, m.out.TriggerType = true, i, w.On[i].Type
			break
		}
	}
	m.out.Degraded = m.out.Matched && m.degraded == m.index+1
	return m.out
}

type matcher struct {
	ev       ci.Event
	index    int
	out      Decision
	degraded int // 1 + index of the last trigger whose path filters passed unseen
	payload  any // of ev, decoded when first needed
	decoded  bool
	bad      error
}

// record notes a check and returns its result.
func (m *matcher) record(c Check) bool {
	c.Trigger, c.Pattern, c.Value = m.index, cut(c.Pattern), cut(c.Value)
	m.out.Checks = append(m.out.Checks, c)
	return c.Passed
}

// cut bounds what a check repeats of an event that an outsider made.
func cut(s string) string {
	const most = 500
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func (m *matcher) trigger(t *lock.Trigger) bool {
	if !m.record(Check{Check: "event", Pattern: t.Type, Value: m.ev.Type, Passed: t.Type == m.ev.Type}) {
		return false
	}
	if m.ev.Deleted {
		return m.record(Check{Check: "deleted", Value: m.ev.Ref, Reason: "the ref was deleted: there is nothing to run"})
	}
	repos := m.repos(t)
	return m.filters(t) && repos
}

// filters looks at what belongs to the trigger's type.
func (m *matcher) filters(t *lock.Trigger) bool {
	switch t.Type {
	case TypePush:
		return m.all(m.ordered("branches", t.Branches, m.branch()), m.paths(t))
	case TypeTag:
		return m.all(m.ordered("tags", t.Patterns, m.tag()), m.paths(t))
	case TypePullRequest:
		return m.pullRequest(t)
	case TypeComment:
		return m.comment(t)
	case TypeDispatch:
		return m.dispatch(t)
	case TypeGenericWebhook:
		return m.all(m.exact("source", t.Source, m.ev.Source), m.anyOf("events", t.Events, m.ev.Name), m.fields("match", t.Match), m.fields("not", t.Not))
	case TypeKiciEvent:
		return m.all(m.exact("name", t.EventName, m.ev.Name), m.exact("source", t.Source, m.ev.Repo), m.fields("match", t.Match), m.fields("not", t.Not))
	case TypeSchedule:
		return m.schedule(t)
	case TypeWorkflowComplete, TypeJobComplete:
		return m.complete(t)
	case TypeLifecycle:
		return m.lifecycle(t)
	case TypeFailedBatch: // it is addressed to one registration, which collected its runs (EVT-20)
		return true
	}
	return m.record(Check{Check: "event", Pattern: t.Type, Reason: "this version does not know the trigger"})
}

// all reports whether every check passed; they have all been recorded by then.
func (m *matcher) all(checks ...bool) bool { return !slices.Contains(checks, false) }

func (m *matcher) branch() string {
	if m.ev.Branch != "" {
		return m.ev.Branch
	}
	return strings.TrimPrefix(m.ev.Ref, "refs/heads/")
}

func (m *matcher) tag() string {
	if m.ev.Tag != "" {
		return m.ev.Tag
	}
	return strings.TrimPrefix(m.ev.Ref, "refs/tags/")
}

// ordered is a filter of branches or tags; an empty one passes and is not recorded.
func (m *matcher) ordered(check string, patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	ok, by := matchOrdered(patterns, name)
	c := Check{Check: check, Pattern: strings.Join(patterns, ", "), Value: name, Passed: ok}
	switch {
	case by != "":
		c.Reason = "decided by " + by
	case !ok:
		c.Reason = "no pattern matches"
	}
	return m.record(c)
}

func (m *matcher) paths(t *lock.Trigger) bool {
	if len(t.Paths) == 0 {
		return true
	}
	c := Check{Check: "paths", Pattern: strings.Join(t.Paths, ", ")}
	if m.ev.ChangedFilesErr != "" {
		m.degraded = m.index + 1
		c.Passed, c.Reason = true, "the changed files are unknown, so the filter passes: "+cut(m.ev.ChangedFilesErr)
		return m.record(c)
	}
	c.Passed, c.Value = matchPaths(t.Paths, m.ev.ChangedFiles)
	switch n := len(m.ev.ChangedFiles); {
	case n == 0:
		c.Reason = "no file changed"
	case !c.Passed:
		c.Reason = fmt.Sprintf("none of %d changed files matches", n)
	}
	return m.record(c)
}

func (m *matcher) exact(check, want, got string) bool {
	return want == "" || m.record(Check{Check: check, Pattern: want, Value: got, Passed: want == got})
}

func (m *matcher) anyOf(check string, want []string, got string) bool {
	return len(want) == 0 || m.record(Check{
		Check: check, Pattern: strings.Join(want, ", "), Value: got, Passed: slices.Contains(want, got),
	})
}

func (m *matcher) pullRequest(t *lock.Trigger) bool {
	events := t.Events
	if len(events) == 0 {
		events = []string{"opened", "synchronize", "reopened", "closed"} // WF-12
	}
	action := m.anyOf("types", events, m.ev.Action)
	target := m.ordered("branches", t.TargetBranches, m.ev.TargetBranch)
	var source bool
	if len(t.SourceBranches) > 0 && m.ev.SourceBranch == "" { // WF-13
		source = m.record(Check{
			Check: "source-branches", Pattern: strings.Join(t.SourceBranches, ", "), Reason: "the event names no source branch",
		})
	} else {
		source = m.ordered("source-branches", t.SourceBranches, m.ev.SourceBranch)
	}
	return m.all(action, target, source, m.paths(t))
}

func (m *matcher) dispatch(t *lock.Trigger) bool {
	manual := m.ev.Name == ManualEvent || m.ev.Name == "" && m.ev.Action == ""
	want := map[bool]string{true: ManualEvent, false: "repository_dispatch"}
	if t.Manual || manual {
		return m.record(Check{Check: "dispatch", Pattern: want[t.Manual], Value: want[manual], Passed: t.Manual == manual})
	}
	return m.anyOf("types", t.Types, m.ev.Action)
}

// schedule needs both the expression and the zone to be equal (WF-18).
func (m *matcher) schedule(t *lock.Trigger) bool {
	zone := t.Timezone
	if zone == "" {
		zone = "UTC"
	}
	got := m.text("$.timezone")
	if got == "" {
		got = "UTC"
	}
	cron := m.text("$.cronExpression")
	return m.all(
		m.record(Check{Check: "cron", Pattern: t.Cron, Value: cron, Passed: t.Cron == cron}),
		m.record(Check{Check: "timezone", Pattern: zone, Value: got, Passed: zone == got}))
}

// complete matches the ends of runs and jobs by the payloads of EVT-9.
func (m *matcher) complete(t *lock.Trigger) bool {
	return m.all(
		m.exact("source", t.Source, m.ev.Repo),
		t.Workflow == "" || m.exact("workflow", t.Workflow, m.text("$.workflowName")),
		t.Job == "" || m.exact("job", t.Job, m.text("$.jobName")),
		len(t.Status) == 0 || m.anyOf("status", t.Status, m.text("$.status")))
}

// root decodes the payload once.
func (m *matcher) root() any {
	if !m.decoded {
		m.decoded = true
		if len(m.ev.Payload) > 0 {
			m.bad = json.Unmarshal(m.ev.Payload, &m.payload)
		}
	}
	return m.payload
}

func (m *matcher) text(path string) string {
	p, err := parseJSONPath(path)
	if err != nil {
		return ""
	}
	for _, v := range first(p.find(m.root())) {
		if s, ok := v.(string); ok {
			return s
		}
	}
	return ""
}

func first[T, U any](t T, _ U) T { return t }

// fields is match or not: every path of match must yield an expected value, no path of not may (WF-16).
func (m *matcher) fields(check string, want map[string]any) bool {
	passed := true
	for _, path := range sortedKeys(want) {
		passed = m.field(check, path, want[path]) && passed
	}
	return passed
}

func (m *matcher) field(check, path string, want any) bool {
	c := Check{Check: check, Pattern: path + " = " + printJSON(want)}
	p, err := parseJSONPath(path)
	if err != nil {
		c.Reason = "invalid JSONPath: " + err.Error()
		return m.record(c)
	}
	values, over := p.find(m.root())
	switch {
	case m.bad != nil:
		c.Reason = "the payload is not JSON"
		return m.record(c)
	case over:
		c.Reason = "the payload is too large to look through"
		return m.record(c)
	}
	hit := slices.ContainsFunc(values, func(v any) bool { return expected(v, want) })
	c.Passed = hit == (check == "match")
	switch {
	case len(values) == 0:
		c.Reason = "the path is not there"
	case len(values) == 1:
		c.Value = printJSON(values[0])
	default:
		c.Value = fmt.Sprintf("%d values", len(values))
	}
	return m.record(c)
}

func printJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
