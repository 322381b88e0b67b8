package event

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// lease takes all due events for a server that does nothing with them, as one that dies at once.
func (w *world) lease(node string) []db.KiciEvent {
	w.t.Helper()
	var rows []db.KiciEvent
	w.write(func(tx *store.Tx) (err error) {
		rows, err = tx.ClaimEvents(ctx, db.ClaimEventsParams{Now: nullInt(tx.Now()), ClaimedBy: node, MaxAttempts: w.limits.MaxAttempts, MaxRows: 100})
		return err
	})
	return rows
}

func TestXC29RegistrationDeletedWhileLeased(t *testing.T) {
	for name, remove := range map[string]func(w *world, id string) error{
		"deleted": func(w *world, _ string) error {
			return w.st.Write(ctx, func(tx *store.Tx) error { return w.regs.Forget(ctx, tx, "acme", keyA) })
		},
		"disabled": func(w *world, id string) error { return w.regs.SetDisabled(ctx, "acme", id, true) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				w.register(keyA, "a", flow("w1", onEvent("done")))
				w.before = func(id string) {
					if err := remove(w, id); err != nil {
						t.Error(err)
					}
				}
				id := w.emit(Emit{Name: "done"})
				w.look()
				w.want(id, StateProcessed, OutcomeNoRegistration, 0)
				if n := len(w.allRuns()); n != 0 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

func TestXC32LostNotificationIsRepeated(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.emit(Emit{Name: "done"}) // nobody listens yet
		sub := w.st.Subscribe(store.TopicEvents, "")
		defer sub.Close()
		woken := func() bool {
			select {
			case <-sub.C():
				return true
			default:
				return false
			}
		}
		if w.scan(); woken() {
			t.Error("a fresh event was announced again")
		}
		w.pass(61 * time.Second)
		if w.scan(); !woken() {
			t.Error("an event that nobody took in 60 s was not announced again")
		}
		// A retry that is due is announced, one that is not is not.
		rows := w.lease("n1")
		if err := w.s.commit(ctx, rows[0], nil, ending{err: "x", retryAt: 60_000}); err != nil {
			t.Fatal(err)
		}
		if w.scan(); woken() {
			t.Error("a retry was announced before its time")
		}
		w.pass(61 * time.Second)
		if w.scan(); !woken() {
			t.Error("a due retry was not announced")
		}
	})
}

// running runs the router until the test ends.
func (w *world) running(t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) eventually(t *testing.T, id, state string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if State(w.event(id)) == state {
			return
		}
	}
	t.Fatalf("event is %s, want %s", State(w.event(id)), state)
}

// insertSilently writes an event whose notification is lost.
func (w *world) insertSilently(name string) string {
	w.t.Helper()
	id := ci.NewID()
	w.write(func(tx *store.Tx) error {
		return tx.InsertEvent(ctx, db.InsertEventParams{
			ID: id, OrgID: "acme", EventName: name, Payload: "{}", SourceRepo: "a", SourceRoutingKey: keyA, TargetRepos: "[]", CreatedAt: tx.Now(),
			ExpiresAt: tx.Now() + 1_000_000, Emitter: EmitterOrchestrator,
		})
	})
	return id
}

func TestXC33CatchUpAtTheStartAndAfterTheListenerWasAway(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("w1", onEvent("done")))
		var before []string
		for range 120 { // more than a page
			before = append(before, w.insertSilently("done"))
		}
		w.running(t)
		for _, id := range before {
			w.eventually(t, id, StateProcessed)
		}
		silent := w.insertSilently("done")
		w.st.Publish(store.TopicEvents, "") // what the store does when its listener is back
		w.eventually(t, silent, StateProcessed)
		if n := len(w.allRuns()); n != 121 {
			t.Errorf("%d runs, want 121", n)
		}
	})
}

