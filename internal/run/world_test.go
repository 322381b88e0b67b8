package run_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// failer is *testing.T or *rapid.T.
type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// world is a store with the room over it, and the moves that other rooms make.
type world struct {
	t  failer
	st *store.Store
	s  *run.Service
}

var ctx = context.Background()

func newWorld(t failer, st *store.Store, change ...func(*run.Settings)) *world {
	settings := run.DefaultSettings()
	for _, c := range change {
		c(&settings)
	}
	w := &world{t: t, st: st, s: run.NewService(st, settings, service.Env{Now: time.Now, NewID: ci.NewID}, slog.New(slog.DiscardHandler))}
	w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, "acme", 1) })
	return w
}

// each runs fn on every engine that is there.
func each(t *testing.T, fn func(t *testing.T, w *world)) {
	storetest.Each(t, func(t *testing.T, st *store.Store) { fn(t, newWorld(t, st)) })
}

func (w *world) write(fn func(*store.Tx) error) {
	w.t.Helper()
	if err := w.st.Write(ctx, fn); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// job is a job of a workflow under test.
func job(name string, needs ...lock.Need) lock.Job {
	return lock.Job{Name: name, Needs: needs, RunsOn: lock.Selector{Labels: []string{"linux"}}, Steps: []lock.Step{{Run: "true"}}}
}

func on(name string, set ...ci.JobStatus) lock.Need {
	if len(set) == 0 {
		set = []ci.JobStatus{ci.JobSuccess}
	}
	return lock.Need{Job: name, RunOn: set}
}

var (
	always    = ci.TerminalJobStatuses
	onFailure = []ci.JobStatus{ci.JobFailed, ci.JobStale, ci.JobUnroutable, ci.JobDrift}
)

func newRun(jobs ...lock.Job) run.New {
	return run.New{
		OrgID: "acme", RoutingKey: "generic:acme:1", Repo: "acme/shop", TriggerEvent: "push",
		Workflow: lock.Workflow{Name: "ci", Jobs: jobs},
		Event:    ci.Event{Type: "push", Ref: "refs/heads/main", Branch: "main", SHA: "abc", Title: "a commit", Actor: "ann"},
	}
}

func (w *world) insert(n run.New) string {
	w.t.Helper()
	var id string
	p := w.s.Plan(n)
	w.write(func(tx *store.Tx) error {
		var err error
		id, _, err = w.s.Insert(tx, p)
		return err
	})
	return id
}

func (w *world) run(id string) db.ExecutionRun {
	w.t.Helper()
	r, err := w.st.Read().WholeRun(ctx, id)
	if err != nil {
		w.t.Fatalf("read run: %v", err)
	}
	return r
}

func (w *world) jobs(runID string) map[string]db.ExecutionJob {
	w.t.Helper()
	rows, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil {
		w.t.Fatalf("read jobs: %v", err)
	}
	out := map[string]db.ExecutionJob{}
	for _, j := range rows {
		out[j.Name] = j
	}
	return out
}

func (w *world) job(runID, name string) db.ExecutionJob {
	w.t.Helper()
	j, ok := w.jobs(runID)[name]
	if !ok {
		w.t.Fatalf("run has no job %q", name)
	}
	return j
}

func (w *world) statuses(runID string) string {
	w.t.Helper()
	rows, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil {
		w.t.Fatalf("read jobs: %v", err)
	}
	var parts []string
	for _, j := range rows {
		parts = append(parts, j.Name+"="+j.Status)
	}
	return strings.Join(parts, " ")
}

// assign does what dispatch does: an online agent gets the job.
func (w *world) assign(jobID string) (agentID string, attempt int) {
	w.t.Helper()
	agentID = "scaler-fake-" + ci.RandomHex(4)
	w.write(func(tx *store.Tx) error {
		now := tx.Now()
		err := tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
			ID: agentID, OrgID: "acme", NodeID: "n1", Scaler: "s", Type: "fake", Labels: `["linux"]`, MandatoryLabels: "[]", Now: now,
		})
		if err != nil {
			return err
		}
		_, err = tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{
			ID: agentID, Was: "requested", State: "online", Labels: `["linux"]`, MandatoryLabels: "[]", InstanceID: "n1", SessionID: "s1", Now: sql.NullInt64{Int64: now, Valid: true},
		})
		if err != nil {
			return err
		}
		a, err := tx.DispatchAssign(ctx, sql.NullString{String: agentID, Valid: true}, jobID)
		if err != nil {
			return err
		}
		attempt = int(a)
		j, err := tx.LockJob(ctx, jobID)
		if err != nil {
			return err
		}
		return tx.DispatchInsertAssignment(ctx, db.DispatchInsertAssignmentParams{
			JobID: jobID, Attempt: a, RunID: j.RunID, AgentID: agentID, CreatedAt: now, AckBy: now + 10_000,
		})
	})
	return agentID, attempt
}

