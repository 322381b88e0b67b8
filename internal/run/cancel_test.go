package run_test

import (
	"errors"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
)

func (w *world) cancel(req run.CancelRequest) run.CancelResult {
	w.t.Helper()
	req.OrgID = "acme"
	res, err := w.s.Cancel(ctx, req)
	if err != nil {
		w.t.Fatalf("cancel: %v", err)
	}
	return res
}

func TestCancelBeforeAnythingRuns(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b", on("a", always...)), withIf(job("c", on("a")), "always()")))
		res := w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		if res.Status != ci.RunCancelled || res.Cancelled != 3 || res.Notified != 0 {
			t.Fatalf("%+v", res)
		}
		w.want(id, "a=cancelled b=cancelled c=cancelled", ci.RunCancelled)
		r := w.run(id)
		if r.CancelledBy != "ann" || r.FailureReason != "cancelled by ann" || r.FailureClass != "cancelled" {
			t.Fatalf("%q %q %q", r.CancelledBy, r.FailureReason, r.FailureClass)
		}
		if e := w.events(id); e["__workflow_complete"] != 1 || e["__job_complete"] != 3 {
			t.Fatalf("events %v", e)
		}
	})
}

func TestCancelWithRunningJobs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b"), job("c", on("a"))))
		a, b := w.job(id, "a"), w.job(id, "b")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		res := w.cancel(run.CancelRequest{RunID: id, By: "ann", Reason: "superseded"})
		if res.Status != ci.RunCancelling || res.Cancelled != 2 || res.Notified != 1 {
			t.Fatalf("%+v", res)
		}
		w.want(id, "a=cancelling b=cancelled c=cancelled", ci.RunCancelling)
		if got := w.job(id, "a"); got.CancelReason != "superseded" || got.CancelForce {
			t.Fatalf("%q force %v", got.CancelReason, got.CancelForce)
		}
		at := w.run(id).CancellingAt
		w.cancel(run.CancelRequest{RunID: id, By: "bob", Force: true})
		if r := w.run(id); r.CancellingAt != at || !r.CancelForce || r.CancelledBy != "ann" {
			t.Fatalf("a second cancel: %+v", r)
		}
		if !w.job(id, "a").CancelForce {
			t.Fatal("the job is not forced")
		}
		w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobCancelled})
		w.want(id, "a=cancelled b=cancelled c=cancelled", ci.RunCancelled)
		_ = b
	})
}

// TestXC93CancelFinished: refused, and nothing written.
func TestXC93CancelFinished(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		w.workAll(id, nil)
		before := w.run(id)
		if _, err := w.s.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}); !errors.Is(err, run.ErrTerminal) {
			t.Fatalf("got %v", err)
		}
		if w.run(id) != before {
			t.Fatal("the row changed")
		}
	})
}

// TestXC95Scope: another organisation's or source's run is not cancelled.
func TestXC95Scope(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		for _, c := range []struct {
			req  run.CancelRequest
			want error
		}{
			{run.CancelRequest{OrgID: "other", RunID: id}, run.ErrNotFound},
			{run.CancelRequest{OrgID: "acme", RunID: "no-such"}, run.ErrNotFound},
			{run.CancelRequest{OrgID: "acme", RunID: id, RoutingKey: "generic:acme:2"}, run.ErrScope},
		} {
			if _, err := w.s.Cancel(ctx, c.req); !errors.Is(err, c.want) {
				t.Fatalf("%+v: %v", c.req, err)
			}
		}
		w.want(id, "a=queued", ci.RunPending)
	})
}

// TestXC96SuccessAfterCancel: the job keeps its success, the run is cancelled (STM-6).
func TestXC96SuccessAfterCancel(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			report, job ci.JobStatus
		}{{ci.JobSuccess, ci.JobSuccess}, {ci.JobFailed, ci.JobFailed}, {ci.JobCancelled, ci.JobCancelled}} {
			id := w.insert(newRun(job("a")))
			a := w.job(id, "a")
			agent, attempt := w.assign(a.ID)
			w.started(a.ID, agent, attempt)
			w.cancel(run.CancelRequest{RunID: id, By: "ann"})
			w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: c.report})
			w.want(id, "a="+string(c.job), ci.RunCancelled)
		}
	})
}

