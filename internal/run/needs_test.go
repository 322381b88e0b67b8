package run_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func withIf(j lock.Job, cond string) lock.Job {
	j.If = cond
	return j
}

func allowed(j lock.Job) lock.Job {
	j.ContinueOnError = "true"
	return j
}

func TestNeedsCascade(t *testing.T) {
	fail := map[string]ci.JobStatus{"a": ci.JobFailed}
	cases := map[string]struct {
		jobs    []lock.Job
		outcome map[string]ci.JobStatus
		want    string
		status  ci.RunStatus
	}{
		"chain succeeds": {
			[]lock.Job{job("a"), job("b", on("a")), job("c", on("b"))}, nil, "a=success b=success c=success", ci.RunSuccess,
		},
		"failure skips what needs it, and what needs that": {
			[]lock.Job{job("a"), job("b", on("a")), job("c", on("b"))}, fail, "a=failed b=skipped c=skipped", ci.RunFailed,
		},
		"skips cascade by each edge's own set": {
			[]lock.Job{job("a"), job("b", on("a")), job("c", on("b", ci.JobSuccess, ci.JobSkipped)), job("d", on("b", always...))},
			fail, "a=failed b=skipped c=success d=success", ci.RunFailed,
		},
		"on failure runs only after a failure": {
			[]lock.Job{job("a"), job("b", on("a", onFailure...)), job("c", on("a"))}, fail, "a=failed b=success c=skipped", ci.RunFailed,
		},
		"on failure is skipped after success": {
			[]lock.Job{job("a"), job("b", on("a", onFailure...))}, nil, "a=success b=skipped", ci.RunSuccess,
		},
		"a skip does not wait for the other needs": {
			[]lock.Job{job("a"), job("b"), job("c", on("a"), on("b"))}, fail, "a=failed b=success c=skipped", ci.RunFailed,
		},
		"an allowed failure counts as success (D6)": {
			[]lock.Job{allowed(job("a")), job("b", on("a")), job("c", on("a", onFailure...))},
			fail,
			"a=failed b=success c=skipped", ci.RunSuccess,
		},
		"always() widens the edges (D8)": {
			[]lock.Job{job("a"), withIf(job("b", on("a")), "always()")}, fail, "a=failed b=success", ci.RunFailed,
		},
		"failure() sees failed ancestors through skipped jobs": {
			[]lock.Job{job("a"), job("b", on("a")), withIf(job("c", on("b")), "failure()")}, fail, "a=failed b=skipped c=success", ci.RunFailed,
		},
		"failure() is false after success": {
			[]lock.Job{job("a"), withIf(job("b", on("a")), "failure()")}, nil, "a=success b=skipped", ci.RunSuccess,
		},
		"success() is false after failure": {
			[]lock.Job{job("a"), withIf(job("b", on("a")), "success()")}, fail, "a=failed b=skipped", ci.RunFailed,
		},
		"cancelled() after a cancelled job": {
			[]lock.Job{job("a"), withIf(job("b", on("a")), "cancelled()")},
			map[string]ci.JobStatus{"a": ci.JobCancelled},
			"a=cancelled b=success", ci.RunCancelled,
		},
		"needs.x.result in a condition": {
			[]lock.Job{job("a"), withIf(job("b", on("a", always...)), "needs.a.result == 'failure'")}, fail, "a=failed b=success", ci.RunFailed,
		},
		"a false condition skips": {
			[]lock.Job{withIf(job("a"), "github.ref == 'refs/heads/other'"), job("b", on("a"))}, nil, "a=skipped b=skipped", ci.RunSuccess,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, storetest.SQLite(t))
			id := w.insert(newRun(c.jobs...))
			w.workAll(id, c.outcome)
			w.want(id, c.want, c.status)
		})
	}
}

// TestXC57RootEndsAtOnce: a root job that ends before the others have been looked at does not end the run early, nor leave the
// later job stuck.
func TestXC57RootEndsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		broken := withIf(job("a"), "nonsense(")
		id := w.insert(newRun(broken, job("b", on("a", always...)), job("c", on("a"))))
		w.want(id, "a=failed b=queued c=skipped", ci.RunPending)
		a := w.job(id, "a")
		if a.InitFailure != "dynamic_eval" || !strings.Contains(a.Error, "nonsense(") {
			t.Fatalf("init failure %q, error %q", a.InitFailure, a.Error)
		}
		w.workAll(id, nil)
		w.want(id, "a=failed b=success c=skipped", ci.RunFailed)
	})
}

// TestXC58SixteenFinishers: upstreams that end at once make the dependent ready once.
func TestXC58SixteenFinishers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const n = 16
		var jobs []lock.Job
		var needs []lock.Need
		for i := range n {
			name := fmt.Sprint("j", i)
			jobs = append(jobs, job(name))
			needs = append(needs, on(name))
		}
		id := w.insert(newRun(append(jobs, job("last", needs...))...))
		type held struct {
			job, agent string
			attempt    int
		}
		var all []held
		for _, j := range w.jobs(id) {
			if j.Status == string(ci.JobQueued) {
				agent, attempt := w.assign(j.ID)
				w.started(j.ID, agent, attempt)
				all = append(all, held{j.ID, agent, attempt})
			}
		}
		applied := w.together(len(all)*2, func(i int, tx *store.Tx) (bool, error) { // every report is sent twice
			h := all[i%len(all)]
			return w.s.Finish(tx, run.End{JobID: h.job, Attempt: h.attempt, AgentID: h.agent, Status: ci.JobSuccess})
		})
		if applied != n {
			t.Fatalf("%d of %d reports were applied", applied, n)
		}
		last := w.job(id, "last")
		if last.Status != string(ci.JobQueued) || !last.NeedsSatisfied {
			t.Fatalf("last is %s", last.Status)
		}
		if got := w.run(id).Status; got != string(ci.RunRunning) {
			t.Fatalf("run is %s", got)
		}
		if got := w.events(id)["__job_complete"]; got != n {
			t.Fatalf("%d job events, want %d", got, n)
		}
	})
}

