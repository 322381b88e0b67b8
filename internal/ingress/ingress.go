// Package ingress takes deliveries in and turns them into runs. Accepting is one durable insert that also settles who is a
// duplicate; everything after it (resolve, normalise, lock, match, create runs) is repeated until it is written down together
// with the delivery's outcome, in one transaction. So a 202 is never lost and a retry never starts a workflow twice (ING-*, PIPE-1…6).
//
// The room also keeps the sources themselves: their rows, their secrets and the adapters made from them.
package ingress

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Factory makes the adapter of one stored source; its error says what is wrong with the options.
type Factory func(source.Config) (source.Source, error)

// Deps are what the room needs. All are required.
type Deps struct {
	Store         *store.Store
	InstanceID    string             // bears the claims of this process
	Factories     map[string]Factory // by kind
	Secrets       Secrets
	Runs          Runs
	Registrations Registrations
	Events        Events
	Globals       func(orgID string) Globals // what applies to global workflows now; it never blocks and never fails
	Limits        func() Limits              // what may change while the server runs; nil is what Settings say. It answers at once
	BaseURL       func() string              // address of this server, without a trailing slash; for webhook addresses
	Settings      Settings
	Env           service.Env
	Log           *slog.Logger
	Metrics       *obs.Metrics
}

// Events is where it is told that somebody ran a schedule by hand (EVT-9). EmitTx is part of the caller's transaction.
type Events interface {
	EmitTx(tx *store.Tx, e Event) error
}

// Event is a root event of a registered workflow's repository.
type Event struct {
	OrgID, Name, Repo, RoutingKey string
	Actor                         string // the person
	Payload                       json.RawMessage
}

// Secrets keeps values sealed. Writes are part of the caller's transaction.
type Secrets interface {
	Put(ctx context.Context, tx *store.Tx, id SecretID, value string) error
	Drop(ctx context.Context, tx *store.Tx, id SecretID) error // there need be none
	DropScope(ctx context.Context, tx *store.Tx, orgID, scope string) error
	// Open returns every secret of a scope by its key.
	Open(ctx context.Context, orgID, scope string) (map[string]Secret, error)
}

// Secret is one opened value.
type Secret struct {
	Value     string
	UpdatedAt int64 // UTC milliseconds
}

// SecretID names a secret.
type SecretID struct{ OrgID, Scope, Key string }

// Registrations is the index of the workflows on default branches.
type Registrations interface {
	// Synced returns the commit whose workflows are registered, "" for none.
	Synced(ctx context.Context, routingKey, repo string) (string, error)
	// Sync replaces the repository's registrations unless a newer delivery has done so (REG-2).
	Sync(ctx context.Context, tx *store.Tx, scope db.WorkflowRegistration, delivery string, workflows []lock.Workflow) (bool, error)
	// Triggered yields the enabled registrations that have a trigger of a type; what it yields must not be changed.
	Triggered(ctx context.Context, orgID, triggerType string) (iter.Seq2[db.WorkflowRegistration, *lock.Workflow], error)
	// ByID returns a registration, disabled or not, and its workflow, nil when it cannot be read.
	ByID(ctx context.Context, id string) (reg db.WorkflowRegistration, w *lock.Workflow, ok bool, err error)
	// Globals yields the enabled global registrations that have a trigger of a type, as Triggered does (GLB-1).
	Globals(ctx context.Context, orgID, triggerType string) (iter.Seq2[db.WorkflowRegistration, *lock.Workflow], error)
	// Register adds or replaces workflows and removes none (REG-5). It returns the registry's version.
	Register(ctx context.Context, scope db.WorkflowRegistration, workflows []lock.Workflow) (int64, error)
	// Forget removes what a source has registered.
	Forget(ctx context.Context, tx *store.Tx, orgID, routingKey string) error
}

// Runs makes runs. Planning does no I/O; inserting is part of the caller's transaction.
type Runs interface {
	Plan(NewRun) PlannedRun
	PlanFailed(FailedRun) PlannedRun
}

// PlannedRun is a run that has no rows yet. Insert reports created = false when its key exists, with that run's id.
type PlannedRun interface {
	Insert(ctx context.Context, tx *store.Tx) (runID string, created bool, err error)
}

