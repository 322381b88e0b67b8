package run_test

import (
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// Several reports about several jobs in one transaction come to the same as one at a time, repeats among them included.
func TestBatch(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		a, b := w.job(id, "a"), w.job(id, "b")
		agent, attempt := w.assign(a.ID)
		other, otherAttempt := w.assign(b.ID)
		step := func(seq int64, status string) wire.StepStatus {
			return wire.StepStatus{Seq: seq, JobID: a.ID, Attempt: attempt, StepIndex: 1, Name: "s", Status: status}
		}
		want := func(what string, ok bool, err error, expected bool) {
			t.Helper()
			if err != nil || ok != expected {
				t.Fatalf("%s: %v, %v", what, ok, err)
			}
		}
		w.write(func(tx *store.Tx) error {
			r := w.s.Batch(tx, agent)
			ok, err := r.Step(step(2, "running"))
			want("step of a job that has not said that it runs", ok, err, true)
			ok, err = r.Started(wire.JobStatus{Seq: 1, JobID: a.ID, Attempt: attempt, Status: "running"})
			want("late start", ok, err, false)
			ok, err = r.Holds(b.ID, otherAttempt)
			want("another agent's job", ok, err, false)
			ok, err = r.Step(step(2, "running"))
			want("repeat", ok, err, false)
			ok, err = r.Step(step(3, "success"))
			want("end of step", ok, err, true)
			return r.Flush()
		})
		if got := w.job(id, "a"); got.ReportSeq != 3 || got.Status != string(ci.JobRunning) {
			t.Fatalf("after the steps: %s, report %d", got.Status, got.ReportSeq)
		}
		w.write(func(tx *store.Tx) error {
			r := w.s.Batch(tx, agent)
			ok, err := r.Step(step(4, "success"))
			want("step that has ended", ok, err, false)
			end := wire.JobStatus{Seq: 5, JobID: a.ID, Attempt: attempt, Status: "success"}
			ok, err = r.Finish(end, 77)
			want("end", ok, err, true)
			ok, err = r.Finish(end, 78)
			want("repeated end", ok, err, false)
			ok, err = r.Step(step(6, "failed"))
			want("step after the end", ok, err, false)
			return r.Flush()
		})
		if got := w.job(id, "a"); got.ReportSeq != 5 || got.LogBytes != 77 || got.Status != string(ci.JobSuccess) {
			t.Fatalf("after the end: %+v", got)
		}
		if !w.started(b.ID, other, otherAttempt) {
			t.Fatal("the other job is not its agent's")
		}
	})
}

// The class of a run that fails says what kind of failure it was (PIPE-21). dead_orchestrator is the leader's word (internal/dispatch).
func TestFailureClassOfAReport(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for want, r := range map[string]wire.JobStatus{
			"step_failure":  {Status: "failed"},
			"timed_out":     {Status: "failed", TimedOut: true, Error: "the job exceeded its timeout of 1m0s"},
			"never_started": {Status: "failed", InitFailure: "checkout", Error: "no such commit"},
		} {
			id := w.insert(newRun(job("a")))
			a := w.job(id, "a")
			agent, attempt := w.assign(a.ID)
			r.JobID, r.Attempt, r.Seq = a.ID, attempt, 1
			w.write(func(tx *store.Tx) error {
				_, err := w.s.Batch(tx, agent).Finish(r, 0)
				return err
			})
			if got := w.run(id); got.FailureClass != want || got.Status != string(ci.RunFailed) {
				t.Errorf("%s %q, want %q", got.Status, got.FailureClass, want)
			}
		}
	})
}
