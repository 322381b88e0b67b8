package run_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// fanOut is a job with n children, called "name (0)" and so on.
func fanOut(j lock.Job, n, window int, failFast bool) lock.Job {
	var values []json.RawMessage
	for i := range n {
		values = append(values, json.RawMessage(fmt.Sprint(i)))
	}
	j.Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{"n": values}, Order: []string{"n"}}
	j.MaxParallel, j.FailFast = window, failFast
	return j
}

// brief is the statuses of a run's jobs, one letter each: q queued, h held, p pending, s success, f failed, c cancelled, k skipped, …
func (w *world) brief(runID string) string {
	w.t.Helper()
	letters := map[string]string{"skipped": "k", "cancelling": "C", "success": "s"}
	rows, err := w.st.Read().WholeJobs(ctx, runID)
	if err != nil {
		w.t.Fatalf("read jobs: %v", err)
	}
	var b strings.Builder
	for _, j := range rows {
		l := letters[j.Status]
		if l == "" {
			l = j.Status[:1]
		}
		b.WriteString(l)
	}
	return b.String()
}

func (w *world) wantBrief(runID, want string) {
	w.t.Helper()
	if got := w.brief(runID); got != want {
		w.t.Fatalf("jobs are %s, want %s", got, want)
	}
}

// Children go through the window in the order of the fan-out; a skipped one takes no place.
func TestMaxParallel(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(fanOut(job("t"), 5, 2, false), job("after", on("t"))))
		w.wantBrief(id, "qqhhhp")
		w.work(w.job(id, "t (1)").ID, ci.JobSuccess, nil)
		w.wantBrief(id, "qsqhhp")
		w.work(w.job(id, "t (0)").ID, ci.JobFailed, nil)
		w.wantBrief(id, "fsqqhk") // without fail-fast the others go on
		w.workAll(id, nil)
		w.want(id, "t (0)=failed t (1)=success t (2)=success t (3)=success t (4)=success after=skipped", ci.RunFailed)

		id = w.insert(newRun(fanOut(withIf(job("t"), "matrix.n != 1 && matrix.n != 3"), 5, 1, false)))
		w.wantBrief(id, "qkhkh")
		w.workAll(id, nil)
		w.wantBrief(id, "sksks")

		id = w.insert(newRun(job("a"), fanOut(job("t", on("a")), 3, 2, false)))
		w.wantBrief(id, "qppp")
		w.workAll(id, nil)
		w.wantBrief(id, "ssss")
	})
}

// The first failure that is not allowed ends the others: what has not begun is skipped, what has is cancelled.
func TestFailFast(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(fanOut(job("t"), 5, 3, true), job("other"), job("after", on("t", always...))))
		runs, fails := w.job(id, "t (1)"), w.job(id, "t (2)")
		agent, attempt := w.assign(runs.ID)
		w.started(runs.ID, agent, attempt)
		w.wantBrief(id, "qrqhhqp")
		w.work(fails.ID, ci.JobFailed, nil)
		w.wantBrief(id, "cCfkkqp")
		for _, name := range []string{"t (0)", "t (3)"} {
			wantText(t, w.job(id, name).Error, "t (2) failed, and fail-fast is on")
		}
		w.finish(run.End{JobID: runs.ID, Attempt: attempt, AgentID: agent, Status: ci.JobCancelled})
		w.wantBrief(id, "ccfkkqq")
		w.workAll(id, nil)
		w.want(id, "t (0)=cancelled t (1)=cancelled t (2)=failed t (3)=skipped t (4)=skipped other=success after=success", ci.RunFailed)

		id = w.insert(newRun(fanOut(allowed(job("t")), 3, 1, true)))
		w.workAll(id, map[string]ci.JobStatus{"t (0)": ci.JobFailed})
		w.wantBrief(id, "fss")

		id = w.insert(newRun(fanOut(withIf(job("t"), "matrix.n == 1 && fromJSON('{') || true"), 3, 0, true))) // one cannot even be decided about
		w.want(id, "t (0)=cancelled t (1)=failed t (2)=cancelled", ci.RunFailed)
	})
}

// Window and group: a child waits for the window first, then for the group, and holds its place in the window meanwhile.
func TestMaxParallelInGroup(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(fanOut(inGroup(job("t"), group("g", 0, false)), 4, 2, false)))
		w.wantBrief(id, "qhhh")
		if s := w.slots(id); len(s) != 2 {
			t.Fatalf("%d places", len(s))
		}
		for _, want := range []string{"sqhh", "ssqh", "sssq", "ssss"} {
			for _, j := range w.jobs(id) {
				if j.Status == string(ci.JobQueued) {
					w.work(j.ID, ci.JobSuccess, nil)
				}
			}
			w.duties()
			w.wantBrief(id, want)
		}
		id = w.insert(newRun(fanOut(inGroup(job("t"), group("g", 0, false)), 3, 2, false)))
		w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		w.want(id, "t (0)=cancelled t (1)=cancelled t (2)=cancelled", ci.RunCancelled)
		if s := w.slots(id); len(s) != 0 {
			t.Fatalf("%d places", len(s))
		}
	})
}

// TestXC61TwoAtOnce: two children that end at once release two, and never more than the window allows.
func TestXC61TwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(fanOut(job("t"), 9, 3, false)))
		for range 3 {
			var ends []run.End
			for _, j := range w.jobs(id) {
				if j.Status == string(ci.JobQueued) {
					agent, attempt := w.assign(j.ID)
					w.started(j.ID, agent, attempt)
					ends = append(ends, run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess})
				}
			}
			if len(ends) != 3 {
				t.Fatalf("%d in flight: %s", len(ends), w.brief(id))
			}
			w.together(6, func(i int, tx *store.Tx) (bool, error) { return w.s.Finish(tx, ends[i%3]) })
		}
		w.wantBrief(id, "sssssssss")
	})
}

