package event

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var ctx = context.Background()

// failer is *testing.T, *testing.B or *rapid.T.
type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// world is a store with the room over it, the real rooms of runs and registrations, and faults to order.
type world struct {
	t      failer
	st     *store.Store
	s      *Service
	runs   *run.Service
	regs   *registration.Service
	term   int64
	limits Limits

	mu     sync.Mutex
	fail   map[string]error // by registration id: planning it fails
	insert map[string]error // … inserting it fails
	before func(reg string) // called before a run is planned
	onRun  func(reg string) // called when a run is inserted, in the transaction
	plans  map[string]int   // by registration id
	synced int64
}

func newWorld(t failer, st *store.Store) *world {
	env := service.Env{Now: time.Now, NewID: ci.NewID}
	log := slog.New(slog.DiscardHandler)
	w := &world{
		t: t, st: st, runs: run.NewService(st, run.DefaultSettings(), env, log), limits: DefaultLimits(),
		fail: map[string]error{}, insert: map[string]error{}, plans: map[string]int{},
	}
	w.s = w.node("n1")
	w.regs = registration.New(registration.Deps{Store: st, Events: silent{}, Env: env, Log: log})
	w.write(func(tx *store.Tx) error {
		if err := tx.InsertOrg(ctx, "acme", 1); err != nil {
			return err
		}
		if err := tx.SeedLeaderTerm(ctx); err != nil {
			return err
		}
		var err error
		w.term, err = tx.TakeLeaderTerm(ctx)
		return err
	})
	return w
}

// node is another server's router over the same store.
func (w *world) node(id string) *Service {
	return New(Deps{
		Store: w.st, InstanceID: id, Leader: leads{w}, Limits: func() Limits { return w.limits },
		Index: func(ctx context.Context) (Index, error) { return w.regs.View(ctx) },
		Plan:  w.plan, Env: service.Env{Now: time.Now, NewID: ci.NewID}, Log: slog.New(slog.DiscardHandler), Metrics: obs.NewMetrics(),
	})
}

type leads struct{ w *world }

func (l leads) While(ctx context.Context, fn func(context.Context, int64) error) error {
	return fn(ctx, l.w.term)
}

func each(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) { fn(t, newWorld(t, st)) })
}

type planned struct {
	w   *world
	reg string
	p   run.Planned
}

func (w *world) plan(_ context.Context, s Start) (Planned, error) {
	w.mu.Lock()
	w.plans[s.Registration.ID]++
	err, before := w.fail[s.Registration.ID], w.before
	w.mu.Unlock()
	if before != nil {
		before(s.Registration.ID)
	}
	if err != nil {
		return nil, err
	}
	ev := s.Event
	ev.Repo, ev.SHA, ev.Branch = s.Registration.Repo, s.Registration.CommitSha, s.Branch
	return planned{w, s.Registration.ID, w.runs.Plan(run.New{
		OrgID: s.OrgID, RoutingKey: s.Registration.RoutingKey, Repo: s.Registration.Repo, Workflow: s.Workflow, Event: ev, Decision: s.Decision,
		DedupKey: s.DedupKey, TrustTier: s.TrustTier, ChainDepth: s.ChainDepth, Actor: s.Actor, TriggerEvent: s.TriggerEvent, Inputs: s.Inputs,
	})}, nil
}

func (p planned) Insert(_ context.Context, tx *store.Tx) (string, bool, error) {
	p.w.mu.Lock()
	err, on := p.w.insert[p.reg], p.w.onRun
	p.w.mu.Unlock()
	if err != nil {
		return "", false, err
	}
	if on != nil {
		on(p.reg)
	}
	return p.w.runs.Insert(tx, p.p)
}

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	if err := w.st.Write(ctx, fn); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// register makes the named workflows the registrations of a repository, and returns their ids by name.
func (w *world) register(key, repo string, workflows ...lock.Workflow) map[string]string {
	w.t.Helper()
	w.synced++
	w.write(func(tx *store.Tx) error {
		_, err := w.regs.Sync(ctx, tx, db.WorkflowRegistration{
			OrgID: "acme", RoutingKey: key, Repo: repo, CommitSha: "abc", DefaultBranch: "main", SyncedAt: w.synced,
		}, fmt.Sprint("d", w.synced), workflows)
		return err
	})
	rows, err := w.st.Read().RegistrationsOfRepo(ctx, key, repo)
	if err != nil {
		w.t.Fatalf("read registrations: %v", err)
	}
	ids := map[string]string{}
	for _, r := range rows {
		ids[r.Workflow] = r.ID
	}
	return ids
}

// unreadable makes a registration one of a version whose workflows this one cannot read.
func (w *world) unreadable(id string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		r, err := tx.RegistrationForUpdate(ctx, "acme", id)
		if err != nil {
			return err
		}
		_, err = tx.UpsertRegistration(ctx, db.UpsertRegistrationParams{
			ID: id, OrgID: r.OrgID, RoutingKey: r.RoutingKey, Repo: r.Repo, Workflow: r.Workflow, LockEntry: `{"name":{}}`, TriggerTypes: r.TriggerTypes,
			CommitSha: r.CommitSha, DefaultBranch: r.DefaultBranch, SourceFile: r.SourceFile, IsGlobal: r.IsGlobal, SyncedAt: r.SyncedAt,
		})
		if err == nil {
			err = tx.BumpRegistryVersion(ctx)
		}
		return err
	})
}