// TestXC87CancelDuringHandOver: a job whose dispatch was not sent ends at once; one that was sent is cancelled on its agent; one
// that is claimed later is not claimed.
func TestXC87CancelDuringHandOver(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("unsent"), job("sent"), job("unclaimed")))
		u, s := w.job(id, "unsent"), w.job(id, "sent")
		_, uAttempt := w.assign(u.ID)
		sAgent, sAttempt := w.assign(s.ID)
		w.sent(s.ID, sAttempt)
		w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		w.want(id, "unsent=cancelled sent=cancelling unclaimed=cancelled", ci.RunCancelling)
		as, _ := w.st.Read().WholeAssignments(ctx, u.ID)
		if as[uAttempt-1].EndReason != "cancelled" || !as[uAttempt-1].EndedAt.Valid {
			t.Fatalf("%+v", as)
		}
		if w.started(s.ID, sAgent, sAttempt); w.job(id, "sent").Status != string(ci.JobCancelling) {
			t.Fatal("a start undid the cancel")
		}
		w.requeue(s.ID, sAttempt, "rejected: busy", true)
		w.finish(run.End{JobID: s.ID, Attempt: sAttempt, AgentID: sAgent, Status: ci.JobCancelled})
		w.want(id, "unsent=cancelled sent=cancelled unclaimed=cancelled", ci.RunCancelled)
	})
}

// A job that was told to stop before it started is cancelled when its agent refuses it or is lost.
func TestCancelledBeforeStart(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		_, attempt := w.assign(a.ID)
		w.sent(a.ID, attempt)
		w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		w.requeue(a.ID, attempt, "not_acked", true)
		w.want(id, "a=cancelled", ci.RunCancelled)
	})
}

// TestXC94CancelDriven: agents are told again without grace, then the jobs end without them.
func TestXC94CancelDriven(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		w.cancel(run.CancelRequest{RunID: id, By: "ann"})
		drive := func(giveUp bool) (agents []string) {
			w.write(func(tx *store.Tx) error {
				var err error
				agents, err = w.s.DriveCancel(tx, id, giveUp)
				return err
			})
			return agents
		}
		if got := drive(false); len(got) != 0 || !w.job(id, "a").CancelForce {
			t.Fatalf("agents %v, force %v", got, w.job(id, "a").CancelForce)
		}
		w.want(id, "a=cancelling b=cancelled", ci.RunCancelling)
		if got := drive(true); len(got) != 1 || got[0] != agent {
			t.Fatalf("agents %v", got)
		}
		w.want(id, "a=cancelled b=cancelled", ci.RunCancelled)
		if got := drive(true); len(got) != 0 {
			t.Fatalf("agents %v of an ended run", got)
		}
	})
}

// TestCancelRaces: cancel, start, finish and hand-over at once. However they fall, the run ends, and what it says agrees with its
// jobs.
func TestCancelRaces(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for range 15 {
			id := w.insert(newRun(job("a"), job("b"), job("c", on("a"))))
			a := w.job(id, "a")
			agent, attempt := w.assign(a.ID)
			w.started(a.ID, agent, attempt)
			end := run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess}
			w.together(4, func(i int, tx *store.Tx) (bool, error) {
				if i%2 == 0 {
					return w.s.Finish(tx, end)
				}
				_, err := w.s.CancelTx(tx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"})
				if errors.Is(err, run.ErrTerminal) {
					return false, nil
				}
				return true, err
			})
			w.want(id, "a=success b=cancelled c=cancelled", ci.RunCancelled)
			if e := w.events(id); e["__job_complete"] != 3 || e["__workflow_complete"] != 1 {
				t.Fatalf("events %v", e)
			}
		}
	})
}
