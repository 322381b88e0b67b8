// Package client is the public Go client of kici's API, and the types that the API speaks. Field names are the spec's;
// times are RFC 3339 with milliseconds in UTC, durations milliseconds.
package client

import (
	"encoding/json"
	"time"
)

// Time is an instant that marshals as RFC 3339 with exactly three decimals, UTC.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format("2006-01-02T15:04:05.000Z") + `"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	v, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(b))
	if err != nil {
		return err
	}
	t.Time = v.UTC()
	return nil
}

// MarshalYAML implements the YAML encoder's interface: the same text as in JSON.
func (t Time) MarshalYAML() (any, error) { return t.UTC().Format("2006-01-02T15:04:05.000Z"), nil }

// TimeOf returns the Time of ms since the epoch.
func TimeOf(ms int64) Time { return Time{time.UnixMilli(ms).UTC()} }

// Status is a stored status with the word and style class that it is displayed with everywhere (D5).
type Status struct {
	Status string `json:"status"`
	Word   string `json:"word"`
	Class  string `json:"class"`
}

// Run is one run in a list.
type Run struct {
	ID            string   `json:"id"`
	Number        int64    `json:"number"`
	Repo          string   `json:"repo"`
	Workflow      string   `json:"workflow"`
	Status        string   `json:"status"`
	Display       Status   `json:"display"`
	Title         string   `json:"title"`
	Ref           string   `json:"ref"`
	Branch        string   `json:"branch"`
	SHA           string   `json:"sha"`
	Actor         string   `json:"actor"`
	TriggerEvent  string   `json:"triggerEvent"`
	DeliveryID    string   `json:"deliveryId,omitempty"`
	ParentRunID   string   `json:"parentRunId,omitempty"`
	CreatedAt     Time     `json:"createdAt"`
	StartedAt     *Time    `json:"startedAt,omitempty"`
	FinishedAt    *Time    `json:"finishedAt,omitempty"`
	QueuedMs      *int64   `json:"queuedMs,omitempty"`   // created → first job running
	DurationMs    *int64   `json:"durationMs,omitempty"` // first job running → finished, or so far
	FailureReason string   `json:"failureReason,omitempty"`
	FailureClass  string   `json:"failureClass,omitempty"`
	InitFailure   string   `json:"initFailure,omitempty"`
	CancelledBy   string   `json:"cancelledBy,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
	URL           string   `json:"url"` // page in the dashboard
}

// RunDetail is one run, whole.
type RunDetail struct {
	Run
	Inputs         map[string]any  `json:"inputs,omitempty"`
	MatchedTrigger json.RawMessage `json:"matchedTrigger,omitempty"`
	OriginalRunID  string          `json:"originalRunId,omitempty"`
	TrustTier      string          `json:"trustTier,omitempty"`
	RunAttempt     int64           `json:"runAttempt"` // 1, and one more for each rerun
	Jobs           []Job           `json:"jobs"`
	Checks         *Checks         `json:"checks,omitempty"` // of a run whose source shows them
}

// Job is one job of a run.
type Job struct {
	ID             string            `json:"id"`
	RunID          string            `json:"runId"`
	Name           string            `json:"name"`
	BaseName       string            `json:"baseName"`
	DisplayName    string            `json:"displayName"`
	Status         string            `json:"status"`
	Display        Status            `json:"display"`
	Labels         []string          `json:"labels"`
	ExcludeLabels  []string          `json:"excludeLabels,omitempty"`
	Matrix         map[string]any    `json:"matrix,omitempty"`
	Needs          []string          `json:"needs"` // upstream job ids
	Level          int               `json:"level"` // needs-depth, the column of the graph
	AllowedFailure bool              `json:"allowedFailure"`
	AgentID        string            `json:"agentId,omitempty"`
	Node           string            `json:"node,omitempty"`
	Scaler         string            `json:"scaler,omitempty"`
	Attempt        int               `json:"attempt"`
	CreatedAt      Time              `json:"createdAt"`
	QueuedAt       *Time             `json:"queuedAt,omitempty"`
	StartedAt      *Time             `json:"startedAt,omitempty"`
	FinishedAt     *Time             `json:"finishedAt,omitempty"`
	DurationMs     *int64            `json:"durationMs,omitempty"`
	WaitMs         *int64            `json:"waitMs,omitempty"` // queued → running, or so far
	Error          string            `json:"error,omitempty"`
	InitFailure    string            `json:"initFailure,omitempty"`
	Why            string            `json:"why,omitempty"` // one sentence: why it waits, or how it ended
	Outputs        map[string]string `json:"outputs,omitempty"`
	KillMethod     string            `json:"killMethod,omitempty"`
	LogBytes       int64             `json:"logBytes"`
	AssignedAt     *Time             `json:"assignedAt,omitempty"` // to its agent; until it starts, the agent gets ready
	CPUMilli       int64             `json:"cpuMilli,omitempty"`   // asked for
	MemBytes       int64             `json:"memBytes,omitempty"`
	Steps          []Step            `json:"steps,omitempty"`
}

// Step is one step of a job. Index 0 is kici's own set-up.
type Step struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	Display    Status `json:"display"`
	StartedAt  *Time  `json:"startedAt,omitempty"`
	FinishedAt *Time  `json:"finishedAt,omitempty"`
	DurationMs *int64 `json:"durationMs,omitempty"`
	ExitCode   *int   `json:"exitCode,omitempty"`
	Error      string `json:"error,omitempty"`
	Allowed    bool   `json:"allowed,omitempty"`
	Retries    int    `json:"retries,omitempty"`
}

// LogLine is one line of a step's log.
type LogLine struct {
	N     int64  `json:"n"` // from 1, in its step
	TS    int64  `json:"ts"`
	Level string `json:"level"`
	Msg   string `json:"msg"`
}

// LogPage is a window of a step's log.
type LogPage struct {
	Lines      []LogLine `json:"lines"`
	NextCursor string    `json:"nextCursor"` // pass as cursor to go on
	Complete   bool      `json:"complete"`   // the step has ended and all its lines were read
}

// Why says why a job is where it is: a headline and one reason per scaler, agent or need.
type Why struct {
	JobID    string   `json:"jobId"`
	RunID    string   `json:"runId"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Headline string   `json:"headline"`
	Reasons  []Reason `json:"reasons"`
	AsOf     *Time    `json:"asOf,omitempty"` // when the reasons were decided
}

