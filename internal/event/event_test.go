package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestAnEventStartsWhoWaits(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")), flow("w2", onEvent("done")), flow("w3", onEvent("other")))
		runID, jobID := w.newRun(func(n *run.New) { n.TrustTier, n.ChainDepth = ci.TierUnknown, 2 })
		agent := w.give(jobID)
		id, err := w.s.EmitFromJob(ctx, FromJob{AgentID: agent, JobID: jobID, Attempt: 1, RequestID: "r1", Name: "done", Payload: json.RawMessage(`{"v": 1}`)})
		if err != nil {
			t.Fatal(err)
		}
		e := w.event(id)
		if e.SourceRunID != runID || e.SourceRepo != "a" || e.SourceRoutingKey != keyA || e.ChainDepth != 3 || e.Payload != `{"v":1}` || e.Emitter != EmitterStep || State(e) != StatePending {
			t.Fatalf("event %+v", e)
		}
		if again, err := w.s.EmitFromJob(ctx, FromJob{AgentID: agent, JobID: jobID, Attempt: 1, RequestID: "r1", Name: "done"}); err != nil || again != id {
			t.Errorf("a repeated request gives %q %v, want %q", again, err, id)
		}
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 2)
		started := w.started(id)
		if len(started) != 2 || started[ids["w1"]] == "" || started[ids["w2"]] == "" {
			t.Fatalf("started %v", started)
		}
		r, err := w.st.Read().WholeRun(ctx, started[ids["w1"]])
		if err != nil {
			t.Fatal(err)
		}
		// What the emitting run hands on (EVT-5, EVT-23).
		if r.ChainDepth != 3 || r.TrustTier != string(ci.TierUnknown) || r.Branch != "feature" || r.Actor != "ann" || r.TriggerEvent != "kici_event:done" || r.Workflow != "w1" {
			t.Errorf("run: depth %d, tier %q, branch %q, actor %q, trigger %q", r.ChainDepth, r.TrustTier, r.Branch, r.Actor, r.TriggerEvent)
		}
		w.look()
		if n := len(w.allRuns()); n != 3 {
			t.Errorf("%d runs after a second look, want 3", n)
		}
	})
}

func TestLifecycleEventsStartWorkflows(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("after", onComplete("success")), flow("hurt", onLifecycle("job_failed")))
		_, good := w.newRun(nil)
		w.end(good, ci.JobSuccess)
		_, bad := w.newRun(nil)
		w.end(bad, ci.JobFailed)
		w.look()
		var got []string
		for _, r := range w.allRuns()[2:] {
			got = append(got, r.Workflow+" by "+r.TriggerEvent)
		}
		if want := "after by workflow_complete:success,hurt by lifecycle:job_failed"; strings.Join(got, ",") != want && strings.Join(got, ",") != "hurt by lifecycle:job_failed,after by workflow_complete:success" {
			t.Errorf("started %v, want %s", got, want)
		}
	})
}

func TestUnwantedEventsAreSwept(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("w1", onComplete("success")))
		var swept []string
		for i := range 450 {
			swept = append(swept, w.emit(Emit{Name: []string{"__job_complete", "unheard", "kici.scaler.scale-up"}[i%3]}))
		}
		wanted := w.emit(Emit{Name: WorkflowComplete, Payload: json.RawMessage(`{"status":"success"}`)})
		w.look()
		for _, id := range swept {
			w.want(id, StateProcessed, OutcomeNoRegistration, 0)
			if e := w.event(id); e.Attempts != 1 || !e.ProcessedAt.Valid {
				t.Fatalf("attempts %d, processed at %v", e.Attempts, e.ProcessedAt)
			}
		}
		w.want(wanted, StateProcessed, OutcomeMatched, 1)
		// Only the kici. family counts as unmatched (EVT-26).
		m := w.s.d.Metrics.Events
		if got := counterValue(t, m.Unmatched.WithLabelValues("kici.scaler.scale-up", OutcomeNoRegistration)); got != 150 {
			t.Errorf("unmatched scale-ups: %v, want 150", got)
		}
		if got := counterValue(t, m.Unmatched.WithLabelValues("__job_complete", OutcomeNoRegistration)); got != 0 {
			t.Errorf("unmatched ends of jobs: %v, want none counted", got)
		}
	})
}

