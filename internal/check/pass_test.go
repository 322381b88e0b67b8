package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

// each runs fn on every engine that is there, in real time.
func each(t *testing.T, fn func(w *world)) {
	storetest.Each(t, func(t *testing.T, st *store.Store) { fn(newWorld(t, st)) })
}

func (w *world) pass(runID string) {
	w.t.Helper()
	if err := w.s.pass(ctx, db.ChecksDueRow{ID: runID, OrgID: "acme", RoutingKey: key}); err != nil {
		w.t.Fatal(err)
	}
}

// due makes what was gathered or waits due.
func (w *world) due() {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		_, err := tx.HurryChecks(ctx)
		return err
	})
}

func TestPass(t *testing.T) {
	each(t, func(w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		w.pass(id)
		w.wantStatuses(id, "kici/ci pending/pending 0", "kici/ci/job/a pending/pending 0", "kici/ci/job/b pending/pending 0")
		w.pass(id) // nothing to do
		w.begin(w.jobs(id)[0].ID)
		w.pass(id) // too early
		if n := w.forge().asked(); n != 3 {
			w.t.Fatalf("%d posts, want 3", n)
		}
		w.due()
		w.pass(id)
		w.wantStatuses(id, "kici/ci running/running 0", "kici/ci/job/a running/running 0", "kici/ci/job/b pending/pending 0")
		w.cancel(id) // b ends at once, a's agent is told
		w.due()
		w.pass(id)
		w.end(w.jobs(id)[0].ID, ci.JobCancelled)
		w.pass(id) // at once: the run has ended
		w.wantStatuses(id, "kici/ci error/error 0", "kici/ci/job/a error/error 0", "kici/ci/job/b error/error 0")
		if r := w.row(id); r.ChecksDone != r.ChecksChanged || r.ChecksLease != 0 {
			w.t.Errorf("left over: %+v", r)
		}
	})
}

// Dying after a post and before its record posts it again, and nothing else is different.
func TestCrashBetweenPostAndRecord(t *testing.T) {
	each(t, func(w *world) {
		id := w.insert(newRun(job("a")))
		until, err := w.s.claim(ctx, id)
		if err != nil || until == 0 {
			w.t.Fatal(until, err)
		}
		v, err := w.s.observe(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		w.s.post(ctx, target{reporter: w.forge(), key: key}, Plan(v.run, v.jobs, v.posted, Options{}))
		w.wantStatuses(id)

		w.pass(id) // another coordinator, while the lease lasts
		if n := w.forge().asked(); n != 2 {
			w.t.Fatalf("%d posts under somebody else's lease", n-2)
		}
		w.write(func(tx *store.Tx) error { // it ends
			_, err := tx.ClaimChecks(ctx, id, 1)
			return err
		})
		w.pass(id)
		if n := w.forge().asked(); n != 4 {
			w.t.Errorf("%d posts, want each twice", n)
		}
		w.wantStatuses(id, "kici/ci pending/pending 0", "kici/ci/job/a pending/pending 0")
		// The dead one's record comes too late to let the run go.
		if err := w.s.record(ctx, v, until, outcome{key: key}); err != nil {
			w.t.Fatal(err)
		}
	})
}

// What changes while a pass posts is seen by the next one.
func TestChangeDuringAPass(t *testing.T) {
	each(t, func(w *world) {
		id := w.insert(newRun(job("a")))
		w.forge().set(func(s source.CommitStatus) error {
			if s.Context == "kici/ci" && s.State == pending {
				w.cancel(id)
			}
			return nil
		})
		w.pass(id)
		w.pass(id) // at once, because the run has ended
		w.wantStatuses(id, "kici/ci error/error 0", "kici/ci/job/a error/error 0")
	})
}

func TestSourceThatCannotBeRead(t *testing.T) {
	each(t, func(w *world) {
		id := w.insert(newRun(job("a")))
		s := New(Deps{Store: w.st, Sources: brokenSources{}, BaseURL: func() string { return "" }, Env: env, Log: discard, Metrics: w.metrics})
		if err := s.pass(ctx, db.ChecksDueRow{ID: id, OrgID: "acme", RoutingKey: key}); err == nil {
			w.t.Error("no error")
		}
		r := w.row(id)
		if r.ChecksLease != 0 || r.ChecksDueAt == 0 || r.ChecksDone != 0 {
			w.t.Errorf("not let go: %+v", r)
		}
	})
}

// Two coordinators work at once while runs of one commit replace each other. No name is ever posted to twice at once, and what
// arrives last is the newest run's last state.
func TestTwoServicesNeverPostOutOfOrder(t *testing.T) {
	each(t, func(w *world) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		w.forge().slow(func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(random.IntN(8)) * time.Millisecond
		})
		w.start(w.newService())
		w.start(w.newService())
		var ids []string
		for i := range 6 {
			id := w.insert(newRun(job("a"), job("b")))
			ids = append(ids, id)
			jobs := w.jobs(id)
			w.begin(jobs[0].ID)
			w.begin(jobs[1].ID)
			if i%2 == 0 {
				w.end(jobs[0].ID, ci.JobFailed)
			} else {
				w.end(jobs[0].ID, ci.JobSuccess)
			}
			if i > 0 { // the one before ends only now
				w.end(w.jobs(ids[i-1])[1].ID, ci.JobSuccess)
			}
		}
		w.end(w.jobs(ids[5])[1].ID, ci.JobSuccess)
		w.eventually("all is posted", func() bool {
			for _, id := range ids {
				if r := w.row(id); r.ChecksDone != r.ChecksChanged || r.ChecksLease != 0 {
					return false
				}
			}
			return true
		})
		f := w.forge()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.mixed) > 0 {
			w.t.Errorf("posted twice at once: %v", f.mixed)
		}
		for _, name := range []string{"kici/ci", "kici/ci/job/a", "kici/ci/job/b"} {
			if f.last[name] != success {
				w.t.Errorf("%s is %s at last\n%v", name, f.last[name], f.log)
			}
		}
	})
}

// eventually waits for a condition, with a limit that only a hang reaches.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	limit := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(limit) {
			w.t.Fatalf("never: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestFailedRunsAndReruns(t *testing.T) {
	each(t, func(w *world) {
		id := w.insert(newRun(job("a")))
		j := w.jobs(id)[0].ID
		w.begin(j)
		w.end(j, ci.JobFailed)
		w.pass(id)
		w.wantStatuses(id, "kici/ci failure/failure 0", "kici/ci/job/a failure/failure 0")
		again, err := w.runs.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "ann"})
		if err != nil {
			w.t.Fatal(err)
		}
		w.pass(again.RunID)
		w.wantStatuses(again.RunID, "kici/ci pending/pending 0", "kici/ci/job/a pending/pending 0")
		for i := range 12 { // an older run than the newest ten
			if _, err := w.runs.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: fmt.Sprint("ann", i)}); err != nil {
				w.t.Fatal(err)
			}
		}
		w.cancel(again.RunID)
		w.pass(again.RunID)
		if got := w.forge().lasts()["kici/ci"]; got != pending {
			w.t.Errorf("an older run has written %s", got)
		}
	})
}

type brokenSources struct{}

func (brokenSources) Reporter(context.Context, string, string) (source.Reporter, string, error) {
	return nil, "", errors.New("the store is away")
}