// What stands still although the window has room is moved by the sweep.
func TestStandingWave(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	id := w.insert(newRun(fanOut(job("t"), 3, 1, false)))
	w.write(func(tx *store.Tx) error { // an end that this build does not write
		return tx.ForceJobStatus(ctx, db.ForceJobStatusParams{RunID: id, Name: "t (0)", Status: "success", FinishedAt: sql.NullInt64{Int64: tx.Now(), Valid: true}})
	})
	w.wantBrief(id, "shh")
	ids, err := w.s.Unsettled(ctx, "", 0, 10)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v %v", ids, err)
	}
	w.write(func(tx *store.Tx) error { _, err := w.s.Settle(tx, id); return err })
	w.wantBrief(id, "sqh")
}

// TestHoldModel runs random runs of groups and fan-outs with random ends in random order against a few invariants: no group and no
// window ever holds more than it may, nobody is let past one who came before, nothing waits for nothing, and everything ends once.
func TestHoldModel(t *testing.T) {
	st := storetest.SQLite(t)
	base := newWorld(t, st)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, st: st, s: base.s}
		n++
		key := fmt.Sprint("g", n)
		var ids []string
		rt.Repeat(map[string]func(*rapid.T){
			"run": func(rt *rapid.T) {
				if len(ids) < 8 {
					ids = append(ids, w.insert(drawHeldRun(rt, key)))
				}
			},
			"end": func(rt *rapid.T) { w.endOne(rt, ids) },
			"cancel": func(rt *rapid.T) {
				if len(ids) == 0 {
					return
				}
				id := rapid.SampledFrom(ids).Draw(rt, "run")
				_, _ = w.s.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}) // it may have ended
			},
			"duties": func(*rapid.T) { w.duties() },
			"":       func(*rapid.T) { w.checkHolds(ids, key) },
		})
		for range 200 {
			w.duties()
			w.checkHolds(ids, key)
			if !w.endOne(rt, ids) {
				break
			}
		}
		for _, id := range ids {
			r := w.run(id)
			if !ci.RunStatus(r.Status).Terminal() || len(w.slots(id)) > 0 {
				rt.Fatalf("run is %s with %d places; jobs %s", r.Status, len(w.slots(id)), w.statuses(id))
			}
			if e := w.events(id); e["__workflow_complete"] != 1 || e["__job_complete"] != len(w.jobs(id)) {
				rt.Fatalf("events %v for %d jobs", e, len(w.jobs(id)))
			}
		}
	})
}

func drawHeldRun(t *rapid.T, key string) run.New {
	draw := func(name string) *lock.Concurrency {
		if rapid.IntRange(0, 2).Draw(t, name+" in a group") > 0 {
			return nil
		}
		return group(key, rapid.IntRange(1, 2).Draw(t, name+" max"), rapid.IntRange(0, 3).Draw(t, name+" cancels") == 0)
	}
	a := fanOut(job("a"), rapid.IntRange(1, 4).Draw(t, "children"), rapid.IntRange(0, 2).Draw(t, "window"), rapid.Bool().Draw(t, "fail-fast"))
	a.Concurrency = draw("a")
	b := job("b", on("a", rapid.SampledFrom([][]ci.JobStatus{{ci.JobSuccess}, always}).Draw(t, "edge")...))
	b.Concurrency = draw("b")
	return grouped(draw("run"), a, b)
}

// endOne lets one job that is queued, or is being cancelled, end. It reports whether there was one.
func (w *world) endOne(t *rapid.T, ids []string) bool {
	var open []string
	for _, id := range ids {
		rows, _ := w.st.Read().WholeJobs(ctx, id)
		for _, j := range rows {
			if j.Status == string(ci.JobQueued) {
				open = append(open, j.ID)
			}
		}
	}
	if len(open) == 0 {
		return false
	}
	id := rapid.SampledFrom(open).Draw(t, "job")
	w.work(id, rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(t, "status"), nil)
	return true
}

func (w *world) checkHolds(ids []string, key string) {
	w.t.Helper()
	active, waiting, smallest := 0, 0, 100
	for _, id := range ids {
		slots := map[string]string{}
		for _, s := range w.slots(id) {
			slots[s.JobID] = s.State
			switch {
			case s.State == "active":
				active, smallest = active+1, min(smallest, int(s.Max))
			case s.SupersededBy == "":
				waiting++
			}
		}
		waits := slots[""] == "queued"
		flight, held, window := 0, 0, 0
		rows, _ := w.st.Read().WholeJobs(ctx, id)
		for _, j := range rows {
			if waits && !ci.JobStatus(j.Status).Terminal() && j.Status != string(ci.JobPending) {
				w.t.Fatalf("job %s is %s while its run waits", j.Name, j.Status)
			}
			if j.Status == string(ci.JobQueued) && slots[j.ID] == "queued" {
				w.t.Fatalf("job %s is queued without a place in its group", j.Name)
			}
			if j.BaseName != "a" {
				continue
			}
			window = decode[lock.Job](w.t, j.LockJob).MaxParallel
			switch {
			case j.Status == string(ci.JobQueued) || j.Status == string(ci.JobHeld) && slots[j.ID] != "":
				flight++
			case j.Status == string(ci.JobHeld):
				held++
			}
		}
		if window > 0 && flight > window || held > 0 && flight < window {
			w.t.Fatalf("window %d: %d in flight, %d held: %s", window, flight, held, w.statuses(id))
		}
	}
	if active > smallest || waiting > 0 && active == 0 {
		w.t.Fatalf("group %s: %d hold it of %d, %d wait", key, active, smallest, waiting)
	}
}