// TestXC62LastTwoAtOnce: the run is finalised once, with the right status.
func TestXC62LastTwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for round := range 8 {
			id := w.insert(newRun(job("a"), job("b")))
			outcome := map[string]ci.JobStatus{"a": ci.JobSuccess, "b": ci.JobFailed}
			var ends []run.End
			for name, j := range w.jobs(id) {
				agent, attempt := w.assign(j.ID)
				w.started(j.ID, agent, attempt)
				ends = append(ends, run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: outcome[name]})
			}
			w.together(4, func(i int, tx *store.Tx) (bool, error) { return w.s.Finish(tx, ends[i%2]) })
			w.want(id, "a=success b=failed", ci.RunFailed)
			if got := w.events(id)["__workflow_complete"]; got != 1 {
				t.Fatalf("round %d: %d workflow events", round, got)
			}
		}
	})
}

// together runs fn n times at once, each in its own transaction, and counts how many were applied.
func (w *world) together(n int, fn func(i int, tx *store.Tx) (bool, error)) int {
	w.t.Helper()
	var wg sync.WaitGroup
	results := make([]bool, n)
	errs := make([]error, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = w.st.Write(ctx, func(tx *store.Tx) error {
				var err error
				results[i], err = fn(i, tx)
				return err
			})
		})
	}
	close(start)
	wg.Wait()
	applied := 0
	for i := range n {
		if errs[i] != nil {
			w.t.Fatalf("write %d: %v", i, errs[i])
		}
		if results[i] {
			applied++
		}
	}
	return applied
}

// TestNeedsModel runs random graphs with random ends in random order, reports repeated, against a model that knows nothing
// of transactions: every job ends exactly once as the model says, and so does the run.
func TestNeedsModel(t *testing.T) {
	st := storetest.SQLite(t)
	base := newWorld(t, st)
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, st: st, s: base.s}
		g := drawGraph(rt)
		id := w.insert(newRun(g.jobs...))
		for {
			var queued []string
			for _, j := range w.jobs(id) {
				if j.Status == string(ci.JobQueued) {
					queued = append(queued, j.Name)
				}
			}
			if len(queued) == 0 {
				break
			}
			names := map[string]bool{}
			for _, q := range queued {
				names[q] = true
			}
			var ordered []string
			for _, j := range g.jobs {
				if names[j.Name] {
					ordered = append(ordered, j.Name)
				}
			}
			name := rapid.SampledFrom(ordered).Draw(rt, "next")
			j := w.job(id, name)
			agent, attempt := w.assign(j.ID)
			w.started(j.ID, agent, attempt)
			end := run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: g.outcome[name]}
			if !w.finish(end) || w.finish(end) {
				rt.Fatalf("finish of %s: not exactly once", name)
			}
		}
		want, verdict := g.model()
		w.want(id, want, verdict)
		ev := w.events(id)
		if ev["__job_complete"] != len(g.jobs) || ev["__workflow_complete"] != 1 {
			rt.Fatalf("events %v for %d jobs", ev, len(g.jobs))
		}
	})
}

type graph struct {
	jobs    []lock.Job
	outcome map[string]ci.JobStatus
}

func drawGraph(t *rapid.T) graph {
	g := graph{outcome: map[string]ci.JobStatus{}}
	sets := [][]ci.JobStatus{{ci.JobSuccess}, always, onFailure, {ci.JobSuccess, ci.JobSkipped}, {ci.JobCancelled}}
	n := rapid.IntRange(1, 8).Draw(t, "jobs")
	for i := range n {
		j := job(fmt.Sprint("j", i))
		for u := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				j.Needs = append(j.Needs, on(fmt.Sprint("j", u), rapid.SampledFrom(sets).Draw(t, "set")...))
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "allowed") == 0 {
			j = allowed(j)
		}
		g.jobs = append(g.jobs, j)
		g.outcome[j.Name] = rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(t, "outcome")
	}
	return g
}

// model says how the jobs and the run end, from the graph alone.
func (g graph) model() (string, ci.RunStatus) {
	ended := map[string]ci.JobStatus{}
	seenAs := map[string]ci.JobStatus{} // D6
	var parts []string
	anyFailed, anyCancelled := false, false
	for _, j := range g.jobs {
		status := g.outcome[j.Name]
		for _, n := range j.Needs {
			in := false
			for _, s := range n.RunOn {
				in = in || s == seenAs[n.Job]
			}
			if !in {
				status = ci.JobSkipped
			}
		}
		ended[j.Name], seenAs[j.Name] = status, status
		tolerated := j.ContinueOnError == "true" && status == ci.JobFailed
		if tolerated {
			seenAs[j.Name] = ci.JobSuccess
		}
		anyFailed = anyFailed || status == ci.JobFailed && !tolerated
		anyCancelled = anyCancelled || status == ci.JobCancelled
		parts = append(parts, j.Name+"="+string(status))
	}
	verdict := ci.RunSuccess
	if anyCancelled {
		verdict = ci.RunCancelled
	}
	if anyFailed {
		verdict = ci.RunFailed
	}
	return strings.Join(parts, " "), verdict
}
