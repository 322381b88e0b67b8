package check

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx     = context.Background()
	discard = slog.New(slog.DiscardHandler)
	env     = service.Env{Now: time.Now, NewID: ci.NewID}
)

// forge is a reporter that remembers what was posted.
type forge struct {
	answer func(source.CommitStatus) error // nil is success
	delay  func() time.Duration

	mu     sync.Mutex
	began  time.Time
	calls  int
	log    []string // "0s kici/ci pending", of what succeeded
	last   map[string]source.StatusState
	busy   map[string]bool // by context
	atOnce int
	most   int
	mixed  []string // contexts that were posted twice at once
}

func newForge() *forge {
	return &forge{began: time.Now(), last: map[string]source.StatusState{}, busy: map[string]bool{}}
}

func (f *forge) ReportStatus(ctx context.Context, s source.CommitStatus) error {
	f.mu.Lock()
	f.calls++
	if f.busy[s.Context] {
		f.mixed = append(f.mixed, s.Context)
	}
	f.busy[s.Context] = true
	f.atOnce++
	f.most = max(f.most, f.atOnce)
	answer, delay := f.answer, f.delay
	f.mu.Unlock()
	if delay != nil {
		select {
		case <-time.After(delay()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var err error
	if answer != nil {
		err = answer(s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy[s.Context] = false
	f.atOnce--
	if err == nil {
		f.last[s.Context] = s.State
		f.log = append(f.log, fmt.Sprintf("%v %s %s", time.Since(f.began).Round(time.Second/10), s.Context, s.State))
	}
	return err
}

func (f *forge) set(answer func(source.CommitStatus) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// slow makes every post take so long.
func (f *forge) slow(delay func() time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = delay
}

// fail makes every post fail until it is called with nil.
func (f *forge) fail(err error) {
	if err == nil {
		f.set(nil)
		return
	}
	f.set(func(source.CommitStatus) error { return err })
}

func (f *forge) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// posts is how many succeeded.
func (f *forge) posts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.log)
}

// lasts is the last state of each context.
func (f *forge) lasts() map[string]source.StatusState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.last)
}

// atMost is how many posts there were at once, at most.
func (f *forge) atMost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func (f *forge) want(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.log, want) {
		t.Fatalf("posted\n %s\nwant\n %s", strings.Join(f.log, "\n "), strings.Join(want, "\n "))
	}
}

// world is a store with runs, the forges of sources, and the room.
type world struct {
	t       *testing.T
	st      *store.Store
	runs    *run.Service
	s       *Service
	metrics *obs.Metrics
	stop    func() // of s, in a bubble

	mu     sync.Mutex
	show   string
	forges map[string]*forge // by routing key
}

const key = "github:1"

func newWorld(t *testing.T, st *store.Store) *world {
	t.Helper()
	settings := run.DefaultSettings()
	settings.QueueMaxDepth = 0
	w := &world{t: t, st: st, runs: run.NewService(st, settings, env, discard), forges: map[string]*forge{key: newForge()}}
	w.s = w.newService()
	w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, "acme", 1) })
	return w
}

func (w *world) newService() *Service {
	w.metrics = obs.NewMetrics()
	return New(Deps{
		Store: w.st, Sources: w, BaseURL: func() string { return "https://ci.test" }, Env: env, Log: discard, Metrics: w.metrics,
	})
}

// Reporter implements Sources.
func (w *world) Reporter(_ context.Context, _, routingKey string) (source.Reporter, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.forges[routingKey]; f != nil {
		return f, w.show, nil
	}
	return nil, "", nil
}

func (w *world) forge() *forge { return w.at(key) }

func (w *world) at(routingKey string) *forge {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forges[routingKey]
}

// another is a second source.
func (w *world) another(routingKey string) *forge {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forges[routingKey] = newForge()
	return w.forges[routingKey]
}

func (w *world) shows(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.show = what
}

// start runs a service until it is stopped, at the latest at the end of the test.
func (w *world) start(s *Service) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// inBubble runs fn in virtual time, with the room running.
func inBubble(t *testing.T, fn func(w *world)) {
	t.Helper()
	storetest.SQLiteDatabase(t) // makes the template outside
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, storetest.SQLite(t))
		w.stop = w.start(w.s)
		wait(time.Millisecond)
		fn(w)
	})
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	if err := w.st.Write(ctx, fn); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