func TestXC34HolderDies(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("w1", onEvent("done")))
		id := w.emit(Emit{Name: "done"})
		w.lease("dead")
		w.pass(59 * time.Second)
		w.look()
		if e := w.event(id); State(e) != StateLeased || e.ClaimedBy != "dead" {
			t.Fatalf("taken from a holder that may live: %+v", e)
		}
		w.pass(2 * time.Second)
		w.look() // sees that the lease has run out
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 1)
		if e := w.event(id); e.Attempts != 2 {
			t.Errorf("%d attempts, want 2", e.Attempts)
		}
		if got := counterValue(t, w.s.d.Metrics.Events.Expired); got != 1 {
			t.Errorf("%v leases ran out, want 1", got)
		}
	})
}

func TestARestartTakesItsOwnLeasesBack(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("w1", onEvent("done")))
		id := w.emit(Emit{Name: "done"})
		w.lease("n1")
		w.running(t)
		w.eventually(t, id, StateProcessed)
		if e := w.event(id); e.Attempts != 2 {
			t.Errorf("%d attempts, want 2: the one that died counts", e.Attempts)
		}
	})
}

func TestXC35SlowHolderWritesNothing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")))
		other := w.node("n2")
		id := w.emit(Emit{Name: "done"})
		slow := true
		w.before = func(string) {
			if !slow {
				return
			}
			slow = false // while n1 plans, its lease runs out and n2 routes the event
			w.pass(61 * time.Second)
			for range 2 {
				if _, err := other.look(ctx); err != nil {
					t.Error(err)
				}
			}
			w.want(id, StateProcessed, OutcomeMatched, 1)
		}
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 1)
		if e := w.event(id); e.Attempts != 2 || e.LastError != "" {
			t.Errorf("the loser wrote: %+v", e)
		}
		if n := len(w.allRuns()); n != 1 || w.plans[ids["w1"]] != 2 {
			t.Errorf("%d runs, %d plans; want 1 and 2", n, w.plans[ids["w1"]])
		}
	})
}

// The same for every other write under a lease.
func TestXC35EveryWriteNeedsTheLease(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.emit(Emit{Name: "done"})
		old := w.lease("n1")[0]
		w.pass(61 * time.Second)
		w.scan()
		fresh := w.lease("n2")
		if len(fresh) != 1 || fresh[0].Attempts != 2 {
			t.Fatalf("second lease %+v", fresh)
		}
		before := w.event(id)
		for name, end := range map[string]ending{
			"success": {outcome: OutcomeMatched}, "retry": {err: "x", retryAt: 1}, "dead": {err: "x", dead: DeadExhausted}, "nothing": {open: true},
		} {
			if err := w.s.commit(ctx, old, nil, end); !errors.Is(err, errLost) {
				t.Errorf("%s by the loser: %v", name, err)
			}
		}
		w.s.giveBack(ctx, old)
		if after := w.event(id); after != before {
			t.Errorf("the loser changed %+v to %+v", before, after)
		}
	})
}

func TestXC36EventThatKillsItsServer(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.emit(Emit{Name: "done"})
		for attempt := 1; attempt <= 5; attempt++ {
			if rows := w.lease("n1"); len(rows) != 1 || rows[0].Attempts != int64(attempt) {
				t.Fatalf("attempt %d: leased %+v", attempt, rows)
			}
			w.pass(61 * time.Second)
			if attempt == 5 {
				w.look() // nobody takes it a sixth time
				if e := w.event(id); e.Attempts != 5 {
					t.Fatalf("%d attempts", e.Attempts)
				}
			}
			w.scan()
		}
		w.want(id, StateDead, "", 0)
		if e := w.event(id); e.DlqReason != DeadExhausted || e.LastError == "" || e.ClaimedAt.Valid {
			t.Errorf("dead letter %+v", e)
		}
		if got := counterValue(t, w.s.d.Metrics.Events.Dead.WithLabelValues("done", DeadExhausted)); got != 1 {
			t.Errorf("%v dead letters counted", got)
		}
	})
}

