package run_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// group is a concurrency group of a workflow or job under test.
func group(key string, limit int, cancel bool) *lock.Concurrency {
	return &lock.Concurrency{Group: key, Max: limit, CancelInProgress: cancel}
}

func grouped(c *lock.Concurrency, jobs ...lock.Job) run.New {
	n := newRun(jobs...)
	n.Workflow.Concurrency = c
	return n
}

func inGroup(j lock.Job, c *lock.Concurrency) lock.Job {
	j.Concurrency = c
	return j
}

// duties does what the leader's loop does about concurrency groups, until there is nothing left to do.
func (w *world) duties() {
	w.t.Helper()
	for range 100 {
		list, err := w.s.GroupDuties(ctx, true)
		if err != nil {
			w.t.Fatalf("list duties: %v", err)
		}
		if len(list) == 0 {
			return
		}
		for _, do := range list {
			w.write(do)
		}
	}
	w.t.Fatalf("there is always something to do")
}

func (w *world) slots(runID string) []db.ConcurrencySlot {
	w.t.Helper()
	rows, err := w.st.Read().OpenSlotsOfRun(ctx, runID)
	if err != nil {
		w.t.Fatalf("read slots: %v", err)
	}
	return rows
}

func (w *world) noteText(runID string) string {
	w.t.Helper()
	rows, err := w.st.Read().RunNotes(ctx, runID)
	if err != nil {
		w.t.Fatalf("read notes: %v", err)
	}
	var out []string
	for _, n := range rows {
		out = append(out, n.Kind+": "+n.Detail)
	}
	return strings.Join(out, "\n")
}

func wantText(t failer, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Fatalf("%q lacks %q", got, p)
		}
	}
}

// A run that waits for its group has jobs and none of them has begun; it goes on when the holder ends, and not before.
func TestRunWaitsForItsGroup(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("deploy-${{ kici.ref_name }}", 0, false)
		broken := job("c", on("a"))
		broken.If = "needs.a.result == 'success'"
		first := w.insert(grouped(c, job("a")))
		n := grouped(c, job("a"), job("b", on("a")), broken, job("d", on("nobody")))
		n.Workflow.TimeoutMs = 60_000
		second, third := w.insert(n), w.insert(grouped(c, job("a")))
		w.want(first, "a=queued", ci.RunPending)
		w.want(second, "a=pending b=pending c=pending d=pending", ci.RunPending)
		if w.run(second).DeadlineAt.Valid {
			t.Fatal("its timeout runs while it waits (PIPE-20)")
		}
		wantText(t, w.noteText(third), `held: waits for concurrency group "deploy-main": run #1 holds it, 1 wait before it`)
		w.duties()
		w.want(second, "a=pending b=pending c=pending d=pending", ci.RunPending)
		if ids, err := w.s.Unsettled(ctx, "", 0, 10); err != nil || len(ids) != 0 {
			t.Fatalf("%v %v stand still", ids, err)
		}
		w.workAll(first, nil)
		w.want(second, "a=pending b=pending c=pending d=pending", ci.RunPending) // promoted, not begun
		w.duties()
		w.want(second, "a=queued b=pending c=pending d=failed", ci.RunPending)
		if r := w.run(second); r.DeadlineAt.Int64 < r.CreatedAt+60_000 {
			t.Fatal("no deadline")
		}
		wantText(t, w.noteText(second), "promoted: has a place")
		w.workAll(second, nil)
		w.want(second, "a=success b=success c=success d=failed", ci.RunFailed)
		w.want(third, "a=pending", ci.RunPending)
		w.duties()
		w.workAll(third, nil)
		w.want(third, "a=success", ci.RunSuccess)
		for _, id := range []string{first, second, third} {
			if s := w.slots(id); len(s) != 0 {
				t.Fatalf("left %+v", s)
			}
		}
	})
}

// Groups differ by key, source and organisation; their case does not matter.
func TestGroupScope(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.insert(grouped(group("deploy", 0, false), job("a")))
	other := grouped(group("deploy", 0, false), job("a"))
	other.RoutingKey = "generic:acme:2"
	for _, c := range []struct {
		n    run.New
		want string
	}{
		{grouped(group("Deploy", 0, false), job("a")), "a=pending"},
		{grouped(group("other", 0, false), job("a")), "a=queued"},
		{other, "a=queued"},
		{grouped(group("${{ inputs.none }}", 0, false), job("a")), "a=queued"}, // no group
	} {
		if got := w.statuses(w.insert(c.n)); got != c.want {
			t.Errorf("%+v: %s", c.n.Workflow.Concurrency, got)
		}
	}
	bad := w.insert(grouped(group("${{ nonsense( }}", 0, false), job("a")))
	if r := w.run(bad); r.Status != "failed" || !strings.Contains(r.FailureReason, "concurrency.group") {
		t.Fatalf("%s %q", r.Status, r.FailureReason)
	}
	w.insert(grouped(group("three", 3, false), job("a")))
	if got := w.statuses(w.insert(grouped(group("three", 3, false), job("a")))); got != "a=queued" {
		t.Errorf("max 3: %s", got)
	}
}