// Reason is one sentence of Why (kinds: placement.ReasonKind, and need, concurrency, max_parallel, held, cancelled, ended, running).
type Reason struct {
	Kind   string `json:"kind"`
	Node   string `json:"node,omitempty"`
	Scaler string `json:"scaler,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Job    string `json:"job,omitempty"`
	Text   string `json:"text"`
	Until  *Time  `json:"until,omitempty"`
}

// ClearedQueue is what clearing the queue has ended, or would.
type ClearedQueue struct {
	DryRun bool `json:"dryRun"`
	Runs   int  `json:"runs"` // cancelled as a whole
	Jobs   int  `json:"jobs"` // cancelled, those of these runs among them
}

// PurgedRuns are runs that stood still and were ended, or would be.
type PurgedRuns struct {
	DryRun bool          `json:"dryRun"`
	Runs   []StandingRun `json:"runs"`
}

// StandingRun is a run of which nothing moves.
type StandingRun struct {
	RunID     string `json:"runId"`
	Number    int64  `json:"number"`
	Repo      string `json:"repo"`
	Workflow  string `json:"workflow"`
	Status    string `json:"status"`
	CreatedAt Time   `json:"createdAt"`
}

// Agent is one row of the ledger.
type Agent struct {
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	Scaler       string   `json:"scaler,omitempty"`
	Node         string   `json:"node,omitempty"`
	State        string   `json:"state"`
	Connected    bool     `json:"connected"`
	Labels       []string `json:"labels"`
	JobID        string   `json:"jobId,omitempty"`
	JobName      string   `json:"jobName,omitempty"`
	RunID        string   `json:"runId,omitempty"`
	Host         string   `json:"host,omitempty"`
	Version      string   `json:"version,omitempty"`
	RunNumber    int64    `json:"runNumber,omitempty"`
	Repo         string   `json:"repo,omitempty"`
	NodeName     string   `json:"nodeName,omitempty"`
	Platform     string   `json:"platform,omitempty"`
	Arch         string   `json:"arch,omitempty"`
	Draining     bool     `json:"draining,omitempty"`
	LastSeenAt   *Time    `json:"lastSeenAt,omitempty"`
	RequestedAt  Time     `json:"requestedAt"`
	StateAt      Time     `json:"stateAt"` // when it entered its state
	RegisteredAt *Time    `json:"registeredAt,omitempty"`
	EndedAt      *Time    `json:"endedAt,omitempty"`
	GoneReason   string   `json:"goneReason,omitempty"`
	Error        string   `json:"error,omitempty"`
	JobsDone     int64    `json:"jobsDone"`
	CPUMilli     int64    `json:"cpuMilli"`
	MemBytes     int64    `json:"memBytes"`
}

// Scaler is one scaler on one node.
type Scaler struct {
	Name          string          `json:"name"`
	Node          string          `json:"node"`
	NodeName      string          `json:"nodeName"`
	Type          string          `json:"type"`
	State         string          `json:"state"` // ready, full, backing off, not ready, retiring, draining, node lost
	StateText     string          `json:"stateText,omitempty"`
	ActiveCount   int             `json:"activeCount"`
	WarmCount     int             `json:"warmCount"`
	StartingCount int             `json:"startingCount"`
	EndingCount   int             `json:"endingCount"`
	MaxAgents     int64           `json:"maxAgents"`
	UsedCPUMilli  int64           `json:"usedCpuMilli"`
	CapCPUMilli   int64           `json:"capCpuMilli,omitempty"`
	UsedMemBytes  int64           `json:"usedMemBytes"`
	CapMemBytes   int64           `json:"capMemBytes,omitempty"`
	LabelSets     [][]string      `json:"labelSets"`
	NotProtected  []string        `json:"notProtected,omitempty"` // sentences: what its jobs can reach
	BackoffUntil  *Time           `json:"backoffUntil,omitempty"`
	Failures      []ScalerFailure `json:"failures,omitempty"`
	FailedBound   int             `json:"failedBound,omitempty"` // launches for jobs that failed in the last five minutes
	FailedWarm    int             `json:"failedWarm,omitempty"`  // and those for warm pools
	Holders       []ScalerHolder  `json:"holders,omitempty"`     // most agents first; those of at most 500 runs over all scalers
}

// ScalerHolder is a run that holds agents of a scaler.
type ScalerHolder struct {
	RunID  string `json:"runId"`
	Repo   string `json:"repo"`
	Number int64  `json:"number"`
	Agents int64  `json:"agents"`
}

// ScalerFailure is one failed launch.
type ScalerFailure struct {
	At    Time   `json:"at"`
	Agent string `json:"agent"`
	JobID string `json:"jobId,omitempty"`
	Error string `json:"error"`
	Tail  string `json:"tail,omitempty"`
}

// Source is one configured origin of deliveries. Secrets are never shown.
type Source struct {
	ID         string          `json:"id"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	RoutingKey string          `json:"routingKey"`
	Repo       string          `json:"repo,omitempty"`
	Enabled    bool            `json:"enabled"`
	WebhookURL string          `json:"webhookUrl"`
	Config     json.RawMessage `json:"config,omitempty"`
	CreatedAt  Time            `json:"createdAt"`

	// Of one source only, not in lists.
	Secrets      []SourceSecret  `json:"secrets,omitempty"`
	LastDelivery *SourceDelivery `json:"lastDelivery,omitempty"`
	Poll         *SourcePoll     `json:"poll,omitempty"` // of a source on a forge
}