func TestXC37OneOfFiveTargetsFails(t *testing.T) {
	for name, faults := range map[string]func(w *world) map[string]error{
		"planning":  func(w *world) map[string]error { return w.fail },
		"inserting": func(w *world) map[string]error { return w.insert },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				done := onEvent("done")
				ids := w.register(keyA, "a", flow("w1", done), flow("w2", done), flow("w3", done), flow("w4", done), flow("w5", done))
				faults(w)[ids["w3"]] = errors.New("the forge is away")
				id := w.emit(Emit{Name: "done"})
				w.look()
				e := w.event(id)
				if State(e) != StateRetrying || !strings.Contains(e.LastError, "w3 of a") || e.MatchedCount.Int64 != 4 {
					t.Fatalf("%s: %q, %d dispatched", State(e), e.LastError, e.MatchedCount.Int64)
				}
				first := w.started(id)
				if len(first) != 4 || first[ids["w3"]] != "" {
					t.Fatalf("started %v", first)
				}
				delete(faults(w), ids["w3"])
				w.pass(10 * time.Second)
				plans := w.plans[ids["w1"]]
				w.look()
				w.want(id, StateProcessed, OutcomeMatched, 5)
				for reg, runID := range first {
					if w.started(id)[reg] != runID {
						t.Errorf("registration %s was started again", reg)
					}
				}
				if n := len(w.allRuns()); n != 5 || w.plans[ids["w1"]] != plans {
					t.Errorf("%d runs; w1 planned %d times more", n, w.plans[ids["w1"]]-plans)
				}
			})
		})
	}
}

func TestXC38EventsBeforeTheRouterRuns(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("w1", onEvent("done")))
		id := w.emit(Emit{Name: "done"})
		w.scan() // the leader's duty does not burn attempts either
		if e := w.event(id); e.Attempts != 0 || State(e) != StatePending {
			t.Fatalf("before the router: %+v", e)
		}
		w.running(t)
		w.eventually(t, id, StateProcessed)
		if e := w.event(id); e.Attempts != 1 {
			t.Errorf("%d attempts", e.Attempts)
		}
	})
}

func TestXC39RetryOfADeadLetterStartsOnlyWhatIsMissing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")), flow("w2", onEvent("done")))
		w.fail[ids["w2"]] = permanent{errors.New("no")}
		id := w.emit(Emit{Name: "done"})
		w.look()
		w.want(id, StateDead, "", 1)
		first := w.started(id)
		delete(w.fail, ids["w2"])
		if err := w.s.RetryDead(ctx, "evil", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another organisation retries it: %v", err)
		}
		if err := w.s.RetryDead(ctx, "acme", id); err != nil {
			t.Fatal(err)
		}
		if e := w.event(id); e.Attempts != 0 || e.DlqAt.Valid || State(e) != StateRetrying {
			t.Errorf("after retry: %+v", e)
		}
		if err := w.s.RetryDead(ctx, "acme", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("what is no dead letter is retried: %v", err)
		}
		w.look()
		w.want(id, StateProcessed, OutcomeMatched, 2)
		if again := w.started(id); again[ids["w1"]] != first[ids["w1"]] || len(w.allRuns()) != 2 {
			t.Errorf("started %v, then %v", first, again)
		}
	})
}

func TestADeadLetterIsDiscarded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done")))
		w.fail[ids["w1"]] = permanent{errors.New("no")}
		id := w.emit(Emit{Name: "done"})
		if err := w.s.DiscardDead(ctx, "acme", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("a living event was discarded: %v", err)
		}
		w.look()
		if err := w.s.DiscardDead(ctx, "evil", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another organisation discards it: %v", err)
		}
		if err := w.s.DiscardDead(ctx, "acme", id); err != nil {
			t.Fatal(err)
		}
		if got := w.events("done"); len(got) != 0 {
			t.Errorf("it is still there: %v", got)
		}
	})
}

