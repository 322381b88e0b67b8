// Package placement decides, from one snapshot, which queued job goes to which agent, which agents to launch and to
// withdraw, and why every other job waits. It is pure: no I/O, no goroutines, no clock, and the same input gives the
// same output. dispatch reads the snapshot from the ledger and writes the decisions down.
package placement

import "github.com/kici-go/kici/internal/ci"

// Snapshot is all that Decide looks at. Slices are ordered as documented; Decide does not change them.
type Snapshot struct {
	Now     int64    // UTC ms
	Nodes   []Node   // by ID
	Scalers []Scaler // by node, then file order
	Agents  []Agent  // live agents, by ID
	Shapes  []Shape  // queued work, one entry per shape, by its oldest job
	Ended   []string // ids of bound jobs that no longer need an agent (their agents are withdrawn)

	WarmOrg string // whose agents warm pools hold

	HintAfter int64 // consecutive failed launches of a scaler from which a reason says where to look (MG-29); 0 is 5
}

// Node is one orchestrator process with local resources.
type Node struct {
	ID, Name        string
	Live            bool // heartbeat is recent
	Draining        bool
	GlobalMaxAgents int64        // 0 when it has no scalers
	GlobalCap       ci.Resources // zero field = no cap
}

// Scaler is one entry of a node's scalers.yaml as the node has decoded it.
type Scaler struct {
	NodeID, Name, Type string
	MaxAgents          int64
	Cap                ci.Resources // zero field = no cap
	LabelSets          []LabelSet
	Warm               WarmPool
	Pool               MachinePool
	Retiring, Ready    bool
	JobImages          bool   // it starts agents in a job's own image
	NotReady           string // why, when !Ready
	BackoffUntil       int64  // 0 = none
	Failures           int64  // consecutive
	LastError          string
}

// ScalerSpec is the part of Scaler that the node stores as JSON in scalers.spec.
type ScalerSpec struct {
	LabelSets           []LabelSet `json:"labelSets"`
	MaxConcurrentSpawns int        `json:"maxConcurrentSpawns"`
	Warm                WarmPool   `json:"warm,omitzero"`
	Protections         []string   `json:"protections,omitempty"` // sentences: what is not protected
	JobImages           bool       `json:"jobImages,omitempty"`

	Pool MachinePool `json:"pool,omitzero"`
}

// MachinePool is what several orchestrators share of one machine. The zero value is none. What this node uses of it is counted from its agents;
// the reservation that its node makes before a launch is the authority (ML).
type MachinePool struct {
	Name   string       `json:"name"`
	Cap    ci.Resources `json:"cap"`    // zero field = no cap
	Others ci.Resources `json:"others"` // reserved by the other orchestrators, as the node saw it last
}

// LabelSet is one element of labelSets, enriched. All label slices are normalised (SC-3).
type LabelSet struct {
	Declared    []string `json:"declared"`
	Enriched    []string `json:"enriched"`    // what jobs are matched against (SC-5)
	Gate        []string `json:"gate"`        // mandatory labels a job must name (SC-10)
	AgentLabels []string `json:"agentLabels"` // what the agent carries and its token admits (SC-6)
	Resources   ci.Claim `json:"resources"`   // label set over defaults (SC-23)
	Roles       []string `json:"roles"`
	OnlyImages  bool     `json:"onlyImages,omitempty"` // its agents are started for jobs that name their own image, and for no other (BM-2)
}

// Agent is one live row of the ledger. It counts against every cap until it is gone.
type Agent struct {
	ID, OrgID, NodeID, Scaler, Type string
	State                           ci.AgentState
	Labels, Gate                    []string // normalised
	Reserved                        ci.Resources
	Limits                          ci.Resources
	Connected                       bool // has a session on some live coordinator
	Draining                        bool
	BoundJob                        string // '' = warm or static
	LabelSet                        string // the declared set that it was started with, normalised; '' for a static one
	Image                           string // of the job that it was started for, '' = none
	IdleSince                       int64  // UTC ms, of one without a bound job: its registration
	Job                             string // job of its open assignment, '' = idle
	Holder                          string // "acme/shop #482" of that or the bound job, for reasons
}

