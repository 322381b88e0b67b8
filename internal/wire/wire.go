// Package wire is what agents and the orchestrator say to each other: message names, fields, close codes, protocol
// versions and limits (spec AG-*). Small messages travel as JSON text frames over one WebSocket (<base>/ws); bulk (job
// descriptions, logs) by HTTP, see Path*. It imports no other kici package.
package wire

import "encoding/json"

// Protocol versions. An agent below MinProtocolVersion is closed with CloseProtocol (AG-7).
const (
	ProtocolVersion    = 1
	MinProtocolVersion = 1
)

// Limits of the link (D18, AG-14).
const (
	MaxFrameBytes    = 256 << 10
	MaxLogChunkBytes = 4 << 20   // one log POST
	MaxJobLogBytes   = 512 << 20 // a whole job
	MaxJobSpecBytes  = 8 << 20
	MaxOutputsBytes  = 192 << 10 // all outputs of a job, in the final status
)

// Close codes (AG-12).
const (
	CloseGoingAway   = 1001
	CloseHandshake   = 4002
	CloseInvalid     = 4003
	CloseHeartbeat   = 4004
	CloseProtocol    = 4005
	CloseScalerState = 4006
	CloseAuthFailed  = 4010
	CloseNotAcked    = 4031
	CloseSuperseded  = 4032
	CloseAgentGone   = 4033 // this agent's row has ended; leave (kici's own)
)

// HTTP paths beside the socket, relative to the base path. {job} is the job id. All need "Authorization: Bearer <agent token>"
// and "X-Kici-Agent: <agent id>".
const (
	PathSocket = "/ws"
	PathJob    = "/api/v1/agent/jobs/{job}"        // GET → JobSpec (the caller must hold the open assignment)
	PathSource = "/api/v1/agent/jobs/{job}/source" // GET → tar of the job's commit, for an agent without git; cut off when it fails
	PathLog    = "/api/v1/agent/jobs/{job}/logs"   // POST ?step=N&offset=BYTES&attempt=A → LogAck; body: STO-10 JSON lines
)

// ExitNoToken is the exit status of an agent whose token never came (D13): EX_NOPERM of sysexits.h. It has done nothing.
const ExitNoToken = 77

// Message types.
const (
	TypeAuthRequest  = "auth.request"
	TypeAuthSuccess  = "auth.success"
	TypeAuthFailure  = "auth.failure"
	TypeRegister     = "agent.register"
	TypeRegisterAck  = "register.ack"
	TypeConfigAck    = "config.ack"
	TypeHeartbeat    = "heartbeat"
	TypeJobHeartbeat = "job.heartbeat"
	TypeAgentStatus  = "agent.status"
	TypeJobDispatch  = "job.dispatch"
	TypeJobAck       = "job.ack"
	TypeJobReject    = "job.reject"
	TypeJobCancel    = "job.cancel"
	TypeStepStatus   = "step.status"
	TypeJobStatus    = "job.status"
	TypeReportAck    = "report.ack"
	TypeDrain        = "agent.drain"
	TypeRateWarning  = "rate.limit.warning"
)

// Frame is one text frame: a type and its body. Body is one of the structs below, by Type.
type Frame struct {
	Type string          `json:"type"`
	Body json.RawMessage `json:"body,omitempty"`
}

// AuthRequest is the first frame of an agent in token mode, within 5 s (AG-7).
type AuthRequest struct {
	Token           string `json:"token"`
	ProtocolVersion int    `json:"protocolVersion"`
}

// AuthSuccess answers AuthRequest.
type AuthSuccess struct {
	ConnectionID string `json:"connectionId"`
}

// AuthFailure precedes a close with CloseAuthFailed; the agent must stop retrying.
type AuthFailure struct {
	Reason string `json:"reason"`
}

// Register follows within 10 s (AG-8).
type Register struct {
	MessageID      string            `json:"messageId"`
	AgentID        string            `json:"agentId"`
	Labels         []string          `json:"labels"`
	Platform       string            `json:"platform"` // GOOS
	Arch           string            `json:"arch"`     // GOARCH
	Version        string            `json:"version"`
	MaxConcurrency int               `json:"maxConcurrency"`
	InFlightJobs   []InFlight        `json:"inFlightJobs"`
	Hostname       string            `json:"hostname,omitempty"`
	OSRelease      string            `json:"osRelease,omitempty"`
	OSVersion      string            `json:"osVersion,omitempty"`
	TotalMemoryMb  int64             `json:"totalMemoryMb,omitempty"`
	CPUCount       int               `json:"cpuCount,omitempty"`
	RunningAsUser  string            `json:"runningAsUser,omitempty"`
	RunningAsUID   int               `json:"runningAsUid"`
	Properties     map[string]string `json:"properties,omitempty"`
	Capabilities   []string          `json:"capabilities,omitempty"`
}

