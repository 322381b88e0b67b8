package run_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
)

// What waits is cancelled with its run, what an agent has goes on, and the rows stay with who did it (QUE-20).
func TestClearQueue(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := group("g", 0, false)
		waits := w.insert(newRun(job("a"), job("b", on("a", always...))))
		holds, behind := w.insert(grouped(c, job("a"))), w.insert(grouped(c, job("a")))
		runs := w.insert(newRun(job("a"), job("b"), job("c", on("b", always...))))
		a := w.job(runs, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		req := run.ClearRequest{OrgID: "acme", By: "ann", DryRun: true}
		if got, err := w.s.ClearQueue(ctx, req); err != nil || got != (run.Cleared{Runs: 3, Jobs: 5}) {
			t.Fatalf("%+v %v", got, err)
		}
		w.want(waits, "a=queued b=pending", ci.RunPending)
		req.DryRun = false
		if got, err := w.s.ClearQueue(ctx, run.ClearRequest{OrgID: "other", By: "ann"}); err != nil || got != (run.Cleared{}) {
			t.Fatalf("another organisation: %+v %v", got, err)
		}
		if got, err := w.s.ClearQueue(ctx, req); err != nil || got != (run.Cleared{Runs: 3, Jobs: 5}) {
			t.Fatalf("%+v %v", got, err)
		}
		w.duties()
		w.want(waits, "a=cancelled b=cancelled", ci.RunCancelled)
		w.want(holds, "a=cancelled", ci.RunCancelled)
		w.want(behind, "a=cancelled", ci.RunCancelled)
		w.want(runs, "a=running b=cancelled c=queued", ci.RunRunning)
		wantText(t, w.run(waits).FailureReason, "the queue was cleared by ann")
		wantText(t, w.notes(runs), "cancel_asked by ann")
	})
}

// Only what has stood still for so long, and nothing while it is only asked about.
func TestPurgeStale(t *testing.T) {
	w, now := clocked(t)
	old := w.insert(newRun(job("a"), job("b")))
	a := w.job(old, "a")
	agent, attempt := w.assign(a.ID)
	w.started(a.ID, agent, attempt)
	*now = now.Add(30 * time.Hour)
	young := w.insert(newRun(job("a")))
	s := run.NewService(w.st, run.DefaultSettings(), service.Env{Now: func() time.Time { return *now }, NewID: ci.NewID}, slog.New(slog.DiscardHandler))
	req := run.PurgeRequest{OrgID: "acme", By: "ann", Idle: 24 * time.Hour, DryRun: true}
	for _, dry := range []bool{true, false} {
		req.DryRun = dry
		got, err := s.PurgeStale(ctx, req)
		if err != nil || len(got) != 1 || got[0].RunID != old {
			t.Fatalf("%+v %v", got, err)
		}
		if dry {
			w.want(old, "a=running b=queued", ci.RunRunning)
		}
	}
	w.want(old, "a=cancelled b=cancelled", ci.RunCancelled)
	w.want(young, "a=queued", ci.RunPending)
	if g, err := w.st.Read().WholeAgent(ctx, agent); err != nil || g.State != "ending" {
		t.Fatalf("agent %s %v", g.State, err)
	}
	if got, err := s.PurgeStale(ctx, req); err != nil || len(got) != 0 {
		t.Fatalf("%+v %v", got, err)
	}
}

// A cancel that is repeated with its key gets the first answer, also after the run has ended (D4).
func TestCancelOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		req := run.CancelRequest{RunID: id, By: "ann", RequestID: "k1"}
		first := w.cancel(req)
		if first.Status != ci.RunCancelled || first.Cancelled != 2 {
			t.Fatalf("%+v", first)
		}
		if again := w.cancel(req); again != first {
			t.Fatalf("%+v", again)
		}
		req.RequestID, req.OrgID = "k2", "acme"
		if _, err := w.s.Cancel(ctx, req); !errors.Is(err, run.ErrTerminal) {
			t.Fatal(err)
		}
	})
}
