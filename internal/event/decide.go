package event

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Outcomes of an event that was routed (EVT-24).
const (
	OutcomeMatched        = "matched"
	OutcomeBuffered       = "buffered"
	OutcomeNoRegistration = "no-registration"
	OutcomeNoTarget       = "no-target-repo"
	OutcomeTrust          = "trust-blocked"
	OutcomeNoTrigger      = "no-trigger-match"
)

// Outcomes lists them all.
var Outcomes = []string{OutcomeMatched, OutcomeBuffered, OutcomeNoRegistration, OutcomeNoTarget, OutcomeTrust, OutcomeNoTrigger}

// facts is all that a routing decision rests on.
type facts struct {
	event      db.KiciEvent
	candidates []candidate
	trust      []db.CrossRepoTrust // enabled rows of the event's repository and routing key
	origin     origin
}

// candidate is a registration that has a trigger of a type that the event may fire.
type candidate struct {
	reg      db.WorkflowRegistration
	workflow *lock.Workflow // nil when this binary cannot read it
}

// origin is what the emitting run hands on (EVT-23).
type origin struct {
	tier       ci.TrustTier
	branch     string
	actor      string
	byFailures bool // it was started by a failure itself, so its own is not batched (EVT-28)
}

// verdict is what becomes of an event.
type verdict struct {
	targets []target
	buffers []buffer
	unread  []db.WorkflowRegistration // addressed, and this binary cannot read it
	outcome string                    // when nothing is dispatched; with a target it is matched
}

// target is a workflow to start.
type target struct {
	candidate
	event    ci.Event
	decision workflow.Decision
	branch   string
}

// buffer is a registration that collects the failure.
type buffer struct {
	reg        db.WorkflowRegistration
	accumulate time.Duration
}

// decide is the whole routing decision: candidates → addressee → target repositories → trust → trigger (EVT-20…25). It is a function
// of its facts alone.
func decide(f facts) verdict {
	e := f.event
	status := statusOf(json.RawMessage(e.Payload))
	addressee, addressed := addresseeOf(e)
	repos := targetsOf(e.TargetRepos)
	v := verdict{}
	reached, blocked, failed := 0, 0, 0
	for _, c := range f.candidates {
		switch {
		case c.reg.OrgID != e.OrgID: // whatever trust rows say (EVT-22)
			continue
		case addressed && c.reg.ID != addressee:
			continue
		case len(repos) > 0 && !slices.Contains(repos, c.reg.Repo):
			continue
		}
		reached++
		if !trusted(e, c.reg, f.trust) {
			blocked++
			continue
		}
		if c.workflow == nil { // an event that names it waits for somebody who mends that; others would be one dead letter each
			failed++
			if addressed {
				v.unread = append(v.unread, c.reg)
			}
			continue
		}
		hit := false
		if t, ok := fire(f, c, status); ok {
			v.targets, hit = append(v.targets, t), true
		}
		if b, ok := collect(f, c, status); ok {
			v.buffers, hit = append(v.buffers, b), true
		}
		if !hit {
			failed++
		}
	}
	switch {
	case len(v.targets) > 0:
		v.outcome = OutcomeMatched
	case len(f.candidates) == 0:
		v.outcome = OutcomeNoRegistration
	case reached == 0:
		v.outcome = OutcomeNoTarget
	case len(v.buffers) > 0:
		v.outcome = OutcomeBuffered
	case blocked > 0 && failed == 0:
		v.outcome = OutcomeTrust
	default:
		v.outcome = OutcomeNoTrigger
	}
	return v
}

// addresseeOf returns the only registration that may get the event (EVT-20).
func addresseeOf(e db.KiciEvent) (id string, addressed bool) {
	if e.RegistrationID != "" {
		return e.RegistrationID, true
	}
	if e.EventName != ScheduleFire && e.EventName != FailedBatch {
		return "", false
	}
	var p struct {
		RegistrationID string `json:"registrationId"`
	}
	_ = json.Unmarshal([]byte(e.Payload), &p) // one that names nobody reaches nobody
	return p.RegistrationID, true
}

// targetsOf are the repositories to which the event is restricted.
func targetsOf(text string) []string {
	var repos []string
	if err := json.Unmarshal([]byte(text), &repos); err != nil {
		return []string{""} // it cannot be read, so it reaches nobody
	}
	return repos
}

// fire reports whether the event starts the workflow: some trigger matches one of the ways in which triggers see the event. The
// first trigger of the file that does is recorded (WF-11).
func fire(f facts, c candidate, status string) (target, bool) {
	best := target{candidate: c, decision: workflow.Decision{Trigger: -1}}
	for _, v := range views(f.event.EventName, status) {
		ev := eventFor(f, v)
		found := workflow.Match(c.workflow, ev)
		if found.Matched && (!best.decision.Matched || found.Trigger < best.decision.Trigger) {
			best.event, best.decision = ev, found
		}
	}
	if !best.decision.Matched {
		return best, false
	}
	best.branch = branchFor(f, c.reg)
	return best, true
}

// eventFor is the event as triggers and jobs see it.
func eventFor(f facts, v view) ci.Event {
	e := f.event
	return ci.Event{
		Type: v.triggerType, Name: v.name, Action: v.action, Source: e.SourceRoutingKey, Repo: e.SourceRepo, Actor: f.origin.actor,
		Payload: json.RawMessage(e.Payload),
	}
}

// branchFor is what the run presents to branch restrictions (EVT-23).
func branchFor(f facts, reg db.WorkflowRegistration) string {
	switch {
	case f.event.EventName == ScheduleFire:
		return reg.DefaultBranch
	case f.event.EventName == FailedBatch:
		return ""
	case f.event.SourceRunID == "": // nobody's run: the workflow's own branch is all there is
		return reg.DefaultBranch
	}
	return f.origin.branch
}

// collect reports whether the registration adds the failure of this event to a batch (EVT-27, EVT-28).
func collect(f facts, c candidate, status string) (buffer, bool) {
	if f.event.EventName != WorkflowComplete || status != string(ci.RunFailed) || f.origin.byFailures || f.event.SourceRunID == "" {
		return buffer{}, false
	}
	t, accumulate := workflow.FailedBatch(c.workflow)
	return buffer{c.reg, accumulate}, t != nil
}
