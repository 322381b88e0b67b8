package workflow

import (
	"time"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// Triggers by what became of other runs (WF-12, WF-17).
const (
	TypeLifecycle   = "lifecycle"
	TypeFailedBatch = "workflows_failed_batch"
)

// Events of the lifecycle trigger (WF-17).
const (
	LifecycleWorkflowComplete    = "workflow_complete"
	LifecycleJobComplete         = "job_complete"
	LifecycleJobFailed           = "job_failed"
	LifecycleRegistrationUpdated = "registration_updated"
)

var lifecycleEvents = []string{LifecycleWorkflowComplete, LifecycleJobComplete, LifecycleJobFailed, LifecycleRegistrationUpdated}

// How long failures are collected (EVT-27).
const (
	defaultAccumulate = time.Minute
	minAccumulate     = time.Second
)

var (
	lifecycleKeys   = keys{name: TypeLifecycle, known: []string{"events", "sources"}}
	failedBatchKeys = keys{name: TypeFailedBatch, known: []string{"accumulate-for"}}
)

// lifecycle demands its events: without them a workflow would start itself by each of its own jobs.
func (d *decoder) lifecycle(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeLifecycle}
	good := d.good(func() {
		d.filters(v, lifecycleKeys, func(key string, v value) {
			switch key {
			case "events":
				t.Events = d.choices(v, lifecycleEvents)
			case "sources":
				t.Sources = d.words(v)
			}
		})
	})
	if len(t.Events) == 0 && good {
		d.errorf(v, "add events: [job_failed]", "lifecycle names no events")
	}
	return t
}

func (d *decoder) failedBatch(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeFailedBatch, AccumulateForMs: defaultAccumulate.Milliseconds()}
	d.filters(v, failedBatchKeys, func(_ string, v value) {
		before := d.errors
		t.AccumulateForMs = d.duration(v)
		if t.AccumulateForMs < minAccumulate.Milliseconds() && d.errors == before {
			d.errorf(v, "write 10m, for instance", "failures must be collected for at least %s", minAccumulate)
		}
	})
	return t
}

// lifecycle compares the event's name, and where it happened.
func (m *matcher) lifecycle(t *lock.Trigger) bool {
	return m.all(m.anyOf("events", t.Events, m.ev.Name), m.anyOf("sources", t.Sources, m.ev.Repo))
}

// FailedBatch returns the workflow's trigger for collected failures and for how long it collects, nil when it has none.
func FailedBatch(w *lock.Workflow) (t *lock.Trigger, accumulate time.Duration) {
	for i := range w.On {
		if w.On[i].Type == TypeFailedBatch {
			ms := w.On[i].AccumulateForMs
			if ms <= 0 {
				ms = defaultAccumulate.Milliseconds()
			}
			return &w.On[i], min(max(time.Duration(ms)*time.Millisecond, minAccumulate), maxDuration)
		}
	}
	return nil, 0
}

// MatchName reports whether a name is like a glob; an invalid one is like nothing.
func MatchName(pattern, name string) bool {
	g, err := parseGlob(pattern)
	return err == nil && g.match(name)
}

// CheckName reports a glob that cannot be used.
func CheckName(pattern string) error {
	_, err := parseGlob(pattern)
	return err
}
