package ci

import "fmt"

// RunStatus is the stored status of a run (STM-3). The zero value is invalid.
type RunStatus string

// The stored run statuses. The last three are terminal and never change (STM-5).
const (
	RunPending    RunStatus = "pending"
	RunRunning    RunStatus = "running"
	RunHeld       RunStatus = "held"
	RunCancelling RunStatus = "cancelling"
	RunSuccess    RunStatus = "success"
	RunFailed     RunStatus = "failed"
	RunCancelled  RunStatus = "cancelled"
)

// RunStatuses are all of them, in order of life.
var RunStatuses = []RunStatus{RunPending, RunRunning, RunHeld, RunCancelling, RunSuccess, RunFailed, RunCancelled}

// Terminal reports whether the run has ended for good.
func (s RunStatus) Terminal() bool {
	return s == RunSuccess || s == RunFailed || s == RunCancelled
}

// JobStatus is the stored status of a job (STM-3, D5). The zero value is invalid.
type JobStatus string

// The stored job statuses. Those from JobSuccess on are terminal and never change (STM-5).
const (
	JobPending    JobStatus = "pending"    // created, waits for its needs
	JobQueued     JobStatus = "queued"     // ready, waits for an agent
	JobRunning    JobStatus = "running"    // an agent acknowledged it
	JobRecovering JobStatus = "recovering" // its agent's link is lost, within the grace (D17)
	JobCancelling JobStatus = "cancelling" // its agent was told to stop
	JobHeld       JobStatus = "held"
	JobWaiting    JobStatus = "waiting"
	JobSuccess    JobStatus = "success"
	JobFailed     JobStatus = "failed"
	JobCancelled  JobStatus = "cancelled"
	JobSkipped    JobStatus = "skipped"
	JobStale      JobStatus = "timed_out_stale"
	JobDrift      JobStatus = "drift_dropped"
	JobUnroutable JobStatus = "unroutable"
)

// TerminalJobStatuses are all statuses a job can end in, in a fixed order.
var TerminalJobStatuses = []JobStatus{JobSuccess, JobFailed, JobCancelled, JobSkipped, JobStale, JobDrift, JobUnroutable}

// Terminal reports whether the job has ended for good.
func (s JobStatus) Terminal() bool {
	switch s {
	case JobSuccess, JobFailed, JobCancelled, JobSkipped, JobStale, JobDrift, JobUnroutable:
		return true
	}
	return false
}

// Failure reports whether the status counts as a failure of the job (STM-4, D8).
func (s JobStatus) Failure() bool {
	return s == JobFailed || s == JobStale || s == JobUnroutable || s == JobDrift
}

// Result is the word that expressions see as needs.<job>.result (D8). allowedFailure is D6: it counts as success.
// Non-terminal statuses give "".
func (s JobStatus) Result(allowedFailure bool) string {
	switch {
	case s == JobSuccess, s.Failure() && allowedFailure:
		return "success"
	case s.Failure():
		return "failure"
	case s == JobCancelled:
		return "cancelled"
	case s == JobSkipped:
		return "skipped"
	}
	return ""
}

// StepStatus is the stored status of a step (STM-3). The zero value is invalid.
type StepStatus string

// The stored step statuses.
const (
	StepPending   StepStatus = "pending"
	StepRunning   StepStatus = "running"
	StepSuccess   StepStatus = "success"
	StepFailed    StepStatus = "failed"
	StepSkipped   StepStatus = "skipped"
	StepCancelled StepStatus = "cancelled"
)

// Terminal reports whether the step has ended.
func (s StepStatus) Terminal() bool {
	return s != "" && s != StepPending && s != StepRunning
}

// JobEvent is something that happens to a job; NextJob says what becomes of its status (STM-1).
type JobEvent string

// The events of STM-1.
const (
	EventEnqueue        JobEvent = "enqueue"
	EventHold           JobEvent = "hold"
	EventWait           JobEvent = "wait"
	EventSkip           JobEvent = "skip"
	EventCancel         JobEvent = "cancel"
	EventStart          JobEvent = "start"
	EventFail           JobEvent = "fail"
	EventSucceed        JobEvent = "succeed"
	EventRecover        JobEvent = "recover"
	EventCancelGraceful JobEvent = "cancel-graceful"
	EventComplete       JobEvent = "complete"
	EventCancelForce    JobEvent = "cancel-force"
	EventApprove        JobEvent = "approve"
	EventReject         JobEvent = "reject"
	EventExpire         JobEvent = "expire"
	EventTimerDone      JobEvent = "timer-done"
	EventRequeue        JobEvent = "requeue" // a dispatched or recovering job that had not started goes back (QUE-11)
	EventStale          JobEvent = "stale"
	EventUnroutable     JobEvent = "unroutable"
	EventDrift          JobEvent = "drift"
)