// NewRun is one workflow that an event starts.
type NewRun struct {
	OrgID, RoutingKey, Repo string
	Workflow                lock.Workflow
	Event                   ci.Event
	TriggerEvent            string // WF-20
	Decision                workflow.Decision
	DeliveryRow             string // deliveries.id
	DedupKey                string // ING-16
	Inputs                  map[string]any
	Actor                   string
	TrustTier               ci.TrustTier
	ChainDepth              int      // EVT-5
	Warnings                []string // what people should know of the run, beside what its workflow warns of
	Checks                  bool     // the source shows results beside commits (PIPE-7)
	Unstarted               string   // why it cannot be started now: it fails at once and can be run again; '' starts it
}

// FailedRun records that a commit's workflows could not be resolved (LOCK-4).
type FailedRun struct {
	OrgID, RoutingKey, Repo string
	Event                   ci.Event
	TriggerEvent            string
	DeliveryRow, DedupKey   string
	Actor                   string
	TrustTier               ci.TrustTier
	InitFailure             string // category of PIPE-16
	Reason                  string // for people
	Checks                  bool   // as NewRun.Checks
}

// UnresolvedWorkflow is the name of a run whose workflow could not be read (LOCK-4).
const UnresolvedWorkflow = "(unresolved workflow)"

// Settings are the room's limits. Zero fields take the spec's defaults.
type Settings struct {
	MaxOpen        int64          // deliveries accepted and not finished; beyond it new ones are shed (ING-14)
	MaxInFlight    int            // requests being received at once (ING-19)
	MaxBodyBytes   int64          // hard limit of a body (ING-8)
	MaxForgeBytes  int64          // … of a forge's delivery (ING-7)
	MaxBodiesBytes int64          // bodies being received, together
	Workers        int            // deliveries processed at once
	Lease          time.Duration  // a claim that is not renewed for so long is free again (ING-18)
	MaxAttempts    int64          // then a delivery has failed
	MaxAge         time.Duration  // then too, unless it was hardly tried (the server may have been down)
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed (ING-11)
	Locks          CacheBounds    // of what is kept of commits' workflows; counts from the start
	GapEvery       time.Duration  // how often the branches of a source on a forge are compared with what was delivered
	GapConfirm     time.Duration  // how long after a difference was seen it is looked at again, and started if nothing explains it
}

func (s Settings) withDefaults() Settings {
	or := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&s.MaxOpen, 5000)
	or(&s.MaxBodyBytes, 10<<20)
	or(&s.MaxForgeBytes, 25<<20)
	or(&s.MaxBodiesBytes, 128<<20)
	or(&s.MaxAttempts, 10)
	if s.MaxInFlight <= 0 {
		s.MaxInFlight = 256
	}
	if s.Workers <= 0 {
		s.Workers = 8
	}
	if s.Lease <= 0 {
		s.Lease = time.Minute
	}
	if s.MaxAge <= 0 {
		s.MaxAge = 15 * time.Minute
	}
	if s.GapEvery <= 0 {
		s.GapEvery = 5 * time.Minute
	}
	if s.GapConfirm <= 0 {
		s.GapConfirm = 30 * time.Second
	}
	return s
}

// Service is the room. Handler serves webhooks, Run processes deliveries.
type Service struct {
	*Catalog
	d         Deps
	log       *slog.Logger
	codec     *codec
	admission *admission
	locks     *lockCache
	queue     *queue
	held      *claims
	turn      int // of the claims, so that another organisation comes first each time; the claiming loop's own
}

// New returns the room. Run starts its work.
func New(d Deps) *Service {
	d.Settings = d.Settings.withDefaults()
	log := d.Log.With("component", "ingress")
	return &Service{
		Catalog:   newCatalog(d, log),
		d:         d,
		log:       log,
		codec:     newCodec(),
		admission: newAdmission(d.Settings),
		locks:     newLockCache(d.Env.Now, d.Settings.Locks),
		queue:     newQueue(d.Settings.Workers),
		held:      &claims{byID: map[string]*claim{}},
	}
}

// Close ends what outlives a request: fetches that nobody waits for any more, and the watch on sources.
func (s *Service) Close() {
	s.locks.close()
	s.Catalog.close()
}