func TestXC40ChainEndsAtItsLimit(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("ping", onEvent("pong")), flow("pong", onEvent("ping")))
		_, job := w.newRun(nil)
		name, links := "ping", 0
		var refused *Refused
		for ; links < 20; links++ {
			agent := w.give(job)
			id, err := w.s.EmitFromJob(ctx, FromJob{AgentID: agent, JobID: job, Attempt: 1, Name: name})
			if errors.As(err, &refused) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			w.look()
			w.want(id, StateProcessed, OutcomeMatched, 1)
			for _, runID := range w.started(id) {
				jobs, err := w.st.Read().WholeJobs(ctx, runID)
				if err != nil {
					t.Fatal(err)
				}
				job = jobs[0].ID
			}
			name = map[string]string{"ping": "pong", "pong": "ping"}[name]
		}
		if links != 9 || refused == nil || refused.Code != CodeDepth {
			t.Fatalf("%d links, then %v", links, refused)
		}
		if got := counterValue(t, w.s.d.Metrics.Events.Refused.WithLabelValues(CodeDepth)); got != 1 {
			t.Errorf("%v refusals counted", got)
		}
		if n := len(w.events("ping")) + len(w.events("pong")); n != 9 {
			t.Errorf("%d events, want 9: a refused one leaves nothing", n)
		}
	})
}

func TestXC41EmitStorm(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		_, job := w.newRun(nil)
		agent := w.give(job)
		emit := func(name string) error {
			_, err := w.s.EmitFromJob(ctx, FromJob{AgentID: agent, JobID: job, Attempt: 1, Name: name})
			return err
		}
		w.limits.RatePerMinute = 10
		var refused *Refused
		for i := range 30 {
			err := emit("done")
			if i < 10 && err != nil {
				t.Fatal(err)
			}
			if i >= 10 && (!errors.As(err, &refused) || refused.Code != CodeRate || refused.RetryAfterMs <= 0 || refused.RetryAfterMs > 60_000) {
				t.Fatalf("event %d: %v", i, err)
			}
		}
		if err := emit("other"); err != nil {
			t.Errorf("another name is refused: %v", err)
		}
		if n := len(w.events("done")); n != 10 {
			t.Errorf("%d events stored, want 10", n)
		}
		// A name for each event does not help.
		stored := 11
		for i := range 200 {
			if emit(fmt.Sprint("n", i)) == nil {
				stored++
			}
		}
		if stored != 100 {
			t.Errorf("%d events of one source in a minute, want 100", stored)
		}
		// Kici's own are never refused.
		for range 20 {
			w.emit(Emit{Name: RegistrationUpdated})
		}
	})
}

func TestXC42ReservedNamesAreRefused(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		_, job := w.newRun(nil)
		agent := w.give(job)
		for name, prefix := range map[string]string{"__schedule_fire": `"__"`, "kici.scaler.scale-up": `"kici."`} {
			_, step := w.s.EmitFromJob(ctx, FromJob{AgentID: agent, JobID: job, Attempt: 1, Name: name})
			_, operator := w.s.EmitFromOperator(ctx, FromOperator{OrgID: "acme", Name: name})
			for who, err := range map[string]error{"step": step, "operator": operator} {
				var refused *Refused
				if !errors.As(err, &refused) || refused.Code != CodeReserved || !strings.Contains(err.Error(), prefix) {
					t.Errorf("%s emits %s: %v", who, name, err)
				}
			}
			if got := w.events(name); len(got) != 0 {
				t.Errorf("stored %v", got)
			}
		}
	})
}

