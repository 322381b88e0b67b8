package client

import "encoding/json"

// RunList is a page of runs, newest first. NextCursor is empty on the last page; the same holds for every list.
type RunList struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"nextCursor,omitempty"`
}

// JobList is the jobs of a run, in file order.
type JobList struct {
	Jobs []Job `json:"jobs"`
}

// AgentList is a page of agents, newest first.
type AgentList struct {
	Agents     []Agent `json:"agents"`
	NextCursor string  `json:"nextCursor,omitempty"`
}

// ScalerList is every scaler of every node.
type ScalerList struct {
	Scalers []Scaler `json:"scalers"`
}

// SourceList is every source.
type SourceList struct {
	Sources []Source `json:"sources"`
}

// DeliveryList is a page of deliveries, newest first.
type DeliveryList struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor string     `json:"nextCursor,omitempty"`
}

// TokenList is admin or agent tokens, without their secrets.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// SecretKey is one secret's name. Values are never shown.
type SecretKey struct {
	Key        string `json:"key"`
	Scope      string `json:"scope"` // "" is the organisation, repo/<identifier> one repository
	UpdatedAt  Time   `json:"updatedAt"`
	Unreadable bool   `json:"unreadable,omitempty"` // sealed with another master key
}

// SecretList is the names of an organisation's secrets.
type SecretList struct {
	Secrets []SecretKey `json:"secrets"`
}

// Queue is the jobs that wait for an agent, oldest first.
type Queue struct {
	Waiting    int64       `json:"waiting"`            // all of them, not only this page
	OldestAt   *Time       `json:"oldestAt,omitempty"` // queued at
	OldestMs   int64       `json:"oldestMs"`           // how long the oldest has waited
	Items      []QueueItem `json:"items"`
	NextCursor string      `json:"nextCursor,omitempty"`
}

// QueueItem is one waiting job.
type QueueItem struct {
	JobID     string   `json:"jobId"`
	JobName   string   `json:"jobName"`
	RunID     string   `json:"runId"`
	RunNumber int64    `json:"runNumber"`
	RunTitle  string   `json:"runTitle"`
	Repo      string   `json:"repo"`
	Workflow  string   `json:"workflow"`
	Labels    []string `json:"labels"`
	Exclude   []string `json:"excludeLabels,omitempty"`
	CPUMilli  int64    `json:"cpuMilli,omitempty"`
	MemBytes  int64    `json:"memBytes,omitempty"`
	QueuedAt  Time     `json:"queuedAt"`
	WaitMs    int64    `json:"waitMs"`
	ExpiresAt *Time    `json:"expiresAt,omitempty"` // when waiting becomes a failure
	Requeues  int64    `json:"requeues,omitempty"`
	Why       string   `json:"why"` // the headline
	Reasons   []Reason `json:"reasons"`
	URL       string   `json:"url"` // its run's page
}

// Created answers the creation of a token: the only time that its secret is shown.
type Created struct {
	ID     string   `json:"id"`
	Token  string   `json:"token"`
	Prefix string   `json:"tokenPrefix,omitempty"`
	Label  string   `json:"label,omitempty"`
	Role   string   `json:"role,omitempty"`
	Labels []string `json:"labels,omitempty"`
	Type   string   `json:"agentType,omitempty"`
}

// CancelResult answers a cancel.
type CancelResult struct {
	Status        string `json:"status"`
	CancelledJobs int    `json:"cancelledJobs"`
}

// NewRun answers a start or a rerun.
type NewRun struct {
	RunID  string `json:"runId"`
	Number int64  `json:"number,omitempty"`
	URL    string `json:"url,omitempty"`
}

// Capabilities is GET /api/v1/capabilities.
type Capabilities struct {
	OrchestratorVersion string   `json:"orchestratorVersion"`
	ProtocolVersion     int      `json:"protocolVersion"`    // of this API
	MinProtocolVersion  int      `json:"minProtocolVersion"` // oldest client that may change something (CLI-9)
	Features            []string `json:"features"`
}

// ProtocolVersion is the API version that this client speaks; a server that needs a newer one is refused before anything
// is changed (CLI-9).
const (
	ProtocolVersion    = 1
	MinProtocolVersion = 1
)

// LoginLink is a one-time address of the dashboard.
type LoginLink struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expiresAt"`
}

// AccessEntry is one line of the access log: who did, or tried to do, what.
type AccessEntry struct {
	ID        string `json:"id"`
	At        Time   `json:"at"`
	ActorKind string `json:"actorKind"`
	Actor     string `json:"actor"`
	Label     string `json:"label,omitempty"`
	Action    string `json:"action"`
	Target    string `json:"target,omitempty"`
	Source    string `json:"source"`
	Outcome   string `json:"outcome"` // allowed, denied, error
	RequestID string `json:"requestId,omitempty"`
	Error     string `json:"error,omitempty"`

	Meta json.RawMessage `json:"meta,omitempty"` // what was changed, and the token's organisation when it is another one
}

// AccessLog is a page of the access log, newest first.
type AccessLog struct {
	Items      []AccessEntry `json:"items"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// Identity says who a token is.
type Identity struct {
	TokenID    string `json:"tokenId"`
	OrgID      string `json:"orgId"`
	Label      string `json:"label"`
	Role       string `json:"role"`
	RoutingKey string `json:"routingKey,omitempty"`
}
