// Package registration keeps the cluster's copy of the workflows on every repository's default branch, so that deliveries
// without a repository, events and schedules can find the workflows that wait for them (REG-*). Rows are the truth; the index
// in memory is a copy that knows its version and is replaced whole.
package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Deps are what the room needs. All are required.
type Deps struct {
	Store  *store.Store
	Events Events
	Env    service.Env
	Log    *slog.Logger
}

// Events is where changes are told (REG-8).
type Events interface {
	// EmitTx writes an event in the caller's transaction.
	EmitTx(tx *store.Tx, e Event) error
}

// Event is an internal event of a source.
type Event struct {
	OrgID, Name      string
	Repo, RoutingKey string // whose it is
	Payload          json.RawMessage
}

// EventUpdated is the name of the event that a change of a repository's registrations emits (REG-8).
const EventUpdated = "registration.updated"

// Service is the room. It is safe for concurrent use.
type Service struct {
	st      *store.Store
	events  Events
	env     service.Env
	log     *slog.Logger
	loading chan struct{} // one load at a time
	index   atomic.Pointer[index]
}

// New returns the room.
func New(d Deps) *Service {
	return &Service{st: d.Store, events: d.Events, env: d.Env, log: d.Log.With("component", "registration"), loading: make(chan struct{}, 1)}
}

// Run keeps the index current: a change is there soon, and by reloadEvery when its notification was lost (REG-3). Whoever matches looks
// at the version by itself.
func (s *Service) Run(ctx context.Context) error {
	sub := s.st.Subscribe(store.TopicRegistry, "")
	defer sub.Close()
	wake := service.NewWake()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-sub.C():
				wake.Signal()
			}
		}
	}()
	return service.Loop{Name: "registrations", Interval: reloadEvery, Wake: wake, Log: s.log, Tick: func(ctx context.Context) error {
		_, err := s.current(ctx)
		return err
	}}.Run(ctx)
}

const reloadEvery = 10 * time.Second

// Version is the registry's version that this process has loaded, 0 for none yet.
func (s *Service) Version() int64 {
	if ix := s.index.Load(); ix != nil {
		return ix.version
	}
	return 0
}

// Synced returns the commit whose workflows are registered for the repository, "" for none yet.
func (s *Service) Synced(ctx context.Context, routingKey, repo string) (string, error) {
	row, err := s.st.Read().RegistrationSync(ctx, routingKey, repo)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return row.CommitSha, err
}

// Sync makes workflows the repository's registrations in the caller's transaction: named ones are replaced (keeping id and
// disabled), the others deleted, the registry's version raised and the change told. scope says for which organisation, source,
// repository, commit and default branch, and in SyncedAt when the delivery was received. applied is false, and nothing is written,
// when a newer delivery was here first (REG-2). Registrations that are as they should be are left alone.
func (s *Service) Sync(ctx context.Context, tx *store.Tx, scope db.WorkflowRegistration, delivery string, workflows []lock.Workflow) (applied bool, err error) {
	n, err := tx.ClaimRegistrationSync(ctx, db.ClaimRegistrationSyncParams{
		RoutingKey: scope.RoutingKey, Repo: scope.Repo, CommitSha: scope.CommitSha, ReceivedAt: scope.SyncedAt, DeliveryID: delivery,
	})
	if err != nil || n == 0 {
		return false, err
	}
	c := change{s: s, ctx: ctx, tx: tx, scope: scope}
	if err := c.put(workflows); err != nil {
		return false, err
	}
	for name, row := range c.old {
		if slices.Contains(c.names, name) {
			continue
		}
		if _, err := tx.DeleteRegistration(ctx, row.ID); err != nil {
			return false, err
		}
		c.changed = true
	}
	return true, c.done()
}

// Register adds or replaces the named workflows and leaves the repository's others alone (REG-5). It returns the registry's version after it.
func (s *Service) Register(ctx context.Context, scope db.WorkflowRegistration, workflows []lock.Workflow) (int64, error) {
	var after int64
	err := s.st.Write(ctx, func(tx *store.Tx) error {
		c := change{s: s, ctx: ctx, tx: tx, scope: scope}
		if scope.SyncedAt == 0 {
			c.scope.SyncedAt = tx.Now()
		}
		if err := c.put(workflows); err != nil {
			return err
		}
		if err := c.done(); err != nil {
			return err
		}
		var err error
		after, err = version(ctx, tx.Queries)
		return err
	})
	return after, err
}

// Forget removes everything that a source has registered.
func (s *Service) Forget(ctx context.Context, tx *store.Tx, orgID, routingKey string) error {
	if err := tx.ForgetRegistrationSync(ctx, routingKey); err != nil {
		return err
	}
	n, err := tx.DeleteRegistrationsOfSource(ctx, routingKey)
	if err != nil || n == 0 {
		return err
	}
	return bump(ctx, tx, orgID)
}

// ErrNotFound is returned for a registration that does not exist or belongs to another organisation.
var ErrNotFound = errors.New("no such registration")