func (w *world) sent(jobID string, attempt int) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		rows, err := tx.FleetUnsent(ctx, "n1")
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.JobID != jobID || row.Attempt != int64(attempt) {
				continue
			}
			_, err := tx.FleetMarkSent(ctx, db.FleetMarkSentParams{
				JobID: jobID, Attempt: row.Attempt, SentAt: sql.NullInt64{Int64: tx.Now(), Valid: true}, AckBy: tx.Now() + 10_000, WasAckBy: row.AckBy,
			})
			return err
		}
		return fmt.Errorf("job %s has no assignment %d that waits to be sent", jobID, attempt)
	})
}

func (w *world) started(jobID, agent string, attempt int) bool {
	w.t.Helper()
	var ok bool
	w.write(func(tx *store.Tx) error {
		var err error
		ok, err = w.s.Started(tx, wire.JobStatus{JobID: jobID, Attempt: attempt, Status: "running", Seq: 1}, agent)
		return err
	})
	return ok
}

func (w *world) finish(e run.End) bool {
	w.t.Helper()
	var ok bool
	w.write(func(tx *store.Tx) error {
		var err error
		ok, err = w.s.Finish(tx, e)
		return err
	})
	return ok
}

// work takes a queued job through its whole life on an agent.
func (w *world) work(jobID string, status ci.JobStatus, outputs map[string]string) {
	w.t.Helper()
	agent, attempt := w.assign(jobID)
	if !w.started(jobID, agent, attempt) {
		w.t.Fatalf("started was refused")
	}
	if !w.finish(run.End{JobID: jobID, Attempt: attempt, AgentID: agent, Status: status, Outputs: outputs, Seq: 2}) {
		w.t.Fatalf("finish was refused")
	}
}

// workAll runs every job that becomes ready, with the given outcomes ("" is success), until nothing is queued.
func (w *world) workAll(runID string, outcome map[string]ci.JobStatus) {
	w.t.Helper()
	for {
		rows, err := w.st.Read().WholeJobs(ctx, runID)
		if err != nil {
			w.t.Fatalf("read jobs: %v", err)
		}
		moved := false
		for _, j := range rows {
			if j.Status != string(ci.JobQueued) {
				continue
			}
			status := outcome[j.Name]
			if status == "" {
				status = ci.JobSuccess
			}
			w.work(j.ID, status, nil)
			moved = true
		}
		if !moved {
			return
		}
	}
}

// events counts lifecycle events of a run by name.
func (w *world) events(runID string) map[string]int {
	w.t.Helper()
	rows, err := w.st.Read().EventsOfRun(ctx, runID)
	if err != nil {
		w.t.Fatalf("read events: %v", err)
	}
	out := map[string]int{}
	for _, e := range rows {
		out[e.EventName]++
	}
	return out
}

func (w *world) want(runID, jobs string, status ci.RunStatus) {
	w.t.Helper()
	if got := w.statuses(runID); got != jobs {
		w.t.Fatalf("jobs\n got %s\nwant %s", got, jobs)
	}
	if got := w.run(runID).Status; got != string(status) {
		w.t.Fatalf("run is %s, want %s", got, status)
	}
}

func decode[T any](t failer, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return v
}