// PurgedSources are sources that were off for long and were removed, or would be.
type PurgedSources struct {
	DryRun  bool          `json:"dryRun"`
	Sources []StaleSource `json:"sources"`
}

// StaleSource is a source that is off.
type StaleSource struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	RoutingKey string `json:"routingKey"`
	Repo       string `json:"repo,omitempty"`
	UpdatedAt  Time   `json:"updatedAt"` // when it was last changed, at the latest when it was turned off
}

// SourceSecret says that a source has a secret, never what it is.
type SourceSecret struct {
	Key       string `json:"key"` // webhook, webhook_old, token, ssh_key
	UpdatedAt Time   `json:"updatedAt"`
	EndsAt    *Time  `json:"endsAt,omitempty"` // webhook_old: from then on it is refused
}

// SourceDelivery is the last delivery of a source among the newest of all.
type SourceDelivery struct {
	ID         string `json:"id"`
	Event      string `json:"event"`
	Status     string `json:"status"`
	ReceivedAt Time   `json:"receivedAt"`
}

// SourcePoll is how kici looks for pushes that the forge did not deliver.
type SourcePoll struct {
	LastAt   *Time  `json:"lastAt,omitempty"` // the last look that succeeded
	NextAt   *Time  `json:"nextAt,omitempty"`
	Failures int64  `json:"failures"` // in a row
	Message  string `json:"message,omitempty"`
}