// TestXC92CancelInProgress: ten runs of one group, one after the other; the last one runs, the others are superseded and say so.
func TestXC92CancelInProgress(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("ci", 1, true)
		first := w.insert(grouped(c, job("a"), job("b", on("a"))))
		a := w.job(first, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		var ids []string
		for range 9 {
			ids = append(ids, w.insert(grouped(c, job("a"))))
		}
		w.duties()
		w.want(first, "a=cancelling b=cancelled", ci.RunCancelling)
		for i, id := range ids[:8] {
			w.want(id, "a=cancelled", ci.RunCancelled)
			wantText(t, w.run(id).FailureReason, "superseded by run #")
			if i == 7 {
				wantText(t, w.run(id).FailureReason, "superseded by run #10")
			}
		}
		w.want(ids[8], "a=pending", ci.RunPending) // the group never holds more than its maximum
		w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobCancelled})
		w.duties()
		w.workAll(ids[8], nil)
		w.want(ids[8], "a=success", ci.RunSuccess)
		wantText(t, w.run(first).FailureReason, "superseded by run #2")
		wantText(t, w.noteText(first), "superseded: superseded by run #2 in concurrency group \"ci\"")
	})
}

// TestXC89LastSlot: two runs ask for the last place at once; one goes on.
func TestXC89LastSlot(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const n = 8
		var plans []run.Planned
		for range n {
			plans = append(plans, w.s.Plan(grouped(group("g", 2, false), job("a"))))
		}
		w.together(n, func(i int, tx *store.Tx) (bool, error) {
			_, created, err := w.s.Insert(tx, plans[i])
			return created, err
		})
		count := func() (queued, waiting int) {
			for _, p := range plans {
				switch w.job(p.RunID, "a").Status {
				case "queued":
					queued++
				case "pending":
					waiting++
				}
			}
			return queued, waiting
		}
		if q, p := count(); q != 2 || p != n-2 {
			t.Fatalf("%d go on, %d wait", q, p)
		}
		for range n {
			for _, p := range plans {
				w.workAll(p.RunID, nil)
			}
			w.duties()
			if q, _ := count(); q > 2 {
				t.Fatalf("%d go on", q)
			}
		}
		if q, p := count(); q != 0 || p != 0 {
			t.Fatalf("%d go on, %d wait", q, p)
		}
	})
}

// A job waits for its own group while the rest of its run goes on; matrix children are owners of their own.
func TestJobWaitsForItsGroup(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		deploy := inGroup(job("deploy", on("build")), group("prod", 0, false))
		deploy.Needs = nil
		first := w.insert(newRun(deploy))
		second := w.insert(newRun(job("build"), inGroup(job("deploy", on("build")), group("prod", 0, false)), job("after", on("deploy"))))
		w.want(second, "build=queued deploy=pending after=pending", ci.RunPending)
		w.workAll(second, nil)
		w.want(second, "build=success deploy=held after=pending", ci.RunRunning)
		wantText(t, w.noteText(second), `waits for concurrency group "prod": job "deploy" of run #1 holds it`)
		w.duties()
		w.want(second, "build=success deploy=held after=pending", ci.RunRunning)
		w.workAll(first, map[string]ci.JobStatus{"deploy": ci.JobFailed})
		w.duties()
		w.want(second, "build=success deploy=queued after=pending", ci.RunRunning)
		if j := w.job(second, "deploy"); j.QueuedAt.Int64 < w.run(first).FinishedAt.Int64 || j.Labels != `["linux"]` || j.Shape == "" {
			t.Fatalf("%+v", j)
		}
		w.workAll(second, nil)
		w.want(second, "build=success deploy=success after=success", ci.RunSuccess)
	})
}

// A job whose run holds the same group is covered by it, or it would wait for itself.
func TestRunCoversItsJobs(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	id := w.insert(grouped(group("g", 0, false), inGroup(job("a"), group("G", 0, false)), inGroup(job("b"), group("g", 0, true))))
	w.want(id, "a=queued b=queued", ci.RunPending)
	w.workAll(id, nil)
	w.want(id, "a=success b=success", ci.RunSuccess)
}

