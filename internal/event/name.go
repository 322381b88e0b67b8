package event

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow"
)

// Names of the events that the orchestrator emits (EVT-9).
const (
	WorkflowComplete    = "__workflow_complete"
	JobComplete         = "__job_complete"
	FailedBatch         = "__workflows_failed_batch"
	ScheduleFire        = "__schedule_fire"
	RegistrationUpdated = "registration.updated"
	ScaleUp             = "kici.scaler.scale-up"
	ScaleDown           = "kici.scaler.scale-down"
)

// scalerFamily is the reserved family of names whose events somebody must answer (EVT-26).
const scalerFamily = "kici."

// reservedPrefixes belong to the orchestrator (EVT-2).
var reservedPrefixes = []string{"__", scalerFamily}

// Reserved returns the reserved prefix that a name begins with, "" for a name that anybody may emit.
func Reserved(name string) string {
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// CheckName says what is wrong with the name of an event that a step or a person wants to emit.
func CheckName(name string) error {
	switch {
	case name == "":
		return &Refused{Code: CodeName, Message: "the event has no name"}
	case len(name) > MaxNameBytes:
		return &Refused{Code: CodeName, Message: fmt.Sprintf("the event's name is longer than %d bytes", MaxNameBytes)}
	case Reserved(name) != "":
		return &Refused{Code: CodeReserved, Message: fmt.Sprintf("event %q cannot be emitted: names that begin with %q belong to kici itself; choose another", name, Reserved(name))}
	}
	for _, c := range name {
		if c <= ' ' || c == 0x7f || c == '\ufffd' || c > 0x7f && !printable(c) {
			return &Refused{Code: CodeName, Message: fmt.Sprintf("event name %q has a space or a character that cannot be seen; use letters, digits, '.', '-' and '_'", name)}
		}
	}
	return nil
}

// view is one way in which triggers see an event (EVT-10).
type view struct {
	triggerType string
	name        string // ci.Event.Name
	action      string // ci.Event.Action, and the second half of the run's trigger event
}

// triggerTypes are the types of triggers that an event may fire; their registrations are its candidates.
func triggerTypes(name string) []string {
	switch name {
	case ScheduleFire:
		return []string{workflow.TypeSchedule}
	case FailedBatch:
		return []string{workflow.TypeFailedBatch}
	case WorkflowComplete:
		return []string{workflow.TypeWorkflowComplete, workflow.TypeLifecycle, workflow.TypeFailedBatch}
	case JobComplete:
		return []string{workflow.TypeJobComplete, workflow.TypeLifecycle}
	case RegistrationUpdated:
		return []string{workflow.TypeKiciEvent, workflow.TypeLifecycle}
	}
	return []string{workflow.TypeKiciEvent}
}

// views are the ways in which triggers see an event whose payload says status; batches of failures are not among them.
func views(name, status string) []view {
	switch name {
	case ScheduleFire:
		return []view{{workflow.TypeSchedule, name, ""}}
	case FailedBatch:
		return []view{{workflow.TypeFailedBatch, name, ""}}
	case WorkflowComplete:
		return []view{{workflow.TypeWorkflowComplete, name, status}, {workflow.TypeLifecycle, workflow.LifecycleWorkflowComplete, workflow.LifecycleWorkflowComplete}}
	case JobComplete:
		out := []view{{workflow.TypeJobComplete, name, status}, {workflow.TypeLifecycle, workflow.LifecycleJobComplete, workflow.LifecycleJobComplete}}
		if jobFailed(status) {
			out = append(out, view{workflow.TypeLifecycle, workflow.LifecycleJobFailed, workflow.LifecycleJobFailed})
		}
		return out
	case RegistrationUpdated:
		return []view{
			{workflow.TypeKiciEvent, name, name},
			{workflow.TypeLifecycle, workflow.LifecycleRegistrationUpdated, workflow.LifecycleRegistrationUpdated},
		}
	}
	return []view{{workflow.TypeKiciEvent, name, name}}
}

// jobFailed is WF-17's: a job ended failed or timed_out_stale.
func jobFailed(status string) bool {
	return status == string(ci.JobFailed) || status == string(ci.JobStale)
}

// statusOf reads the status of a lifecycle event's payload, "" for any other.
func statusOf(payload json.RawMessage) string {
	var p struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(payload, &p) // a payload of another shape has no status
	return p.Status
}

// Bounds of one emitted event.
const (
	MaxNameBytes    = 200
	MaxPayloadBytes = 64 << 10 // encoded
	MaxTargets      = 50       // repositories
	maxTargetBytes  = 300
	maxActorBytes   = 200
	maxErrorBytes   = 4096 // of last_error (EVT-12)
)