// A registration that commits while an older index is at work is not passed over.
func TestSweepingNeverUsesAnOlderIndex(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		old, err := w.regs.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		kinds := w.emit(Emit{Name: "done"})
		w.register(keyA, "a", flow("w1", onEvent("done")))
		id := w.emit(Emit{Name: "done"})
		open, err := w.st.Read().OpenEventKinds(ctx, time.Now().UnixMilli(), 5, 200)
		if err != nil {
			t.Fatal(err)
		}
		stale := *w.s
		stale.d.Index = fixedIndex(old)
		if wanted, err := stale.sweep(ctx, open); err != nil || !wanted {
			t.Fatalf("sweep with an older index: %v %v", wanted, err)
		}
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 1)
		w.want(kinds, StateProcessed, OutcomeMatched, 1)
	})
}

func TestTrustLetsAnEventPass(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyB, "b", flow("w1", onEvent("done")))
		blocked := w.emit(Emit{Name: "done"})
		w.look()
		w.want(blocked, StateProcessed, OutcomeTrust, 0)

		trust := Trust{OrgID: "acme", SourceRoutingKey: keyA, SourceRepo: "a", TargetRoutingKey: keyB, TargetRepo: "b", Events: &[]string{"do*"}, By: "ann"}
		row, created, err := w.s.AddTrust(ctx, trust)
		if err != nil || !created {
			t.Fatal(row, created, err)
		}
		if again, created, err := w.s.AddTrust(ctx, trust); err != nil || created || again.ID != row.ID {
			t.Errorf("adding it again: %v %v %v", again, created, err)
		}
		id := w.emit(Emit{Name: "done"})
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 1)

		if err := w.s.RemoveTrust(ctx, "evil", row.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("another organisation removes it: %v", err)
		}
		if err := w.s.RemoveTrust(ctx, "acme", row.ID); err != nil {
			t.Fatal(err)
		}
		id = w.emit(Emit{Name: "done"})
		w.look()
		w.want(id, StateProcessed, OutcomeTrust, 0)
	})
}

func TestOneFailedPlanIsTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")))
		w.fail[ids["w1"]] = errors.New("the forge is away")
		id := w.emit(Emit{Name: "done"})
		for attempt := int64(1); attempt <= 5; attempt++ {
			w.look()
			e := w.event(id)
			if e.Attempts < attempt || !strings.Contains(e.LastError, "the forge is away") {
				t.Fatalf("attempt %d: %+v", attempt, e)
			}
			attempt = e.Attempts // a delay may be shorter than the look took
			if attempt < 5 && State(e) != StateRetrying {
				t.Fatalf("attempt %d: %s", attempt, State(e))
			}
			if wait := e.NextRetryAt.Int64 - time.Now().UnixMilli(); wait > 300_000 {
				t.Errorf("attempt %d waits %d ms", attempt, wait)
			}
			w.pass(6 * time.Minute)
		}
		w.want(id, StateDead, "", 0)
		if e := w.event(id); e.DlqReason != DeadExhausted || e.ClaimedAt.Valid {
			t.Errorf("dead letter %+v", e)
		}
		// Nothing takes a dead letter any more.
		w.look()
		w.scan()
		if w.event(id).Attempts != 5 || w.plans[ids["w1"]] != 5 {
			t.Errorf("a dead letter was taken: %d plans", w.plans[ids["w1"]])
		}
	})
}

func TestAPermanentErrorIsADeadLetterAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")))
		w.fail[ids["w1"]] = fmt.Errorf("no: %w", permanent{errors.New("for ever")})
		id := w.emit(Emit{Name: "done"})
		w.look()
		w.want(id, StateDead, "", 0)
		if e := w.event(id); e.DlqReason != DeadNotRetryable || e.Attempts != 1 {
			t.Errorf("dead letter %+v", e)
		}
	})
}

