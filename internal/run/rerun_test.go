package run_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
)

// TestXC69RerunTwice: one request id makes one run, also when the requests come together.
func TestXC69RerunTwice(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		n := newRun(job("a"), job("b", on("a")))
		n.TrustTier, n.Inputs = ci.TierUnknown, map[string]any{"x": "y"}
		id := w.insert(n)
		w.workAll(id, nil)
		ids := map[string]bool{}
		for range 2 {
			res, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "bob", RequestID: "r1"})
			if err != nil {
				t.Fatal(err)
			}
			ids[res.RunID] = true
		}
		if len(ids) != 1 {
			t.Fatalf("%d runs", len(ids))
		}
		other, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "bob", RequestID: "r2"})
		if err != nil || ids[other.RunID] || !other.Created {
			t.Fatalf("another request: %+v, %v", other, err)
		}
		for again := range ids {
			r := w.run(again)
			if r.ParentRunID.String != id || r.OriginalRunID.String != id || r.TriggerEvent != "rerun" || r.TrustTier != "unknown" ||
				r.Sha != "abc" || r.Title != "a commit" || r.Actor != "bob" || r.RunAttempt != 2 || r.Inputs != `{"x":"y"}` {
				t.Fatalf("%+v", r)
			}
			w.workAll(again, nil)
			w.want(again, "a=success b=success", ci.RunSuccess)
			third, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: again, By: "bob"})
			if err != nil {
				t.Fatal(err)
			}
			if r := w.run(third.RunID); r.ParentRunID.String != again || r.OriginalRunID.String != id || r.RunAttempt != 4 {
				t.Fatalf("rerun of a rerun: %+v", r)
			}
		}
	})
}

func TestRerunRefusals(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		for _, c := range []struct {
			req  run.RerunRequest
			want error
		}{
			{run.RerunRequest{OrgID: "acme", RunID: id}, run.ErrNotTerminal},
			{run.RerunRequest{OrgID: "other", RunID: id}, run.ErrNotFound},
			{run.RerunRequest{OrgID: "acme", RunID: "none"}, run.ErrNotFound},
			{run.RerunRequest{OrgID: "acme", RunID: id, RoutingKey: "else"}, run.ErrScope},
		} {
			if _, err := w.s.Rerun(ctx, c.req); !errors.Is(err, c.want) {
				t.Fatalf("%+v: %v", c.req, err)
			}
		}
		w.workAll(id, nil)
		if _, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, FailedOnly: true}); !errors.Is(err, run.ErrNotRerunnable) {
			t.Fatalf("failed only, of a success: %v", err)
		}
	})
}

// TestRerunFailedOnly: what ended well keeps its result and outputs; what failed, and what needs it, runs again.
func TestRerunFailedOnly(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b", on("a")), job("c", on("b")), job("d", on("a")), withIf(job("e"), "false")))
		w.work(w.job(id, "a").ID, ci.JobSuccess, map[string]string{"v": "1"})
		w.workAll(id, map[string]ci.JobStatus{"b": ci.JobFailed})
		w.want(id, "a=success b=failed c=skipped d=success e=skipped", ci.RunFailed)
		res, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "bob", FailedOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		w.want(res.RunID, "a=success b=queued c=pending d=success e=skipped", ci.RunPending)
		if a := w.job(res.RunID, "a"); a.Outputs != `{"v":"1"}` || !a.FinishedAt.Valid || a.AgentID.Valid {
			t.Fatalf("%+v", a)
		}
		if r := w.run(res.RunID); !strings.Contains(r.Warnings, "not run again") {
			t.Fatalf("warnings %s", r.Warnings)
		}
		w.workAll(res.RunID, nil)
		w.want(res.RunID, "a=success b=success c=success d=success e=skipped", ci.RunSuccess)
	})
}

// A result that is kept says why it is as it is: a failure that is allowed, or a skip.
func TestRerunKeepsReasons(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		allowed := job("a")
		allowed.ContinueOnError = "true"
		id := w.insert(newRun(allowed, job("b"), withIf(job("c"), "false")))
		w.finish(run.End{JobID: w.job(id, "a").ID, Status: ci.JobUnroutable, Error: "nobody can run it"})
		w.workAll(id, map[string]ci.JobStatus{"b": ci.JobFailed})
		res, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, By: "bob", FailedOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		w.want(res.RunID, "a=unroutable b=queued c=skipped", ci.RunPending)
		for _, name := range []string{"a", "c"} {
			if was, is := w.job(id, name).Error, w.job(res.RunID, name).Error; is == "" || is != was {
				t.Errorf("%s: %q, was %q", name, is, was)
			}
		}
	})
}

// A finished rerun request is remembered in the transaction that makes the run: both or neither.
func TestRerunRollsBackTogether(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		w.workAll(id, nil)
		boom := errors.New("boom")
		err := w.st.Write(ctx, func(tx *store.Tx) error {
			if _, err := w.s.RerunTx(tx, run.RerunRequest{OrgID: "acme", RunID: id, RequestID: "r"}); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		res, err := w.s.Rerun(ctx, run.RerunRequest{OrgID: "acme", RunID: id, RequestID: "r"})
		if err != nil || !res.Created {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}
