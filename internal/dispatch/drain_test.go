package dispatch

import (
	"testing"

	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

func (w *world) drain(on bool) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		_, err := tx.SetInstanceDraining(ctx, on, "n1")
		return err
	})
}

// QUE-18: agents of a server that drains get nothing new, and get it again when it resumes.
func TestDrainingServerGetsNoWork(t *testing.T) {
	w := sqlite(t)
	w.static("box", "linux")
	drain := w.drain
	drain(true)
	id := w.insert(job("a", "linux"))
	w.place()
	if a := w.job(id, "a"); a.AgentID.Valid {
		t.Fatal("assigned although its server drains")
	}
	drain(false)
	w.place()
	if a := w.job(id, "a"); !a.AgentID.Valid {
		t.Fatal("not assigned after the server resumed")
	}
}

// An agent that a draining server has started for a job may have that job, but not another one when its own has ended.
func TestAgentOfDrainingServerTakesOnlyItsOwnJob(t *testing.T) {
	w := sqlite(t)
	w.scaler("small", 1, "linux")
	first := w.insert(job("a", "linux"))
	w.place()
	agent := w.agents()[0].ID
	if _, err := w.runs.Cancel(ctx, run.CancelRequest{RunID: first, By: "somebody"}); err != nil {
		t.Fatal(err)
	}
	w.register(agent, "linux")
	w.drain(true)
	second := w.insert(job("b", "linux"))
	w.place()
	if j := w.job(second, "b"); j.AgentID.Valid {
		t.Fatalf("agent %s was given the job of another run although its server drains", j.AgentID.String)
	}
}

// What a pass has decided is written only while it may still be: its server may have been told to drain since, or back off.
func TestDecisionsComeTooLate(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.scaler("small", 2, "linux")
		w.static("box", "metal")
		onBox, onScaler := w.insert(job("a", "metal")), w.insert(job("b", "linux"))
		v, err := w.p.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := placement.Decide(v.snapshot)
		if len(out.Assign) != 1 || len(out.Launch) != 1 {
			t.Fatalf("decided: %+v", out)
		}
		w.drain(true)
		if err := w.p.move(ctx, v.snapshot, out); err != nil {
			t.Fatal(err)
		}
		if w.job(onBox, "a").AgentID.Valid || len(w.agents()) != 1 {
			t.Fatalf("a draining server got work: %+v", w.agents())
		}
		w.drain(false)
		w.write(func(tx *store.Tx) error {
			return tx.NodeSetBackoff(ctx, db.NodeSetBackoffParams{NodeID: "n1", Scaler: "small", Failures: 1, UntilAt: tx.Now() + 60_000, Now: tx.Now()})
		})
		if err := w.p.move(ctx, v.snapshot, out); err != nil {
			t.Fatal(err)
		}
		if !w.job(onBox, "a").AgentID.Valid || w.job(onScaler, "b").AgentID.Valid || len(w.agents()) != 1 {
			t.Fatalf("a scaler that backs off was asked: %+v", w.agents())
		}
	})
}