// What passes is tried again, whatever stands against another target for ever (EVT-18).
func TestAPermanentErrorKeepsNoOtherTargetFromItsRetry(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("never", onEvent("done")), flow("later", onEvent("done")))
		w.fail[ids["never"]] = permanent{errors.New("for ever")}
		w.fail[ids["later"]] = errors.New("the forge is away")
		id := w.emit(Emit{Name: "done"})
		w.look()
		w.want(id, StateRetrying, "", 0)
		delete(w.fail, ids["later"])
		w.pass(6 * time.Minute)
		w.look()
		w.want(id, StateDead, "", 1)
		if e := w.event(id); e.DlqReason != DeadNotRetryable || w.started(id)[ids["later"]] == "" {
			t.Errorf("dead letter %+v, started %v", e, w.started(id))
		}
	})
}

// A fire for a registration that no repetition makes startable is a dead letter at once, and nothing is started in its stead.
func TestAFireThatCanNeverStartIsADeadLetterAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		lacks := onCron("0 4 * * *", "UTC")
		lacks.Inputs = map[string]lock.Input{"level": {Type: "integer", Required: true}}
		ids := w.register(keyB, "b", flow("inputs", lacks), flow("newer", onCron("0 4 * * *", "UTC")), flow("waits", onEvent("done")))
		w.unreadable(ids["newer"])
		w.unreadable(ids["waits"])
		for name, want := range map[string]string{"inputs": "level", "newer": "cannot read"} {
			payload := fmt.Sprintf(`{"registrationId":%q,"cronExpression":"0 4 * * *","timezone":"UTC"}`, ids[name])
			id := w.emit(Emit{Name: ScheduleFire, SourceRoutingKey: keyB, SourceRepo: "b", RegistrationID: ids[name], Payload: []byte(payload)})
			w.look()
			w.want(id, StateDead, "", 0)
			if e := w.event(id); e.DlqReason != DeadNotRetryable || e.Attempts != 1 || !strings.Contains(e.LastError, want) {
				t.Errorf("%s: %+v", name, e)
			}
		}
		other := w.emit(Emit{Name: "done", SourceRoutingKey: keyB, SourceRepo: "b"}) // it is for everybody, and nobody can be asked
		w.look()
		w.want(other, StateProcessed, OutcomeNoTrigger, 0)
		if len(w.allRuns()) != 0 {
			t.Errorf("%d runs", len(w.allRuns()))
		}
	})
}

func TestAPanicOfOneEventStopsNoOther(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("bad", onEvent("bad")), flow("good", onEvent("good")))
		w.before = func(reg string) {
			if reg == ids["bad"] {
				panic("oh")
			}
		}
		bad, good := w.emit(Emit{Name: "bad"}), w.emit(Emit{Name: "good"})
		w.look()
		w.want(good, StateProcessed, OutcomeMatched, 1)
		if e := w.event(bad); State(e) != StateRetrying || !strings.Contains(e.LastError, "internal error") {
			t.Errorf("%s: %s", State(e), e.LastError)
		}
	})
}