// cancel-in-progress of a job ends the older job, not its run.
func TestJobSupersedesJob(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("preview", 0, true)
		first := w.insert(newRun(inGroup(job("deploy"), c), job("test")))
		second := w.insert(newRun(inGroup(job("deploy"), c)))
		w.want(second, "deploy=held", ci.RunPending)
		w.duties()
		w.want(first, "deploy=cancelled test=queued", ci.RunPending)
		wantText(t, w.job(first, "deploy").Error, `superseded by job "deploy" of run #2`)
		w.want(second, "deploy=queued", ci.RunPending)
		j := w.job(second, "deploy")
		agent, attempt := w.assign(j.ID)
		w.started(j.ID, agent, attempt)
		third := w.insert(newRun(inGroup(job("deploy"), c)))
		w.duties()
		w.want(second, "deploy=cancelling", ci.RunRunning)
		w.want(third, "deploy=held", ci.RunPending)
		w.finish(run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: ci.JobCancelled})
		w.duties()
		w.want(third, "deploy=queued", ci.RunPending)
	})
}

// Cancelling a run that waits, and one that holds, lets the next one go on.
func TestCancelInGroup(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("g", 0, false)
		holds, waits, next := w.insert(grouped(c, job("a"))), w.insert(grouped(c, job("a"))), w.insert(grouped(c, job("a")))
		if res := w.cancel(run.CancelRequest{RunID: waits, By: "ann"}); res.Status != ci.RunCancelled {
			t.Fatalf("%+v", res)
		}
		w.duties()
		w.want(next, "a=pending", ci.RunPending)
		w.cancel(run.CancelRequest{RunID: holds, By: "ann"})
		w.duties()
		w.want(next, "a=queued", ci.RunPending)
		rerun, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: waits, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		w.want(rerun.RunID, "a=pending", ci.RunPending)
	})
}

// Only the failed jobs again, in a group: what is kept is kept while the run waits, and what needs it goes on from it.
func TestRerunFailedInGroup(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	c := group("g", 0, false)
	first := w.insert(grouped(c, job("a"), job("b", on("a"))))
	w.workAll(first, map[string]ci.JobStatus{"b": ci.JobFailed})
	holds := w.insert(grouped(c, job("a")))
	again, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: first, By: "ann", FailedOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	w.want(again.RunID, "a=success b=pending", ci.RunPending)
	w.workAll(holds, nil)
	w.duties()
	w.want(again.RunID, "a=success b=queued", ci.RunPending)
	w.workAll(again.RunID, nil)
	w.want(again.RunID, "a=success b=success", ci.RunSuccess)
}

// clocked is a world whose clock the test moves (SQLite).
func clocked(t *testing.T, change ...func(*run.Settings)) (*world, *time.Time) {
	now := time.UnixMilli(1_750_000_000_000)
	d := storetest.SQLiteDatabase(t)
	d.Config.Now = func() time.Time { return now }
	return newWorld(t, d.Open(t), change...), &now
}

// A run or job that waits too long ends and says for whom it waited.
func TestGroupWaitLimit(t *testing.T) {
	w, now := clocked(t)
	c := group("g", 0, false)
	w.insert(grouped(c, job("a")))
	waits := w.insert(grouped(c, job("a"), job("b", on("a", always...))))
	j := w.insert(newRun(inGroup(job("j"), c), job("k", on("j", always...))))
	w.want(j, "j=held k=pending", ci.RunPending)
	*now = now.Add(59 * time.Minute)
	w.duties()
	w.want(waits, "a=pending b=pending", ci.RunPending)
	*now = now.Add(2 * time.Minute)
	w.duties()
	w.want(waits, "a=cancelled b=cancelled", ci.RunFailed)
	wantText(t, w.run(waits).FailureReason, `no place in concurrency group "g" within 1h1m0s: run #1 holds it`)
	w.want(j, "j=failed k=queued", ci.RunPending)
	wantText(t, w.job(j, "j").Error, `no place in concurrency group "g"`)
	if f := w.job(j, "j").InitFailure; f != "concurrency_timeout" {
		t.Fatal(f)
	}
	if e := w.events(waits); e["__workflow_complete"] != 1 || e["__job_complete"] != 2 {
		t.Fatalf("events %v", e)
	}
}

