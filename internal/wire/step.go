package wire

import "encoding/json"

// What a running step asks for, by way of its agent (EVT-1). A request carries an id that its author chose: whoever gets no answer
// repeats it with the same id, also after a reconnect or a restart of the orchestrator, and it happens once. Nothing in a request
// says for whom: run, repository and chain depth come from the orchestrator's records of the job (EVT-3).
const (
	TypeEventEmit       = "event.emit"        // EventEmit
	TypeEventEmitResult = "event.emit.result" // StepResult
	TypeJobAdd          = "job.add"           // JobAdd
	TypeJobAddResult    = "job.add.result"    // StepResult
)

// Bounds of what a step asks for. A frame that would exceed MaxFrameBytes once encoded is refused by the agent as too large.
const (
	MaxEventNameBytes    = 200
	MaxEventPayloadBytes = 128 << 10
	MaxTargetRepos       = 50
	MaxTargetRepoBytes   = 300
	MaxJobAddBytes       = 128 << 10
	MaxRequestIDBytes    = 64
)

// EventEmit asks to emit an internal event for a job that the agent holds.
type EventEmit struct {
	RequestID   string          `json:"requestId"`
	JobID       string          `json:"jobId"`
	Attempt     int             `json:"attempt"`
	Name        string          `json:"name"`
	Payload     json.RawMessage `json:"payload,omitempty"`     // any JSON value; nothing is {}
	TargetRepos []string        `json:"targetRepos,omitempty"` // EVT-4; none is no restriction
}

// JobAdd asks to add jobs to the run of a job that the agent holds.
type JobAdd struct {
	RequestID string `json:"requestId"`
	JobID     string `json:"jobId"`
	Attempt   int    `json:"attempt"`
	Jobs      string `json:"jobs"` // YAML with a jobs: map, as in a workflow file
}

// StepResult answers either. Code is empty when it was done.
type StepResult struct {
	RequestID    string   `json:"requestId"`
	JobID        string   `json:"jobId"`
	ID           string   `json:"id,omitempty"`    // of the event
	Names        []string `json:"names,omitempty"` // of the added jobs
	Code         string   `json:"code,omitempty"`  // one of Step*
	Message      string   `json:"message,omitempty"`
	RetryAfterMs int64    `json:"retryAfterMs,omitempty"` // when it may be tried again; 0 is never
}

// Codes of a refusal. Others come from the rooms behind (reserved_name, chain_depth, …) and are passed on as they are.
const (
	StepInvalid     = "invalid"     // the request makes no sense; the message says what
	StepTooLarge    = "too_large"   // beyond one of the bounds
	StepNotYours    = "not_yours"   // the agent does not hold the job
	StepEnded       = "job_ended"   // it did, and does not any more
	StepRateLimited = "rate_limit"  // too many; RetryAfterMs says when
	StepUnavailable = "unavailable" // the orchestrator could not decide; the agent asks again
	StepUnsupported = "unsupported" // not here: an older orchestrator, or a run without one
)