// InFlight names a job that the agent still works on, or whose final status was not acknowledged.
type InFlight struct {
	JobID   string `json:"jobId"`
	RunID   string `json:"runId"`
	Attempt int    `json:"attempt"`
	Ended   bool   `json:"ended,omitempty"` // finished; the final status follows
}

// RegisterAck answers Register (AG-10).
type RegisterAck struct {
	AgentID         string   `json:"agentId"`
	Labels          []string `json:"labels"`
	ScalerManaged   bool     `json:"scalerManaged"`
	Capabilities    []string `json:"capabilities"`
	PendingDispatch bool     `json:"pendingDispatch,omitempty"` // a job is bound to this agent: wait longer before idling out
	WarmPool        bool     `json:"warmPool,omitempty"`
	Abandon         []string `json:"abandon,omitempty"` // in-flight job ids that are no longer this agent's: stop them, report nothing
}

// Heartbeat goes both ways every 30 s (AG-16).
type Heartbeat struct {
	Timestamp int64 `json:"timestamp"`
}

// JobHeartbeat says that a job is being worked on (AG-17).
type JobHeartbeat struct {
	RunID     string `json:"runId"`
	JobID     string `json:"jobId"`
	Attempt   int    `json:"attempt"`
	Timestamp int64  `json:"timestamp"`
}

// AgentStatus is informative (AG-17).
type AgentStatus struct {
	ActiveJobs        int   `json:"activeJobs"`
	MemoryUsedMb      int64 `json:"memoryUsedMb"`
	MemoryAvailableMb int64 `json:"memoryAvailableMb"`
	UptimeSeconds     int64 `json:"uptimeSeconds"`
}

// JobDispatch hands a job over; the agent fetches the description by PathJob and checks Digest (D18).
type JobDispatch struct {
	RunID   string `json:"runId"`
	JobID   string `json:"jobId"`
	Attempt int    `json:"attempt"`
	Digest  string `json:"digest,omitempty"` // sha256 hex of the JobSpec's Job field, "" when unknown
}

// JobAck and JobReject answer JobDispatch at once (AG-18).
type JobAck struct {
	RunID   string `json:"runId"`
	JobID   string `json:"jobId"`
	Attempt int    `json:"attempt"`
}

// JobReject refuses a dispatch. Reason is busy or draining.
type JobReject struct {
	RunID   string `json:"runId"`
	JobID   string `json:"jobId"`
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"`
}

// JobCancel stops a job (AG-22). Force skips the grace and the rest of the steps.
type JobCancel struct {
	RunID   string `json:"runId"`
	JobID   string `json:"jobId"`
	Reason  string `json:"reason"`
	Force   bool   `json:"force,omitempty"`
	GraceMs int64  `json:"graceMs,omitempty"` // TERM → KILL; 0 is the job's own
}

// StepStatus reports one step. Reports carry a per-job sequence number from 1; the orchestrator acknowledges the
// highest it has committed, and the agent repeats what is not acknowledged after a reconnect.
type StepStatus struct {
	Seq        int64  `json:"seq"`
	RunID      string `json:"runId"`
	JobID      string `json:"jobId"`
	Attempt    int    `json:"attempt"`
	StepIndex  int    `json:"stepIndex"`
	Name       string `json:"name"`
	Status     string `json:"status"` // ci.StepStatus
	StartedAt  int64  `json:"startedAt,omitempty"`
	FinishedAt int64  `json:"finishedAt,omitempty"`
	ExitCode   *int   `json:"exitCode,omitempty"`
	Error      string `json:"error,omitempty"`
	Allowed    bool   `json:"allowed,omitempty"` // failed, but continue-on-error
	Retries    int    `json:"retries,omitempty"`
}