func job(name string) lock.Job {
	return lock.Job{Name: name, RunsOn: lock.Selector{Labels: []string{"linux"}}, Steps: []lock.Step{{Run: "true"}}}
}

func newRun(jobs ...lock.Job) run.New {
	return run.New{
		OrgID: "acme", RoutingKey: key, Repo: "acme/shop", TriggerEvent: "push", Workflow: lock.Workflow{Name: "ci", Jobs: jobs},
		Event: ci.Event{Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: "abc", Title: "a commit", Actor: "ann"}, Checks: true,
	}
}

func (w *world) insert(n run.New) string {
	w.t.Helper()
	var id string
	p := w.runs.Plan(n)
	w.write(func(tx *store.Tx) (err error) {
		id, _, err = w.runs.Insert(tx, p)
		return err
	})
	return id
}

func (w *world) jobs(runID string) []db.ExecutionJob {
	w.t.Helper()
	rows, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// begin starts a job on an agent of its own.
func (w *world) begin(jobID string) {
	w.t.Helper()
	agent := "scaler-fake-" + ci.RandomHex(4)
	w.write(func(tx *store.Tx) error {
		now := tx.Now()
		err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
			ID: agent, OrgID: "acme", NodeID: "n1", Scaler: "s", Type: "fake", Labels: `["linux"]`, MandatoryLabels: "[]", Now: now,
		})
		if err != nil {
			return err
		}
		_, err = tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{
			ID: agent, Was: "requested", State: "online", Labels: `["linux"]`, MandatoryLabels: "[]", InstanceID: "n1", SessionID: "s1",
			Now: sql.NullInt64{Int64: now, Valid: true},
		})
		if err != nil {
			return err
		}
		attempt, err := tx.DispatchAssign(ctx, sql.NullString{String: agent, Valid: true}, jobID)
		if err != nil {
			return err
		}
		j, err := tx.LockJob(ctx, jobID)
		if err != nil {
			return err
		}
		err = tx.DispatchInsertAssignment(ctx, db.DispatchInsertAssignmentParams{
			JobID: jobID, Attempt: attempt, RunID: j.RunID, AgentID: agent, CreatedAt: now, AckBy: now + 10_000,
		})
		if err != nil {
			return err
		}
		_, err = w.runs.Started(tx, wire.JobStatus{JobID: jobID, Attempt: int(attempt), Status: "running", Seq: 1}, agent)
		return err
	})
}

func (w *world) end(jobID string, status ci.JobStatus) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		ok, err := w.runs.Finish(tx, run.End{JobID: jobID, Status: status})
		if err == nil && !ok {
			return fmt.Errorf("the end was refused")
		}
		return err
	})
}

// cancel ends a run whose jobs have no agents.
func (w *world) cancel(runID string) {
	w.t.Helper()
	if _, err := w.runs.Cancel(ctx, run.CancelRequest{RunID: runID, By: "ann"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) row(runID string) db.ExecutionRun {
	w.t.Helper()
	r, err := w.st.Read().WholeRun(ctx, runID)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// statuses shows what is stored of a run's statuses: "context state/wanted attempts error".
func (w *world) statuses(runID string) []string {
	w.t.Helper()
	rows, err := w.st.Read().CommitStatuses(ctx, runID)
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, r := range rows {
		text := fmt.Sprintf("%s %s/%s %d %s", r.Context, r.State, r.Wanted, r.Attempts, r.LastError)
		if r.GaveUpAt.Valid {
			text += " (gave up)"
		}
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

func (w *world) wantStatuses(runID string, want ...string) {
	w.t.Helper()
	if got := w.statuses(runID); !slices.Equal(got, want) {
		w.t.Fatalf("stored\n %s\nwant\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

func (w *world) counted(operation string) int {
	return w.metric("kici_orch_github_check_run_total", operation)
}

func (w *world) failures(reason string) int {
	return w.metric("kici_orch_github_check_run_failures_total", reason)
}

// metric reads a counter with one label.
func (w *world) metric(name, label string) int {
	w.t.Helper()
	all, err := w.metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	w.t.Fatalf("no metric %s %s", name, label)
	return 0
}