// Shape is all queued jobs that ask for the same thing (D30).
type Shape struct {
	Key, OrgID      string
	Labels, Exclude []string // normalised
	Claim           ci.Claim
	Image           string // the jobs' own, '' = none: only an agent that is started in it will do (MG-53)
	Total           int    // queued jobs of this shape, also those beyond Jobs
	Jobs            []Job  // the oldest ones, by (QueuedAt, ID); a bounded window
}

// Job is one queued job.
type Job struct {
	ID, RunID string
	QueuedAt  int64
}

// Decisions is what Decide wants written down. Each slice is in the order in which it was decided.
type Decisions struct {
	Assign   []Assign
	Launch   []Launch
	Withdraw []Withdraw
	Reasons  []ShapeReasons // one per shape that still has waiting jobs, and one per shape of Snapshot
}

// Assign hands a queued job to an idle, connected agent.
type Assign struct{ JobID, RunID, OrgID, AgentID string }

// Launch asks a node to start an agent for a job, or for a warm pool.
type Launch struct {
	JobID, RunID, OrgID  string // no job and run: warm
	NodeID, Scaler, Type string
	LabelSet             int // index into Scaler.LabelSets
	Claim                ci.Claim
	Image                string // the job's own, '' = the label set's
}

// Withdraw ends an agent that nobody needs.
type Withdraw struct{ AgentID, Reason string }

// ShapeReasons says why the waiting jobs of a shape do not move.
type ShapeReasons struct {
	Shape    string
	Waiting  int  // jobs left after this pass that have neither an agent nor a launch
	Routable bool // some scaler or agent could ever run it (QUE-14); false starts the unroutable clock
	Reasons  []Reason
}

// ReasonKind is the machine-readable form of a Reason.
type ReasonKind string

// The kinds of reasons.
const (
	ReasonNoLabels     ReasonKind = "no_label_match" // Missing names the labels
	ReasonNoOffer      ReasonKind = "no_offer"       // nothing in the cluster offers the labels; Missing names them
	ReasonExcluded     ReasonKind = "excluded"
	ReasonGate         ReasonKind = "gate" // the job does not name a mandatory label
	ReasonBusy         ReasonKind = "busy"
	ReasonOtherJobs    ReasonKind = "other_jobs" // single-use agents that belong to other jobs, counted
	ReasonBooting      ReasonKind = "booting"    // an agent for it is on its way
	ReasonCap          ReasonKind = "cap"        // Limit, Used, Holders
	ReasonTooLarge     ReasonKind = "too_large"  // asks for more than the cap could ever give
	ReasonBackoff      ReasonKind = "backoff"    // Until
	ReasonNotReady     ReasonKind = "not_ready"
	ReasonRetiring     ReasonKind = "retiring"
	ReasonDraining     ReasonKind = "draining"
	ReasonNodeLost     ReasonKind = "node_lost"
	ReasonOtherOrg     ReasonKind = "other_org"
	ReasonNoImages     ReasonKind = "no_images"   // it runs no images of jobs
	ReasonOnlyImages   ReasonKind = "only_images" // it runs only jobs that name an image
	ReasonDisconnected ReasonKind = "disconnected"
	ReasonNothing      ReasonKind = "no_agents" // no scaler and no agent exists at all
)

// Reason is one sentence of why: about one scaler, one agent, or (both empty) the whole cluster.
type Reason struct {
	Kind    ReasonKind `json:"kind"`
	NodeID  string     `json:"nodeId,omitempty"`
	Scaler  string     `json:"scaler,omitempty"`
	Agent   string     `json:"agent,omitempty"`
	Text    string     `json:"text"`            // "vm-linux is full: 8 of 8 agents, held by acme/site #479 (6)"; the same in CLI, API and UI
	Until   int64      `json:"until,omitempty"` // UTC ms, when known
	Missing []string   `json:"missing,omitempty"`
	Limit   string     `json:"limit,omitempty"` // maxAgents, globalMaxAgents, resourceCap.cpu, …
	Holders []string   `json:"holders,omitempty"`
}