// JobStatus reports a job: "running" once, then one final success, failed or cancelled, sent only after every log byte of the
// job was acknowledged (DESIGN §6).
type JobStatus struct {
	Seq         int64             `json:"seq"`
	RunID       string            `json:"runId"`
	JobID       string            `json:"jobId"`
	Attempt     int               `json:"attempt"`
	Status      string            `json:"status"` // ci.JobStatus: running, success, failed, cancelled
	StartedAt   int64             `json:"startedAt,omitempty"`
	FinishedAt  int64             `json:"finishedAt,omitempty"`
	Outputs     map[string]string `json:"outputs,omitempty"`
	Error       string            `json:"error,omitempty"`       // a sentence for people
	InitFailure string            `json:"initFailure,omitempty"` // checkout, workspace, spec: the job never reached its first step
	KillMethod  string            `json:"killMethod,omitempty"`  // cgroup or subreaper (D19)
	TimedOut    bool              `json:"timedOut,omitempty"`    // failed because the job exceeded its timeout (PIPE-21)
}

// ReportAck acknowledges every report of the job up to Seq as durable.
type ReportAck struct {
	JobID   string `json:"jobId"`
	Attempt int    `json:"attempt"`
	Seq     int64  `json:"seq"`
	Gone    bool   `json:"gone,omitempty"` // the job is not this agent's any more: stop it, report nothing more
}

// Drain asks the agent to take no further job and to leave when idle.
type Drain struct {
	Reason string `json:"reason"`
}

// RateWarning tells a flooding agent to slow down (AG-14).
type RateWarning struct {
	RetryAfterMs int64 `json:"retryAfterMs"`
}

// JobSpec is the sealed description of a job: all the agent needs. Job is a lock.Job after matrix expansion, with its own
// expressions still to be evaluated on the agent (step fields, env, outputs).
type JobSpec struct {
	RunID     string            `json:"runId"`
	JobID     string            `json:"jobId"`
	Attempt   int               `json:"attempt"`
	Job       json.RawMessage   `json:"job"`
	Workflow  string            `json:"workflow"`
	Env       map[string]string `json:"env,omitempty"`      // workflow env then job env, as source text
	Defaults  json.RawMessage   `json:"defaults,omitempty"` // lock.RunDefaults of the workflow
	Contexts  Contexts          `json:"contexts"`
	Secrets   map[string]string `json:"secrets,omitempty"` // for ${{ secrets.X }} and masking; never in the environment by itself
	Checkout  *Checkout         `json:"checkout,omitempty"`
	TimeoutMs int64             `json:"timeoutMs,omitempty"`
	GraceMs   int64             `json:"graceMs"`
}

// Contexts are the values behind ${{ }} on the agent. Each is a JSON object.
type Contexts struct {
	Kici   json.RawMessage `json:"kici"` // alias github
	Matrix json.RawMessage `json:"matrix,omitempty"`
	Needs  json.RawMessage `json:"needs,omitempty"`
	Inputs json.RawMessage `json:"inputs,omitempty"`
}

// Checkout says what to put into the workspace: exactly this commit.
type Checkout struct {
	URL      string `json:"url"`
	SHA      string `json:"sha"`
	Ref      string `json:"ref,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // given to git by a credential helper, never in argv or the URL

	SSHKey     string `json:"sshKey,omitempty"`     // private key; in a file of the agent's own only while git runs
	KnownHosts string `json:"knownHosts,omitempty"` // lines of known_hosts; "" accepts the host's key at first sight
}

// LogAck answers a log POST: the number of bytes of this step that are durable. The agent continues from there; a POST at a
// lower offset repeats harmlessly, one at a higher offset is refused with 409 and the current Offset.
type LogAck struct {
	Offset    int64 `json:"offset"`
	Truncated bool  `json:"truncated,omitempty"` // the job reached MaxJobLogBytes: the marker is written, send no more
}

// LogLine is one line of a stored step log (STO-10), encoded as JSON and a newline.
type LogLine struct {
	TS    int64  `json:"ts"`    // unix ms
	Level string `json:"level"` // stdout, stderr, or kici for notices of kici itself
	Msg   string `json:"msg"`   // without the newline; invalid UTF-8 replaced
}

// MaxLogLineBytes bounds Msg; longer lines are split, each part but the last ending in LogContinues.
const (
	MaxLogLineBytes = 16 << 10
	LogContinues    = "\u21a9"
)