func flow(name string, on ...lock.Trigger) lock.Workflow {
	return lock.Workflow{Name: name, On: on, Jobs: []lock.Job{{
		Name: "j", RunsOn: lock.Selector{Labels: []string{"linux"}}, Steps: []lock.Step{{Run: "true"}},
	}}}
}

// emit writes an event as the orchestrator would.
func (w *world) emit(e Emit) string {
	w.t.Helper()
	if e.OrgID == "" {
		e.OrgID = "acme"
	}
	if e.SourceRoutingKey == "" && e.Emitter == "" {
		e.SourceRoutingKey, e.SourceRepo = keyA, "a"
	}
	var id string
	w.write(func(tx *store.Tx) (err error) {
		id, err = w.s.EmitTx(tx, e)
		return err
	})
	return id
}

// look routes all that is due.
func (w *world) look() {
	w.t.Helper()
	if _, err := w.s.look(ctx); err != nil {
		w.t.Fatalf("look: %v", err)
	}
}

func (w *world) scan() {
	w.t.Helper()
	if err := w.s.scan(ctx, w.term); err != nil {
		w.t.Fatalf("scan: %v", err)
	}
}

// pass lets time pass over everything that is stored.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		return errors.Join(tx.AgeEvents(ctx, nullInt(d.Milliseconds())), tx.AgeFailureBatches(ctx, d.Milliseconds()))
	})
}

func (w *world) event(id string) db.KiciEvent {
	w.t.Helper()
	e, err := w.st.Read().WholeEvent(ctx, id)
	if err != nil {
		w.t.Fatalf("read event: %v", err)
	}
	return e
}

// events are those with a name.
func (w *world) events(name string) (out []db.KiciEvent) {
	w.t.Helper()
	rows, err := w.st.Read().WholeEvents(ctx)
	if err != nil {
		w.t.Fatalf("read events: %v", err)
	}
	for _, e := range rows {
		if e.EventName == name {
			out = append(out, e)
		}
	}
	return out
}

// started are the runs of each registration of an event.
func (w *world) started(id string) map[string]string {
	w.t.Helper()
	rows, err := w.st.Read().EventTargets(ctx, id)
	if err != nil {
		w.t.Fatalf("read targets: %v", err)
	}
	out := map[string]string{}
	for _, r := range rows {
		out[r.RegistrationID] = r.RunID
	}
	return out
}

func (w *world) allRuns() []db.ExecutionRun {
	w.t.Helper()
	rows, err := w.st.Read().WholeRuns(ctx)
	if err != nil {
		w.t.Fatalf("read runs: %v", err)
	}
	return rows
}

// newRun makes a run of repository a whose job an agent holds, and returns the ids of both.
func (w *world) newRun(change func(*run.New)) (runID, jobID string) {
	w.t.Helper()
	n := run.New{
		OrgID: "acme", RoutingKey: keyA, Repo: "a", Workflow: flow("ci"), TriggerEvent: "push", TrustTier: ci.TierTrusted,
		Event: ci.Event{Type: "push", Ref: "refs/heads/feature", Branch: "feature", SHA: "abc", Actor: "ann"},
	}
	if change != nil {
		change(&n)
	}
	p := w.runs.Plan(n)
	w.write(func(tx *store.Tx) (err error) {
		runID, _, err = w.runs.Insert(tx, p)
		return err
	})
	jobs, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil || len(jobs) != 1 {
		w.t.Fatalf("jobs: %v %v", jobs, err)
	}
	return runID, jobs[0].ID
}

// give lets a new agent hold a job.
func (w *world) give(jobID string) (agent string) {
	w.t.Helper()
	agent = "scaler-fake-" + ci.RandomHex(4)
	w.write(func(tx *store.Tx) error {
		now := tx.Now()
		err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
			ID: agent, OrgID: "acme", NodeID: "n1", Scaler: "s", Type: "fake", Labels: `["linux"]`, MandatoryLabels: "[]", Now: now,
		})
		if err != nil {
			return err
		}
		_, err = tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{
			ID: agent, Was: "requested", State: "online", Labels: `["linux"]`, MandatoryLabels: "[]", InstanceID: "n1", SessionID: "s1", Now: nullInt(now),
		})
		if err != nil {
			return err
		}
		_, err = tx.DispatchAssign(ctx, sql.NullString{String: agent, Valid: true}, jobID)
		return err
	})
	return agent
}

// end lets an agent run a job to its end.
func (w *world) end(jobID string, status ci.JobStatus) {
	w.t.Helper()
	agent := w.give(jobID)
	w.write(func(tx *store.Tx) error {
		ok, err := w.runs.Finish(tx, run.End{JobID: jobID, Attempt: 1, AgentID: agent, Status: status})
		if err == nil && !ok {
			err = errors.New("the job did not end")
		}
		return err
	})
}

func (w *world) want(id, state, outcome string, count int64) {
	w.t.Helper()
	e := w.event(id)
	if got := State(e); got != state || e.MatchOutcome.String != outcome || e.MatchedCount.Int64 != count {
		w.t.Fatalf("event %s: %s %q %d (%s), want %s %q %d", e.EventName, got, e.MatchOutcome.String, e.MatchedCount.Int64, e.LastError, state, outcome, count)
	}
}

// fixedIndex is an index that never learns of a change.
func fixedIndex(v registration.View) func(context.Context) (Index, error) {
	return func(context.Context) (Index, error) { return v, nil }
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// silent tells nobody of registrations.
type silent struct{}

func (silent) EmitTx(*store.Tx, registration.Event) error { return nil }
