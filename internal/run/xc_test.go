package run_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
)

// TestXC46BothOrNeither: the end of a job, its dependents, the verdict and the lifecycle events are one transaction (XC-46, XC-59,
// XC-84): a crash before its commit leaves none of them, and the report that is repeated afterwards makes all of them.
func TestXC46BothOrNeither(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b", on("a")), job("waiting"), job("after", on("waiting"))))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		waiting, before := w.job(id, "waiting"), w.jobs(id)
		crash := errors.New("the process dies")
		for _, end := range []run.End{
			{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess},
			{JobID: waiting.ID, Status: ci.JobUnroutable, OnlyWaiting: true, Error: "nobody can run it"},
		} {
			err := w.st.Write(ctx, func(tx *store.Tx) error {
				if applied, err := w.s.Finish(tx, end); err != nil || !applied {
					t.Errorf("applied %v, %v", applied, err)
				}
				return crash
			})
			if !errors.Is(err, crash) {
				t.Fatal(err)
			}
			if !maps.Equal(w.jobs(id), before) || len(w.events(id)) != 0 {
				t.Fatalf("something of a transaction that did not commit is there: %v", w.events(id))
			}
		}
		w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess})
		w.want(id, "a=success b=queued waiting=queued after=pending", ci.RunRunning)
		if e := w.events(id); e["__job_complete"] != 1 {
			t.Fatalf("events %v", e)
		}
	})
}
