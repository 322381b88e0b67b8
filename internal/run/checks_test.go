package run_test

import (
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// A run whose source shows statuses counts each transaction that changes it or its jobs, once (PIPE-7).
func TestChangesAreCountedForStatuses(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		n := newRun(job("a"), job("b", on("a")), job("c", on("b")))
		n.Checks = true
		id := w.insert(n)
		count := func(want int64, what string) {
			t.Helper()
			if got := w.run(id).ChecksChanged; got != want {
				t.Errorf("%d changes after %s, want %d", got, what, want)
			}
		}
		count(1, "it was made")
		a := w.job(id, "a").ID
		agent, attempt := w.assign(a)
		count(1, "its assignment: it is still queued")
		w.step(wire.StepStatus{JobID: a, Attempt: attempt, StepIndex: 2, Name: "x", Status: "running", Seq: 2}, agent)
		count(2, "a step whose report came before the start's")
		w.step(wire.StepStatus{JobID: a, Attempt: attempt, StepIndex: 3, Name: "x", Status: "running", Seq: 3}, agent)
		count(2, "another step")
		w.started(a, agent, attempt)
		count(2, "a repeated start")
		w.finish(run.End{JobID: a, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess, Seq: 9})
		count(3, "the end of a job, which queues another")
		b := w.job(id, "b").ID
		_, attempt = w.assign(b)
		w.write(func(tx *store.Tx) error {
			_, err := w.s.Requeue(tx, b, attempt, "rejected", true)
			return err
		})
		count(3, "a requeue")
		if _, err := w.s.Cancel(ctx, run.CancelRequest{RunID: id, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		count(4, "a cancel that ended two jobs and the run")
		if r := w.run(id); r.ChecksDone != 0 || r.ChecksDueAt != 0 {
			t.Errorf("the end waits: %+v", r)
		}
		again, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if w.run(again.RunID).ChecksChanged != 1 {
			t.Error("the rerun shows no statuses")
		}
	})
}

func TestChangesAreNotCountedForOtherRuns(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		w.work(w.job(id, "a").ID, ci.JobSuccess, nil)
		if got := w.run(id).ChecksChanged; got != 0 {
			t.Errorf("%d changes", got)
		}
	})
}
