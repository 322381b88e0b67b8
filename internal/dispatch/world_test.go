package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// failer is testing.TB or *rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// world is a store with runs and a dispatcher over it, and a clock that tests move (SQLite only).
type world struct {
	t    failer
	st   *store.Store
	runs *run.Service
	d    *Dispatcher
	term int64
	p    *placer
	w    *warden
	now  atomic.Int64
}

const start = int64(1_750_000_000_000)

// sqlite makes a world whose clock stands at start.
func sqlite(t testing.TB) *world {
	w := &world{t: t}
	w.now.Store(start)
	d := storetest.SQLiteDatabase(t)
	d.Config.Now = w.time
	w.open(d.Open(t))
	return w
}

// each makes a world on every engine. On PostgreSQL the clock is the database's.
func each(t *testing.T, fn func(t *testing.T, w *world)) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := &world{t: t}
		w.now.Store(time.Now().UnixMilli())
		w.open(st)
		fn(t, w)
	})
}

func (w *world) time() time.Time { return time.UnixMilli(w.now.Load()) }

func (w *world) pass(d time.Duration) { w.now.Add(d.Milliseconds()) }

func (w *world) open(st *store.Store) {
	env := service.Env{Now: w.time, NewID: ci.NewID}
	log := slog.New(slog.DiscardHandler)
	w.st, w.runs = st, run.NewService(st, run.DefaultSettings(), env, log)
	w.d = New(Deps{Store: st, Runs: livesOf{w.runs}, InstanceID: "n1", Settings: DefaultSettings(), Env: env, Log: log})
	w.write(func(tx *store.Tx) error {
		if err := tx.InsertOrg(ctx, "acme", 1); err != nil {
			return err
		}
		if err := tx.SeedLeaderTerm(ctx); err != nil {
			return err
		}
		var err error
		if w.term, err = tx.TakeLeaderTerm(ctx); err != nil {
			return err
		}
		return w.node(tx, "n1")
	})
	w.p, w.w = w.d.placer(w.term), w.d.warden(w.term)
}

// node makes an orchestrator that lives and is ready.
func (w *world) node(tx *store.Tx, id string) error {
	now := tx.Now()
	if err := tx.StartInstance(ctx, db.StartInstanceParams{InstanceID: id, Name: id, Version: "v", Url: "u", Now: now}); err != nil {
		return err
	}
	if _, err := tx.SetInstanceReady(ctx, now, id); err != nil {
		return err
	}
	_, err := tx.SetInstanceCaps(ctx, db.SetInstanceCapsParams{InstanceID: id, MaxAgents: 1000})
	return err
}

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	if err := w.st.Write(ctx, fn); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// scaler publishes one scaler of node n1 with one label set.
func (w *world) scaler(name string, maxAgents int64, labels ...string) {
	w.t.Helper()
	w.pooled(name, maxAgents, placement.WarmPool{}, labels...)
}

// pooled is a scaler with a warm pool.
func (w *world) pooled(name string, maxAgents int64, warm placement.WarmPool, labels ...string) {
	w.t.Helper()
	set := placement.LabelSet{Declared: labels, Enriched: ci.NormalizeLabels(labels), AgentLabels: ci.NormalizeLabels(labels)}
	w.write(func(tx *store.Tx) error {
		return tx.NodePutScaler(ctx, db.NodePutScalerParams{
			NodeID: "n1", Name: name, Type: "fake", Spec: mustJSON(placement.ScalerSpec{LabelSets: []placement.LabelSet{set}, MaxConcurrentSpawns: 10, Warm: warm}),
			MaxAgents: maxAgents, Ready: true, Now: tx.Now(),
		})
	})
}

// static makes a connected static agent.
func (w *world) static(id string, labels ...string) string {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		if _, err := tx.FleetInsertStatic(ctx, id, "acme", tx.Now()); err != nil {
			return err
		}
		return w.admit(tx, "n1", id, "gone", labels)
	})
	return id
}

func (w *world) admit(tx *store.Tx, instance, id, was string, labels []string) error {
	rows, err := tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{
		ID: id, Was: was, State: "online", Labels: encode(labels), MandatoryLabels: "[]", InstanceID: instance, SessionID: "s-" + id,
		Now: sql.NullInt64{Int64: tx.Now(), Valid: true},
	})
	if err == nil && rows != 1 {
		err = fmt.Errorf("agent %s was not %s", id, was)
	}
	return err
}