// SetDisabled turns one registration off or on, from the next match on (REG-7). Its schedules miss what falls due meanwhile (CRN-6).
func (s *Service) SetDisabled(ctx context.Context, orgID, id string, disabled bool) error {
	return s.st.Write(ctx, func(tx *store.Tx) error {
		row, err := s.owned(ctx, tx, orgID, id)
		if err != nil || row.Disabled == disabled {
			return err
		}
		if _, err := tx.SetRegistrationDisabled(ctx, disabled, orgID, id); err != nil {
			return err
		}
		if disabled {
			_, err = tx.PauseSchedules(ctx, id)
		} else {
			err = reseed(ctx, tx, id)
		}
		if err != nil {
			return err
		}
		return bump(ctx, tx, orgID)
	})
}

// Delete removes a registration and the history of its schedules (REG-7). The next push to the default branch registers it again.
func (s *Service) Delete(ctx context.Context, orgID, id string) error {
	return s.st.Write(ctx, func(tx *store.Tx) error {
		row, err := s.owned(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		if _, err := tx.DeleteRegistration(ctx, row.ID); err != nil {
			return err
		}
		return bump(ctx, tx, orgID)
	})
}

func (s *Service) owned(ctx context.Context, tx *store.Tx, orgID, id string) (db.WorkflowRegistration, error) {
	row, err := tx.RegistrationForUpdate(ctx, orgID, id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return row, err
}

// change is one transaction's work on the registrations of a repository.
type change struct {
	s       *Service
	ctx     context.Context
	tx      *store.Tx
	scope   db.WorkflowRegistration
	old     map[string]db.WorkflowRegistration // by workflow
	names   []string                           // that were put
	changed bool
}

// put upserts workflows that have a trigger, with their schedules.
func (c *change) put(workflows []lock.Workflow) error {
	rows, err := c.tx.RegistrationsOfRepo(c.ctx, c.scope.RoutingKey, c.scope.Repo)
	if err != nil {
		return err
	}
	c.old = make(map[string]db.WorkflowRegistration, len(rows))
	for _, row := range rows {
		c.old[row.Workflow] = row
	}
	for i := range workflows {
		if w := &workflows[i]; len(w.On) > 0 {
			if err := c.putOne(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *change) putOne(w *lock.Workflow) error {
	entry, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode workflow %s: %w", w.Name, err)
	}
	p := db.UpsertRegistrationParams{
		ID: c.s.env.NewID(), OrgID: c.scope.OrgID, RoutingKey: c.scope.RoutingKey, Repo: c.scope.Repo, Workflow: w.Name,
		LockEntry: string(entry), TriggerTypes: triggerTypes(w), CommitSha: c.scope.CommitSha, DefaultBranch: c.scope.DefaultBranch,
		SourceFile: w.SourceFile, IsGlobal: workflow.Global(w), SyncedAt: c.scope.SyncedAt,
	}
	c.names = append(c.names, w.Name)
	old, known := c.old[w.Name]
	if known && same(old, p) {
		return nil
	}
	c.changed = true
	row, err := c.tx.UpsertRegistration(c.ctx, p)
	if err != nil {
		return err
	}
	reg := db.WorkflowRegistration{ID: row.ID, OrgID: p.OrgID, Disabled: row.Disabled}
	return seed(c.ctx, c.tx, reg, w, known && strings.Contains(old.TriggerTypes, ","+workflow.TypeSchedule+","))
}

// same tells whether an upsert would change nothing that matters.
func same(old db.WorkflowRegistration, p db.UpsertRegistrationParams) bool {
	return old.OrgID == p.OrgID && old.LockEntry == p.LockEntry && old.TriggerTypes == p.TriggerTypes && old.CommitSha == p.CommitSha &&
		old.DefaultBranch == p.DefaultBranch && old.SourceFile == p.SourceFile && old.IsGlobal == p.IsGlobal
}

// done raises the version and tells of the change.
func (c *change) done() error {
	if !c.changed {
		return nil
	}
	payload, err := json.Marshal(updated{Repo: c.scope.Repo, WorkflowCount: len(c.names), Workflows: append([]string{}, c.names...)})
	if err != nil {
		return err
	}
	err = c.s.events.EmitTx(c.tx, Event{
		OrgID: c.scope.OrgID, Name: EventUpdated, Repo: c.scope.Repo, RoutingKey: c.scope.RoutingKey, Payload: payload,
	})
	if err != nil {
		return fmt.Errorf("tell of the registrations: %w", err)
	}
	return bump(c.ctx, c.tx, c.scope.OrgID)
}

// updated is the payload of EventUpdated.
type updated struct {
	Repo          string   `json:"repo"`
	WorkflowCount int      `json:"workflowCount"`
	Workflows     []string `json:"workflows"`
}

// bump raises the version in the transaction that changed the rows, so that no node keeps an old index (REG-3).
func bump(ctx context.Context, tx *store.Tx, orgID string) error {
	tx.Notify(store.TopicRegistry, orgID)
	return tx.BumpRegistryVersion(ctx)
}

// triggerTypes is ",push,generic_webhook,": searchable by ",type,".
func triggerTypes(w *lock.Workflow) string {
	var names []string
	for _, t := range w.On {
		if !slices.Contains(names, t.Type) {
			names = append(names, t.Type)
		}
	}
	slices.Sort(names)
	return "," + strings.Join(names, ",") + ","
}
