package dispatch

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// groups does what the loop of concurrency groups does at one tick.
func (w *world) groups() {
	w.t.Helper()
	if err := w.d.keeper(w.term).tick(ctx); err != nil {
		w.t.Fatalf("groups: %v", err)
	}
}

func (w *world) insertIn(group string, jobs ...lock.Job) string {
	w.t.Helper()
	p := w.runs.Plan(run.New{
		OrgID: "acme", RoutingKey: "k", Repo: "acme/shop", TriggerEvent: "push",
		Workflow: lock.Workflow{Name: "ci", Jobs: jobs, Concurrency: &lock.Concurrency{Group: group}}, Event: ci.Event{Type: "push", SHA: "abc"},
	})
	var id string
	w.write(func(tx *store.Tx) error {
		var err error
		id, _, err = w.runs.Insert(tx, p)
		return err
	})
	return id
}

// The loop lets the next run of a group go on, under this process's term and no other.
func TestGroupsLoop(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.static("box", "linux")
		first, second := w.insertIn("g", job("a", "linux")), w.insertIn("g", job("a", "linux"))
		w.place()
		w.started(w.job(first, "a"))
		w.finish(w.job(first, "a"), ci.JobSuccess)
		old := w.d.keeper(w.term)
		w.write(func(tx *store.Tx) error { var err error; w.term, err = tx.TakeLeaderTerm(ctx); return err })
		if err := old.tick(ctx); err == nil || w.job(second, "a").Status != "pending" {
			t.Fatalf("a leader that is none any more let it go on: %v", err)
		}
		w.groups()
		if j := w.job(second, "a"); j.Status != "queued" {
			t.Fatalf("it is %s", j.Status)
		}
	})
}

// A deadline that an organisation was given holds from the next decision on.
func TestLimitsAreLive(t *testing.T) {
	w := sqlite(t)
	limits := Limits{UnroutableGrace: time.Hour, AckTimeout: func(org string) time.Duration {
		return map[string]time.Duration{"acme": 3 * time.Second}[org]
	}}
	w.d.Limits = func() Limits { return limits }
	w.static("box", "linux")
	fits, never := w.insert(job("a", "linux")), w.insert(job("a", "gpu"))
	w.place()
	if as := w.assignments(w.job(fits, "a").ID); len(as) != 1 || as[0].AckBy != as[0].CreatedAt+3000 {
		t.Fatalf("%+v", as)
	}
	w.pass(10 * time.Minute)
	w.place()
	if j := w.job(never, "a"); j.Status != "queued" {
		t.Fatalf("it is %s", j.Status)
	}
	limits.UnroutableGrace = time.Minute
	w.place()
	w.wantJob(w.job(never, "a"), ci.JobUnroutable, "gpu")
	for _, limits.LaunchFailures = range []int64{3, 9} {
		v, err := w.p.read(t.Context())
		if err != nil || v.snapshot.HintAfter != limits.LaunchFailures {
			t.Errorf("%d %v", v.snapshot.HintAfter, err)
		}
	}
}

// A job nobody reports about says so, and when the server that its agent was connected to is gone, that (STL-6).
func TestStaleEnd(t *testing.T) {
	const now = int64(1_000_000)
	row := db.DispatchDueAssignmentsRow{JobID: "j", AgentID: "a1", InstanceName: sql.NullString{String: "hydra", Valid: true}}
	for name, c := range map[string]struct {
		beat        sql.NullInt64
		class, text string
	}{
		"its server lives":   {sql.NullInt64{Int64: now - 1000, Valid: true}, "timed_out", "agent a1 has said nothing"},
		"its server is gone": {sql.NullInt64{Int64: now - 300_000, Valid: true}, "dead_orchestrator", "server hydra, which agent a1 was connected to, is gone"},
		"it stopped cleanly": {sql.NullInt64{Valid: true}, "dead_orchestrator", "server hydra"},
		"none is known":      {sql.NullInt64{}, "timed_out", "agent a1 has said nothing"},
	} {
		row.InstanceHeartbeat = c.beat
		if e := staleEnd(row, now, 2*time.Minute); e.FailureClass != c.class || !strings.Contains(e.Error, c.text) || e.Status != ci.JobStale {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