// register lets a launched agent come online.
func (w *world) register(id string, labels ...string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error { return w.admit(tx, "n1", id, "requested", labels) })
}

// admitTo moves the link of an agent to another server.
func (w *world) admitTo(instance, id string, labels ...string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error { return w.admit(tx, instance, id, "online", labels) })
}

func job(name string, labels ...string) lock.Job {
	return lock.Job{Name: name, RunsOn: lock.Selector{Labels: labels}, Steps: []lock.Step{{Run: "true"}}}
}

func (w *world) insert(jobs ...lock.Job) string {
	w.t.Helper()
	return w.insertOf("acme", jobs...)
}

func (w *world) insertOf(org string, jobs ...lock.Job) string {
	w.t.Helper()
	p := w.runs.Plan(run.New{
		OrgID: org, RoutingKey: "k", Repo: "acme/shop", TriggerEvent: "push",
		Workflow: lock.Workflow{Name: "ci", Jobs: jobs}, Event: ci.Event{Type: "push", SHA: "abc"},
	})
	var id string
	w.write(func(tx *store.Tx) error {
		var err error
		id, _, err = w.runs.Insert(tx, p)
		return err
	})
	return id
}

func (w *world) place() {
	w.t.Helper()
	if err := w.p.tick(ctx); err != nil {
		w.t.Fatalf("place: %v", err)
	}
}

func (w *world) duties() {
	w.t.Helper()
	if err := w.w.tick(ctx); err != nil {
		w.t.Fatalf("duties: %v", err)
	}
}

func (w *world) job(runID, name string) db.ExecutionJob {
	w.t.Helper()
	rows, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, j := range rows {
		if j.Name == name {
			return j
		}
	}
	w.t.Fatalf("no job %s", name)
	return db.ExecutionJob{}
}

func (w *world) run(id string) db.ExecutionRun {
	w.t.Helper()
	r, err := w.st.Read().WholeRun(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) agents() []db.Agent {
	w.t.Helper()
	rows, err := w.st.Read().WholeAgents(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func (w *world) agent(id string) db.Agent {
	w.t.Helper()
	a, err := w.st.Read().WholeAgent(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) assignments(jobID string) []db.Assignment {
	w.t.Helper()
	rows, err := w.st.Read().WholeAssignments(ctx, jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// started reports the job of an agent as running.
func (w *world) started(j db.ExecutionJob) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		ok, err := w.runs.Started(tx, wire.JobStatus{JobID: j.ID, Attempt: int(j.Attempt), Seq: 1}, j.AgentID.String)
		if err == nil && !ok {
			err = fmt.Errorf("start was refused")
		}
		return err
	})
}

func (w *world) finish(j db.ExecutionJob, status ci.JobStatus) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		_, err := w.runs.Finish(tx, run.End{JobID: j.ID, Attempt: int(j.Attempt), AgentID: j.AgentID.String, Status: status})
		return err
	})
}

func (w *world) loseLink(agent string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		_, err := tx.FleetLoseLink(ctx, agent, "s-"+agent, sql.NullInt64{Int64: tx.Now(), Valid: true})
		return err
	})
}

func (w *world) wantJob(j db.ExecutionJob, status ci.JobStatus, text string) {
	w.t.Helper()
	if j.Status != string(status) || !strings.Contains(j.Error, text) {
		w.t.Fatalf("job %s is %s (%q), want %s (%q)", j.Name, j.Status, j.Error, status, text)
	}
}

// livesOf is run as this room sees it; app has the same adapter.
type livesOf struct{ *run.Service }

func (l livesOf) EndJob(tx *store.Tx, e JobEnd) (bool, error) {
	return l.Finish(tx, run.End{
		JobID: e.JobID, Attempt: e.Attempt, Status: e.Status, Error: e.Error, InitFailure: e.InitFailure, FailureClass: e.FailureClass,
		AssignmentReason: e.AssignmentReason, OnlyWaiting: e.OnlyWaiting,
	})
}

func (l livesOf) CancelOverdue(tx *store.Tx, runID, reason string) (bool, error) {
	_, err := l.CancelTx(tx, run.CancelRequest{RunID: runID, By: "kici", Reason: reason})
	if errors.Is(err, run.ErrTerminal) || errors.Is(err, run.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