var jobMoves = map[JobStatus]map[JobEvent]JobStatus{
	JobPending: {
		EventEnqueue: JobQueued, EventHold: JobHeld, EventWait: JobWaiting, EventSkip: JobSkipped,
		EventCancel: JobCancelled, EventFail: JobFailed,
	},
	JobQueued: {
		EventStart: JobRunning, EventFail: JobFailed, EventCancel: JobCancelled, EventCancelGraceful: JobCancelling,
		EventUnroutable: JobUnroutable, EventStale: JobStale, EventRequeue: JobQueued,
	},
	JobRunning: {
		EventSucceed: JobSuccess, EventFail: JobFailed, EventRecover: JobRecovering, EventCancel: JobCancelled,
		EventCancelGraceful: JobCancelling, EventStale: JobStale, EventDrift: JobDrift, EventStart: JobRunning,
	},
	JobRecovering: {
		EventStart: JobRunning, EventFail: JobFailed, EventCancel: JobCancelled, EventCancelGraceful: JobCancelling,
		EventSucceed: JobSuccess, EventStale: JobStale,
	},
	JobCancelling: {
		EventComplete: JobCancelled, EventCancelForce: JobCancelled, EventCancel: JobCancelled, EventFail: JobFailed,
		EventSucceed:        JobSuccess, // STM-6: its report came first
		EventCancelGraceful: JobCancelling, EventStart: JobCancelling,
	},
	JobHeld: {
		EventApprove: JobQueued, EventReject: JobCancelled, EventExpire: JobFailed, EventCancel: JobCancelled,
	},
	JobWaiting: {EventTimerDone: JobQueued, EventCancel: JobCancelled},
}

// NextJob returns the status that follows from by event, or an error that names both when the move is not legal
// (STM-1). A terminal status has no moves.
func NextJob(from JobStatus, event JobEvent) (JobStatus, error) {
	if to, ok := jobMoves[from][event]; ok {
		return to, nil
	}
	return "", fmt.Errorf("job status %q does not allow %q", from, event)
}

// Display is how a status is shown everywhere: one word and one style class (D5).
type Display struct{ Word, Class string }

// Display returns the word and class of a job's status. allowedFailure is D6.
func (s JobStatus) Display(allowedFailure bool) Display {
	switch s {
	case JobPending:
		return Display{"waiting", "pending"}
	case JobStale:
		return Display{"timed out", "failed"}
	case JobDrift:
		return Display{"drift dropped", "failed"}
	case JobUnroutable:
		return Display{"unroutable", "failed"}
	case JobFailed:
		if allowedFailure {
			return Display{"failed, allowed", "allowed"}
		}
	case JobRecovering, JobCancelling:
		return Display{string(s), "running"}
	case JobWaiting:
		return Display{"waiting", "held"}
	}
	return Display{string(s), string(s)}
}

// Display returns the word and class of a run's status.
func (s RunStatus) Display() Display {
	if s == RunCancelling {
		return Display{"cancelling", "running"}
	}
	return Display{string(s), string(s)}
}

// Display returns the word and class of a step's status.
func (s StepStatus) Display() Display { return Display{string(s), string(s)} }

// Verdict is the status of a run whose jobs are all terminal (PIPE-19): any failure that is not allowed fails it, else
// any cancelled job cancels it, else it succeeded. ok is false while some job is open.
func Verdict(jobs []JobOutcome) (status RunStatus, ok bool) {
	status = RunSuccess
	for _, j := range jobs {
		switch {
		case !j.Status.Terminal():
			return "", false
		case j.Status.Failure() && !j.AllowedFailure:
			status = RunFailed
		case j.Status == JobCancelled && status != RunFailed:
			status = RunCancelled
		}
	}
	return status, true
}

// JobOutcome is what Verdict and needs look at.
type JobOutcome struct {
	Status         JobStatus
	AllowedFailure bool
}