func TestFailuresAreCollected(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("tell", onBatch(60_000)))
		var failed []string
		for range 3 {
			runID, job := w.newRun(nil)
			w.end(job, ci.JobFailed)
			failed = append(failed, runID)
		}
		w.look()
		for _, e := range w.events(WorkflowComplete) {
			w.want(e.ID, StateProcessed, OutcomeBuffered, 0)
		}
		w.scan()
		if got := w.events(FailedBatch); len(got) != 0 {
			t.Fatalf("the window closed at once: %v", got)
		}
		w.pass(61 * time.Second)
		w.scan()
		got := w.events(FailedBatch)
		if len(got) != 1 || got[0].RegistrationID != ids["tell"] || got[0].ChainDepth != 1 {
			t.Fatalf("batches %+v", got)
		}
		var p batchPayload
		if err := json.Unmarshal([]byte(got[0].Payload), &p); err != nil || p.Total != 3 || len(p.Runs) != 3 || p.RegistrationID != ids["tell"] ||
			p.Runs[0].RunID != failed[0] || p.Runs[0].WorkflowName != "ci" || p.Runs[0].Repo != "a" || p.Runs[0].SenderUsername != "ann" || p.Runs[0].FailureClass == "" {
			t.Fatalf("payload %s: %v", got[0].Payload, err)
		}
		w.look()
		w.want(got[0].ID, StateProcessed, OutcomeMatched, 1)
		r, err := w.st.Read().WholeRun(ctx, w.started(got[0].ID)[ids["tell"]])
		if err != nil || r.TriggerEvent != "workflows_failed_batch" || r.TrustTier != string(ci.TierTrusted) || r.Branch != "" {
			t.Errorf("run by %q, tier %q, branch %q: %v", r.TriggerEvent, r.TrustTier, r.Branch, err)
		}
		w.scan()
		if n := len(w.events(FailedBatch)); n != 1 {
			t.Errorf("%d batches after another scan", n)
		}
	})
}

func TestABatchTakesTheWorstTierAndNoneWhenItWasCut(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		good, _ := w.newRun(nil)
		fork, _ := w.newRun(func(n *run.New) { n.TrustTier = ci.TierUnknown })
		none, _ := w.newRun(func(n *run.New) { n.TrustTier = "" })
		for _, tt := range []struct {
			runs  []string
			total int64
			want  ci.TrustTier
		}{
			{[]string{good}, 1, ci.TierTrusted},
			{[]string{good, fork}, 2, ci.TierUnknown},
			{[]string{good, "gone"}, 2, ci.TierUnknown},
			{[]string{fork, none, good}, 3, ""},
			{[]string{good}, 201, ""},
			{nil, 0, ""},
		} {
			p := batchPayload{Total: tt.total}
			for _, r := range tt.runs {
				p.Runs = append(p.Runs, batchRun{RunID: r})
			}
			text, _ := json.Marshal(p)
			err := w.st.Snapshot(ctx, func(tx *store.Tx) error {
				got, err := batchTier(ctx, tx, string(text))
				if got != tt.want {
					t.Errorf("%d of %d runs: tier %q, want %q", len(tt.runs), tt.total, got, tt.want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAnOperatorEmits(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyB, "b", flow("w1", onEvent("deploy")))
		id, err := w.s.EmitFromOperator(ctx, FromOperator{OrgID: "acme", Name: "deploy", Actor: "ann", RequestID: "k1"})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := w.s.EmitFromOperator(ctx, FromOperator{OrgID: "acme", Name: "deploy", Actor: "ann", RequestID: "k1"}); err != nil || again != id {
			t.Errorf("a repeat gives %q %v, want %q", again, err, id)
		}
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 1)
		r := w.allRuns()[0]
		if r.ChainDepth != 0 || r.TrustTier != string(ci.TierTrusted) || r.Actor != "ann" || r.Branch != "main" {
			t.Errorf("run: depth %d, tier %q, actor %q, branch %q", r.ChainDepth, r.TrustTier, r.Actor, r.Branch)
		}
	})
}

func TestEmitTxBelongsToItsTransaction(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		sub := w.st.Subscribe(store.TopicEvents, "")
		defer sub.Close()
		boom := errors.New("boom")
		err := w.st.Write(ctx, func(tx *store.Tx) error {
			if _, err := w.s.EmitTx(tx, Emit{OrgID: "acme", Name: "done"}); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		select {
		case <-sub.C():
			t.Error("a transaction that was rolled back woke somebody (EVT-7)")
		default:
		}
		if got := w.events("done"); len(got) != 0 {
			t.Errorf("events %v", got)
		}
		id := w.emit(Emit{Name: "done"})
		select {
		case <-sub.C():
		default:
			t.Error("an event woke nobody")
		}
		if e := w.event(id); e.ExpiresAt-e.CreatedAt != DefaultLimits().TTL.Milliseconds() {
			t.Errorf("expires after %d ms", e.ExpiresAt-e.CreatedAt)
		}
	})
}
