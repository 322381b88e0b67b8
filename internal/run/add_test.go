package run_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// runs takes a queued job of a run to running and returns what its agent needs to say to add jobs.
func (w *world) runs(runID, name string) run.AddJobs {
	w.t.Helper()
	j := w.job(runID, name)
	agent, attempt := w.assign(j.ID)
	if !w.started(j.ID, agent, attempt) {
		w.t.Fatalf("started was refused")
	}
	return run.AddJobs{AgentID: agent, JobID: j.ID, Attempt: attempt, RequestID: "r1"}
}

func (w *world) add(req run.AddJobs, id string, jobs ...lock.Job) []string {
	w.t.Helper()
	req.RequestID, req.Jobs = id, jobs
	names, err := w.s.AddJobs(ctx, req)
	if err != nil {
		w.t.Fatalf("add jobs: %v", err)
	}
	return names
}

func TestAddJobs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		n := newRun(job("plan"), job("last", on("plan")), fanOut(job("m"), 2, 0, false))
		n.Checks = true
		id := w.insert(n)
		changed := w.run(id).ChecksChanged
		w.work(w.job(id, "m (0)").ID, ci.JobSuccess, nil)
		req := w.runs(id, "plan")
		names := w.add(req, "one",
			job("now"), job("later", on("now")), job("after-m", on("m")), job("own", on("plan")), fanOut(job("x", on("now")), 3, 1, true),
			inGroup(job("g"), group("g", 0, false)), withIf(job("never"), "false"))
		want := []string{"now", "later", "after-m", "own", "x (0)", "x (1)", "x (2)", "g", "never"}
		if !slices.Equal(names, want) {
			t.Fatalf("names %v", names)
		}
		w.want(id, "plan=running last=pending m (0)=success m (1)=queued now=queued later=pending after-m=pending own=pending "+
			"x (0)=pending x (1)=pending x (2)=pending g=queued never=skipped", ci.RunRunning)
		if w.run(id).ChecksChanged == changed {
			t.Fatal("commit statuses do not know")
		}
		wantText(t, w.notes(id), "jobs_added by "+req.AgentID)
		if again := w.add(req, "one", job("another")); !slices.Equal(again, want) || len(w.jobs(id)) != 13 {
			t.Fatalf("a repeat gives %v and makes %d jobs", again, len(w.jobs(id)))
		}
		more := w.add(req, "two", job("second", on("x"), on("m")))
		if !slices.Equal(more, []string{"second"}) || w.job(id, "second").Idx != 13 {
			t.Fatalf("%v", more)
		}
		w.finish(run.End{JobID: req.JobID, Attempt: req.Attempt, AgentID: req.AgentID, Status: ci.JobSuccess})
		if again := w.add(req, "one"); !slices.Equal(again, want) {
			t.Fatalf("a repeat after the end gives %v", again)
		}
		w.workAll(id, nil)
		for name, j := range w.jobs(id) {
			if j.Status != string(ci.JobSuccess) && name != "never" {
				t.Fatalf("%s is %s", name, j.Status)
			}
		}
		w.want(id, w.statuses(id), ci.RunSuccess)
	})
}

// An added job whose needs have ended already is decided about at once.
func TestAddedAfterItsNeeds(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("plan"), job("bad")))
		w.work(w.job(id, "bad").ID, ci.JobFailed, nil)
		w.add(w.runs(id, "plan"), "one", job("a", on("bad")), job("b", on("bad", always...)), job("c", on("a", always...)))
		w.want(id, "plan=running bad=failed a=skipped b=queued c=queued", ci.RunRunning)
	})
}