// Delivery is one received delivery and what became of it.
type Delivery struct {
	ID         string          `json:"id"`
	DeliveryID string          `json:"deliveryId"`
	Source     string          `json:"source"`
	Event      string          `json:"event"`
	Action     string          `json:"action,omitempty"`
	Repo       string          `json:"repo,omitempty"`
	Ref        string          `json:"ref,omitempty"`
	SHA        string          `json:"sha,omitempty"`
	Status     string          `json:"status"`
	Duplicates int64           `json:"duplicates"`
	Attempts   int64           `json:"attempts"`
	Matched    int64           `json:"matched"`
	RunID      string          `json:"runId,omitempty"`
	Error      string          `json:"error,omitempty"`
	Size       int64           `json:"size"`
	ReceivedAt Time            `json:"receivedAt"`
	NextTryAt  *Time           `json:"nextTryAt,omitempty"` // it waits until then, because of error
	FinishedAt *Time           `json:"finishedAt,omitempty"`
	Decisions  json.RawMessage `json:"decisions,omitempty"`
	Headers    json.RawMessage `json:"headers,omitempty"`        // with the payload only; credentials are never stored
	Payload    *string         `json:"payload,omitempty"`        // when asked for
	Omitted    string          `json:"payloadOmitted,omitempty"` // size_exceeded: it was too large to be kept
}

// Token is an admin or agent token without its secret.
type Token struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"` // admin, static, ephemeral
	Label      string   `json:"label,omitempty"`
	Role       string   `json:"role,omitempty"`
	RoutingKey string   `json:"routingKey,omitempty"`
	Subject    string   `json:"subject,omitempty"` // whom it stands for
	AgentID    string   `json:"agentId,omitempty"`
	Prefix     string   `json:"prefix,omitempty"`
	Labels     []string `json:"labels,omitempty"`
	CreatedAt  Time     `json:"createdAt"`
	ExpiresAt  *Time    `json:"expiresAt,omitempty"`
	RevokedAt  *Time    `json:"revokedAt,omitempty"`
	LastUsedAt *Time    `json:"lastUsedAt,omitempty"`
}

// Error is every error body (D22).
type Error struct {
	Message string   `json:"error"`
	Details []string `json:"details,omitempty"`
}