// The time in which all a run could do was wait for a group does not count against its timeout (PIPE-20).
func TestHeldTimeDoesNotCount(t *testing.T) {
	w, now := clocked(t, func(s *run.Settings) { s.ConcurrencyWait = 0 })
	holder := w.insert(newRun(inGroup(job("a"), group("g", 0, false))))
	n := newRun(job("first"), inGroup(job("second", on("first")), group("g", 0, false)))
	n.Workflow.TimeoutMs = 10 * 60_000
	id := w.insert(n)
	deadline := w.run(id).DeadlineAt.Int64
	*now = now.Add(time.Minute)
	w.work(w.job(id, "first").ID, ci.JobSuccess, nil)
	*now = now.Add(3 * time.Hour)
	if due, err := w.st.Read().DueRuns(ctx, now.UnixMilli()); err != nil || len(due) != 0 {
		t.Fatalf("%v %v", due, err)
	}
	w.workAll(holder, nil)
	w.duties()
	if got := w.run(id).DeadlineAt.Int64 - deadline; got != (3 * time.Hour).Milliseconds() {
		t.Fatalf("the deadline moved by %s", time.Duration(got)*time.Millisecond)
	}
	*now = now.Add(time.Hour)
	if due, err := w.st.Read().DueRuns(ctx, now.UnixMilli()); err != nil || len(due) != 1 {
		t.Fatalf("%v %v", due, err)
	}
}

// TestXC90SlotOfADeadOwner: a place whose owner has ended without giving it up is given up by the sweep, and by whoever meets it.
func TestXC90SlotOfADeadOwner(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("g", 0, false)
		old := w.insert(grouped(c, job("a")))
		waits := w.insert(grouped(c, job("a")))
		w.write(func(tx *store.Tx) error { // an end that this build does not write
			_, err := tx.EndRun(ctx, db.EndRunParams{ID: old, Status: "failed", FinishedAt: w.job(old, "a").QueuedAt})
			return err
		})
		if s := w.slots(old); len(s) != 1 {
			t.Fatalf("%+v", s)
		}
		w.duties()
		w.want(waits, "a=queued", ci.RunPending)
		if s := w.slots(old); len(s) != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// Authors name groups, so they may be as many as branches: one that nobody is in is forgotten, and works as before when it is named again.
func TestIdleGroupsAreForgotten(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		groups := func() int {
			rows, err := w.st.Read().IdleGroup(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return len(rows)
		}
		id := w.insert(grouped(group("branch-1", 0, false), job("a")))
		w.duties()
		if groups() != 0 || len(w.slots(id)) != 1 {
			t.Fatal("a group that is held is idle")
		}
		if _, err := w.s.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if groups() != 1 {
			t.Fatal("it is not idle")
		}
		w.duties()
		if groups() != 0 {
			t.Fatal("it is still there")
		}
		holds := w.insert(grouped(group("branch-1", 0, false), job("a")))
		waits := w.insert(grouped(group("branch-1", 0, false), job("a")))
		w.want(holds, "a=queued", ci.RunPending)
		w.want(waits, "a=pending", ci.RunPending)
	})
}

// TestXC91PromotedAndDied: a place that was given, and then nothing: whoever leads next lets its owner go on, once.
func TestXC91PromotedAndDied(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("g", 0, false)
		first, second := w.insert(grouped(c, job("a"))), w.insert(grouped(c, job("a")))
		w.workAll(first, nil)
		w.want(second, "a=pending", ci.RunPending)
		crash := errors.New("the process dies")
		err := w.st.Write(ctx, func(tx *store.Tx) error {
			if err := w.s.Admit(tx, second, ""); err != nil {
				return err
			}
			return crash
		})
		if !errors.Is(err, crash) {
			t.Fatal(err)
		}
		w.want(second, "a=pending", ci.RunPending)
		w.together(4, func(_ int, tx *store.Tx) (bool, error) { return true, w.s.Admit(tx, second, "") })
		w.want(second, "a=queued", ci.RunPending)
	})
}

// What was held was accepted before: letting it go on is never refused because the queue is full (QUE-2, XC-82).
func TestHeldJobsBypassTheBound(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t), func(s *run.Settings) { s.QueueMaxDepth = 2 })
	c := group("g", 0, false)
	first := w.insert(newRun(inGroup(job("a"), c)))
	second := w.insert(newRun(inGroup(job("a"), c), fanOut(job("t"), 2, 1, false)))
	third := w.insert(newRun(job("a")))
	w.want(second, "a=held t (0)=queued t (1)=held", ci.RunPending)
	w.want(third, "a=failed", ci.RunFailed)
	w.workAll(first, nil)
	w.insert(newRun(job("fills")))
	w.duties()
	w.want(second, "a=queued t (0)=queued t (1)=held", ci.RunPending)
}