func TestXC43AgentEmitsForAnothersJob(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		_, job := w.newRun(nil)
		agent := w.give(job)
		good := FromJob{AgentID: agent, JobID: job, Attempt: 1, Name: "done"}
		refusedNow := func(what string, f FromJob) {
			t.Helper()
			var refused *Refused
			if _, err := w.s.EmitFromJob(ctx, f); !errors.As(err, &refused) || refused.Code != CodeOwner {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, change := range map[string]func(*FromJob){
			"another agent":   func(f *FromJob) { f.AgentID = "scaler-fake-00000000" },
			"nobody":          func(f *FromJob) { f.AgentID = "" },
			"another attempt": func(f *FromJob) { f.Attempt = 2 },
			"no job":          func(f *FromJob) { f.JobID = "nope" },
		} {
			f := good
			change(&f)
			refusedNow(what, f)
		}
		if _, err := w.s.EmitFromJob(ctx, good); err != nil {
			t.Fatal(err)
		}
		w.write(func(tx *store.Tx) error {
			_, err := w.runs.Finish(tx, run.End{JobID: job, Attempt: 1, AgentID: agent, Status: ci.JobSuccess})
			return err
		})
		refusedNow("a job that has ended", good)
		if n := len(w.events("done")); n != 1 {
			t.Errorf("%d events", n)
		}
		// A check that cannot be made is no permission.
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := w.s.EmitFromJob(ended, good); err == nil {
			t.Error("emitted without an answer of the store")
		}
	})
}

func TestXC44TrustMissingDisabledOrMalformed(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyB, "b", flow("w1", onEvent("done")))
		set := func(names string, valid bool) {
			t.Helper()
			row, _, err := w.s.AddTrust(ctx, Trust{OrgID: "acme", SourceRoutingKey: keyA, SourceRepo: "a", TargetRoutingKey: keyB, TargetRepo: "b", By: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			w.write(func(tx *store.Tx) error {
				v := nullText(names)
				v.Valid = valid
				_, err := tx.SetTrust(ctx, v, row.ID)
				return err
			})
		}
		check := func(want string, count int64) {
			t.Helper()
			id := w.emit(Emit{Name: "done"})
			w.look()
			w.want(id, StateProcessed, want, count)
		}
		check(OutcomeTrust, 0)
		set("", false)
		check(OutcomeMatched, 1)
		for _, malformed := range []string{`[`, `"done"`, `{}`, `[1]`, `null`, `[]`} {
			set(malformed, true)
			check(OutcomeTrust, 0)
		}
	})
}

func TestXC45TrustAcrossOrganisations(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, "evil", 1) })
		w.register(keyB, "b", flow("w1", onEvent("done")))
		for _, org := range []string{"acme", "evil"} {
			_, _, err := w.s.AddTrust(ctx, Trust{OrgID: org, SourceRoutingKey: keyA, SourceRepo: "a", TargetRoutingKey: keyB, TargetRepo: "b", By: "eve"})
			if err != nil {
				t.Fatal(err)
			}
		}
		id := w.emit(Emit{OrgID: "evil", Name: "done"})
		w.look()
		if e := w.event(id); e.MatchOutcome.String == OutcomeMatched || len(w.allRuns()) != 0 {
			t.Errorf("an event of one organisation started another's workflow: %+v", e)
		}
	})
}

func TestXC46EndOfARunAndItsEventAreOne(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		runID, job := w.newRun(nil)
		agent := w.give(job)
		died := errors.New("died")
		err := w.st.Write(ctx, func(tx *store.Tx) error {
			if _, err := w.runs.Finish(tx, run.End{JobID: job, Attempt: 1, AgentID: agent, Status: ci.JobSuccess}); err != nil {
				return err
			}
			return died
		})
		if !errors.Is(err, died) {
			t.Fatal(err)
		}
		if r, err := w.st.Read().WholeRun(ctx, runID); err != nil || r.FinishedAt.Valid || len(w.events(WorkflowComplete)) != 0 {
			t.Fatalf("half an end: %+v %v", r, err)
		}
		w.write(func(tx *store.Tx) error {
			_, err := w.runs.Finish(tx, run.End{JobID: job, Attempt: 1, AgentID: agent, Status: ci.JobSuccess})
			return err
		})
		if r, err := w.st.Read().WholeRun(ctx, runID); err != nil || !r.FinishedAt.Valid || len(w.events(WorkflowComplete)) != 1 || len(w.events(JobComplete)) != 1 {
			t.Errorf("the end without its events: %+v %v", r, err)
		}
	})
}

