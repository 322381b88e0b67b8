// Package event is the internal events of the orchestrator: they chain workflows, carry what schedules fire and report what became
// of runs and jobs (EVT-*). An event is a row. Whoever emits one writes it in the transaction of what it reports; a router on every
// node leases rows, decides with a pure function which registered workflows they start, and writes each run together with the claim
// that it is that event's, so that a crash at any point repeats work but never a run. What cannot be routed ends in the dead letters,
// where people see it.
package event

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Limits bound what emitters and the router do. They may change while the server runs.
type Limits struct {
	TTL           time.Duration // after which an event expires (EVT-7)
	MaxAttempts   int64         // then an event is a dead letter (EVT-13)
	RatePerMinute int           // user events of one name from one routing key in 60 s (EVT-6); 0 is no limit
	MaxChainDepth int64         // an event at this depth is refused (EVT-5)
}

// DefaultLimits has the spec's values.
func DefaultLimits() Limits {
	return Limits{TTL: 7 * 24 * time.Hour, MaxAttempts: 5, RatePerMinute: 100, MaxChainDepth: 10}
}

// Index is every registration at one version.
type Index interface {
	Version() int64
	// Triggered yields the organisation's enabled registrations with a trigger of this type; what it yields must not be changed. The
	// workflow is nil where this binary cannot read it.
	Triggered(orgID, triggerType string) iter.Seq2[db.WorkflowRegistration, *lock.Workflow]
}

// Start is a registered workflow that an event starts.
type Start struct {
	OrgID        string
	Registration db.WorkflowRegistration
	Workflow     lock.Workflow
	Event        ci.Event
	Decision     workflow.Decision
	DedupKey     string
	TrustTier    ci.TrustTier
	ChainDepth   int
	Actor        string
	TriggerEvent string // WF-20
	Inputs       map[string]any
	Branch       string // EVT-23
}

// Planned is a run that has no rows yet. Insert reports created = false when its key exists, with that run's id.
type Planned interface {
	Insert(ctx context.Context, tx *store.Tx) (runID string, created bool, err error)
}

// leader runs the scanner in every term that this instance leads (cluster.Leader).
type leader interface {
	While(ctx context.Context, fn func(ctx context.Context, term int64) error) error
}

// Deps are what the room needs. All are required.
type Deps struct {
	Store      *store.Store
	InstanceID string // bears the leases of this process
	Leader     leader
	Index      func(context.Context) (Index, error)          // not older than the call
	Plan       func(context.Context, Start) (Planned, error) // an error means that it is worth trying again
	Limits     func() Limits                                 // now; never blocks
	Env        service.Env
	Log        *slog.Logger
	Metrics    *obs.Metrics
}

// Service is the room. It is safe for concurrent use.
type Service struct {
	d    Deps
	log  *slog.Logger
	rate *limiter
}

// New returns the room. Run routes events, Scan is the leader's part.
func New(d Deps) *Service {
	return &Service{d: d, log: d.Log.With("component", "event"), rate: newLimiter()}
}