// TestXC64AddedInACircle: what cannot be run is refused as a whole, and says which job and why.
func TestXC64AddedInACircle(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("plan"), job("other"), fanOut(job("m"), 2, 0, false)))
		req := w.runs(id, "plan")
		broken := job("x")
		broken.Matrix = &lock.Matrix{Expression: "fromJSON('[]')"}
		for text, jobs := range map[string][]lock.Job{
			`"a" needs itself, through b, a`:                        {job("a", on("b")), job("b", on("a"))},
			`"b" needs itself, through b`:                           {job("a"), job("b", on("b"))},
			`the run has a job "other" already`:                     {job("a"), job("other")},
			`the run has a job "m" already`:                         {job("m")},
			`the run has a job "m (0)" already`:                     {job("m (0)")},
			`two of the added jobs are called "a"`:                  {job("a"), job("a")},
			`"a" needs "othr", which does not exist in this run`:    {job("a", on("othr"))},
			`the matrix of "x"`:                                     {broken},
			`there are no jobs to add`:                              nil,
			`the run would have more than 4096 jobs; it has 4`:      many(4093),
			`the added jobs make more than 100000 needs: two large`: pairs(),
		} {
			req.Jobs = jobs
			_, err := w.s.AddJobs(ctx, req)
			if !errors.Is(err, run.ErrAdd) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %q", err, text)
			}
		}
		w.want(id, "plan=running other=queued m (0)=queued m (1)=queued", ci.RunRunning)
	})
}

func many(n int) []lock.Job { return slices.Repeat([]lock.Job{job("a")}, n) }

// pairs is fan-outs that need each other: 2 × 256 × 256.
func pairs() []lock.Job {
	a := fanOut(job("a"), 256, 0, false)
	b, c := fanOut(job("b", on("a")), 256, 0, false), fanOut(job("c", on("b")), 256, 0, false)
	return []lock.Job{a, b, c}
}

// Only the agent that has the job, and only while it runs.
func TestAddJobsIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("plan"), job("other")))
		queued := w.job(id, "other")
		req := w.runs(id, "plan")
		req.Jobs = []lock.Job{job("a")}
		for name, change := range map[string]func(*run.AddJobs){
			"another agent":   func(r *run.AddJobs) { r.AgentID = "somebody" },
			"no agent":        func(r *run.AddJobs) { r.AgentID = "" },
			"another attempt": func(r *run.AddJobs) { r.Attempt++ },
			"a queued job":    func(r *run.AddJobs) { r.JobID = queued.ID },
			"no request id":   func(r *run.AddJobs) { r.RequestID = "" },
			"a long one":      func(r *run.AddJobs) { r.RequestID = strings.Repeat("x", 201) },
		} {
			r := req
			change(&r)
			if _, err := w.s.AddJobs(ctx, r); !errors.Is(err, run.ErrAdd) {
				t.Errorf("%s: %v", name, err)
			}
		}
		none := req
		none.JobID = "no-such"
		if _, err := w.s.AddJobs(ctx, none); !errors.Is(err, run.ErrNoJob) {
			t.Error(err)
		}
		w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		if _, err := w.s.AddJobs(ctx, req); !errors.Is(err, run.ErrAdd) {
			t.Error(err)
		}
		w.want(id, "plan=cancelling other=cancelled", ci.RunCancelling)
	})
}

// The same request at once from two sessions adds once; different ones add all of theirs.
func TestAddJobsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("plan")))
		req := w.runs(id, "plan")
		w.together(6, func(i int, tx *store.Tx) (bool, error) {
			r := req
			r.RequestID, r.Jobs = []string{"a", "b"}[i%2], []lock.Job{job([]string{"a", "b"}[i%2])}
			_, err := w.s.AddJobsTx(tx, r)
			return err == nil, err
		})
		if got := w.jobs(id); len(got) != 3 || got["a"].Status != "queued" || got["b"].Status != "queued" {
			t.Fatalf("%s", w.statuses(id))
		}
	})
}

// Failed jobs again: an added job that failed makes the job that added it run again, because the new run has it only then.
func TestRerunFailedAdded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("plan"), job("fine")))
		req := w.runs(id, "plan")
		w.add(req, "one", job("added"), job("deep", on("added", always...)))
		w.finish(run.End{JobID: req.JobID, Attempt: req.Attempt, AgentID: req.AgentID, Status: ci.JobSuccess})
		w.workAll(id, map[string]ci.JobStatus{"added": ci.JobFailed})
		res, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "ann", FailedOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		w.want(res.RunID, "plan=queued fine=success", ci.RunPending)
	})
}