func TestXC47CrashWhileClosingABatch(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("tell", onBatch(1000)))
		_, job := w.newRun(nil)
		w.end(job, ci.JobFailed)
		w.look()
		w.pass(time.Minute)
		died := errors.New("died")
		err := w.st.Write(ctx, func(tx *store.Tx) error {
			due, err := tx.DueFailureBatches(ctx, tx.Now(), 10)
			if err != nil || len(due) != 1 {
				return fmt.Errorf("due %v: %w", due, err)
			}
			if err := w.s.closeBatch(ctx, tx, due[0]); err != nil {
				return err
			}
			return died
		})
		if !errors.Is(err, died) {
			t.Fatal(err)
		}
		if got := w.events(FailedBatch); len(got) != 0 {
			t.Fatalf("the event of a window that did not close: %v", got)
		}
		// Nor does an older leader close it.
		if err := w.s.closeBatches(ctx, w.term-1); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("an older term: %v", err)
		}
		for range 2 {
			w.scan()
		}
		got := w.events(FailedBatch)
		if len(got) != 1 || !strings.Contains(got[0].Payload, `"total":1`) {
			t.Errorf("batches %+v", got)
		}
	})
}

func TestXC48ABatchWorkflowThatFails(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.register(keyA, "a", flow("tell", onBatch(1000)))
		_, job := w.newRun(nil)
		w.end(job, ci.JobFailed)
		for range 3 {
			w.look()
			w.pass(time.Minute)
			w.scan()
			w.look()
			for _, r := range w.allRuns() {
				if r.Workflow == "tell" && !r.FinishedAt.Valid {
					jobs, err := w.st.Read().WholeJobs(ctx, r.ID)
					if err != nil {
						t.Fatal(err)
					}
					w.end(jobs[0].ID, ci.JobFailed)
				}
			}
		}
		if n := len(w.events(FailedBatch)); n != 1 {
			t.Errorf("%d batches, want 1: the reporter's own failure is not reported", n)
		}
		for _, e := range w.events(WorkflowComplete) {
			if strings.Contains(e.Payload, `"workflowName":"tell"`) && e.MatchOutcome.String != OutcomeNoTrigger {
				t.Errorf("the reporter's failure: %s", e.MatchOutcome.String)
			}
		}
	})
}

func TestXC49UnprocessedEventExpires(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ids := w.register(keyA, "a", flow("w1", onEvent("done"), onEvent("bad")))
		w.fail[ids["w1"]] = permanent{errors.New("no")}
		dead := w.emit(Emit{Name: "bad"})
		w.look()
		delete(w.fail, ids["w1"])
		routed := w.emit(Emit{Name: "done"})
		w.look()
		w.want(routed, StateProcessed, OutcomeMatched, 1)
		w.limits.TTL = time.Hour
		lost := w.emit(Emit{Name: "done"})
		w.pass(2 * time.Hour)
		w.look() // too late
		if e := w.event(lost); State(e) != StatePending {
			t.Errorf("an expired event was routed: %s", State(e))
		}
		if n, err := w.s.Cleanup(ctx, 100); err != nil || n != 1 {
			t.Errorf("%d deleted: %v", n, err)
		}
		if got := counterValue(t, w.s.d.Metrics.Events.Lost); got != 1 {
			t.Errorf("%v counted", got)
		}
		w.pass(8 * 24 * time.Hour)
		if n, err := w.s.Cleanup(ctx, 100); err != nil || n != 1 {
			t.Errorf("then %d deleted: %v", n, err)
		}
		if got := counterValue(t, w.s.d.Metrics.Events.Lost); got != 1 {
			t.Errorf("%v counted: a routed event is not lost", got)
		}
		w.want(dead, StateDead, "", 0) // dead letters stay
	})
}
