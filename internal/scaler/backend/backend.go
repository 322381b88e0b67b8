// Package backend is the contract between the node's loop and the things that can start agents. A backend is one folder
// here and one line in app; it passes backendtest. No caller switches on a backend's type.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kici-go/kici/internal/ci"
)

// Backend starts, ends and lists agents of one scaler on this host. Implementations are safe for concurrent use.
type Backend interface {
	// Plan returns what will be needed to undo Create(spec), before anything is made. The node records it on the
	// agent's row (agents.launch) and passes it to Create and Delete.
	Plan(Spec) (json.RawMessage, error)
	// Create starts the agent and returns without waiting for it to register. It is called only for a recorded row;
	// ctx carries the spawn deadline. Calling it again for an agent that runs returns that agent.
	Create(context.Context, Spec) (Instance, error)
	// Delete ends the agent and removes all it left. It is idempotent and repeated until it returns ErrNotFound
	// (nothing is left) or nil (all was removed now).
	Delete(context.Context, Ref) error
	// List returns everything on this host that bears our cluster, node and scaler name, with or without a row. What is only known to be the
	// node's may be returned by each of its scalers.
	List(context.Context) ([]Instance, error)
	// Capabilities says what this backend can do.
	Capabilities() Capabilities
}

// Spec is what to start.
type Spec struct {
	AgentID  string
	Labels   []string // KICI_LABELS (SC-6)
	LabelSet string   // declared set, normalised; the backend finds its own entry by it (SC-2)
	Token    string   // handed over by an inherited file descriptor or a file, never argv (D13)
	URL      string   // KICI_ORCHESTRATOR_URL
	Limits   ci.Resources
	// MinFreeDisk is the free space, in bytes, below which the agent warns its job; 0 for none. Its disk is known best to itself.
	MinFreeDisk int64
	JobID       string // bound job, '' when warm
	RunID       string
	Launch      json.RawMessage // from Plan
	Warm        bool
	// Socket is a socket on this host at which agents may reach the server instead of URL; '' when URL is the only way. A backend
	// whose agents are elsewhere ignores it.
	Socket string
	// Image is the job's own image, in the place of the label set's; nil for none. It is given only to backends that have
	// Capabilities.JobImages.
	Image *JobImage
	// Progress tells what Create is doing when that takes long ("pulling golang:1.26: 120 MB of 300 MB"), '' when it goes on; nil for nobody. It
	// returns at once, and may be called at any time until Create returns.
	Progress func(text string)
}

// JobImage is the image that a job asks for (CT-10, CT-11). It is pulled when it is missing, and needs nothing of kici's in it.
type JobImage struct {
	Ref                string
	Username, Password string // of its registry, '' for none; never recorded
}

// Ref names an agent to end. Launch is what the row or List knows; either may be empty.
type Ref struct {
	AgentID string
	Launch  json.RawMessage
	Reason  string
	Grace   time.Duration // TERM → KILL; 0 is the backend's default
}

// Instance is one thing found on the host.
type Instance struct {
	AgentID string
	Launch  json.RawMessage // updated undo information (pid, start time), to be recorded
	Running bool            // false: dead, but leaves something to Delete
	// Unstarted: not running, and Create never got as far as handing over the token. The agent has done nothing; Create may be
	// called again.
	Unstarted bool
	Detail    string   // for people: "pid 4711", "exited with 1"
	Tail      []string // last lines of output of a dead agent, at most 50
	// Holds is what it is made of on this host as far as List can tell, for the count of leaks when it has no row.
	Holds []Resource
}

// Capabilities of a backend.
type Capabilities struct {
	Type            string   // container, bare-metal, firecracker, event, fake
	SpawnsOnHost    bool     // its agents use this host's resources
	SurvivesRestart bool     // its agents outlive the orchestrator process
	JobImages       bool     // it starts agents in a job's own image (Spec.Image)
	Volume          string   // a folder of this host on whose disk its agents write; '' when there is none, or it is not known
	Protections     []string // sentences for the start-up log and scaler status: what is not protected
}

// Preparer prepares the host once at start; an error makes the scaler not ready.
type Preparer interface{ Prepare(context.Context) error }

// Reloader takes up a changed entry without a restart. What it returns shares with this backend all that is known of agents, and replaces
// it; this one only finishes what it has begun. An error changes nothing. A backend that has no Reload needs a restart for any change.
type Reloader interface {
	Reload(Entry) (Backend, error)
}

// Closer releases what a backend holds in this process (watchers, connections). Agents go on. It is called once, last.
type Closer interface{ Close() error }

// Watcher reports exits early, so that the loop need not wait for its next pass. The channel carries agent ids and is
// only a hint.
type Watcher interface{ Exits() <-chan string }

// Examiner looks at what its agents need on this host, for "kici diagnose": sentences of what is there, and an error that says what is not. It
// changes nothing.
type Examiner interface {
	Examine(context.Context) (facts []string, err error)
}

// Sweeper removes what is left of no agent in particular, such as a network that nobody uses any more, when the server will not come back and its
// agents are gone.
type Sweeper interface {
	Sweep(context.Context) error
}

// Auditor knows what the network policy of an agent has refused: "packets: 3, first to: 10.0.0.5:22/tcp", "" for nothing. It is asked before
// Delete; what is not known then is lost.
type Auditor interface {
	Refusals(ctx context.Context, agentID string) string
}

// Collector removes from its host what nobody needs any more, and only what is provably its own: leftovers of agents, images that it pulled.
// It is called every few minutes, and when the disk of its volume is too full, besides everything else that is called. What it returns was
// removed, also when it returns an error.
type Collector interface {
	Collect(context.Context, Collect) ([]Collected, error)
}

// Collect is why something is to be collected.
type Collect struct {
	// Full is nil at a regular look. Else the disk is too full: what nobody uses goes whatever its age, the least needed first, until Full
	// reports false; what is not on the disk of Folder stays.
	Full   func() bool
	Folder string
}

// Kinds of what is collected.
const (
	CollectedImage     = "image"
	CollectedWorkspace = "workspace"
	CollectedProgram   = "program"
)

// Collected is one thing that was removed.
type Collected struct {
	Kind  string
	Name  string
	Bytes int64 // what it took, as far as that is known
	Why   string
}

// The errors that policy needs to tell apart. Wrap them with detail for people.
var (
	ErrNotFound   = errors.New("nothing of this agent is left")
	ErrRefused    = errors.New("the host refuses this launch") // deterministic: back off (MG-18)
	ErrNoCapacity = errors.New("the host has no room now")     // try again later, no back-off
	ErrNotReady   = errors.New("the backend is not ready")     // try again later, no back-off
	ErrGuest      = errors.New("the agent died at start")      // counts as a failed provision
	ErrInfra      = errors.New("the host failed temporarily")  // transient: release, no back-off (MG-28)
)

// Died is an agent that ended while Create was starting it: an ErrGuest that says how, and what the agent said last.
type Died struct {
	Detail string // "exited with 1", '' when unknown
	Tail   []string
}

// Error implements error.
func (d *Died) Error() string {
	if d.Detail == "" {
		return "the agent died before it registered"
	}
	return "the agent died before it registered: " + d.Detail
}

// Unwrap makes it an ErrGuest.
func (d *Died) Unwrap() error { return ErrGuest }
