package run_test

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
)

func (w *world) step(r wire.StepStatus, agent string) bool {
	w.t.Helper()
	var ok bool
	w.write(func(tx *store.Tx) error {
		var err error
		ok, err = w.s.Step(tx, r, agent)
		return err
	})
	return ok
}

func (w *world) requeue(jobID string, attempt int, reason string, count bool) bool {
	w.t.Helper()
	var ok bool
	w.write(func(tx *store.Tx) error {
		var err error
		ok, err = w.s.Requeue(tx, jobID, attempt, reason, count)
		return err
	})
	return ok
}

func (w *world) try(fn func(tx *store.Tx) (bool, error)) bool {
	w.t.Helper()
	var ok bool
	w.write(func(tx *store.Tx) error {
		var err error
		ok, err = fn(tx)
		return err
	})
	return ok
}

func TestLifeOfOneJob(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		if a.Status != string(ci.JobQueued) || a.Labels != `["linux"]` || a.Shape == "" || !a.QueueDeadlineAt.Valid {
			t.Fatalf("queued job: %+v", a)
		}
		agent, attempt := w.assign(a.ID)
		if !w.started(a.ID, agent, attempt) || w.started(a.ID, agent, attempt) {
			t.Fatal("started is not exactly once")
		}
		if r := w.run(id); r.Status != string(ci.RunRunning) || !r.StartedAt.Valid {
			t.Fatalf("run is %s", r.Status)
		}
		code := 2
		running := wire.StepStatus{Seq: 2, JobID: a.ID, Attempt: attempt, StepIndex: 1, Name: "build", Status: "running", StartedAt: 5}
		failed := wire.StepStatus{Seq: 3, JobID: a.ID, Attempt: attempt, StepIndex: 1, Name: "build", Status: "failed", StartedAt: 5, FinishedAt: 9, ExitCode: &code}
		if !w.step(running, agent) || !w.step(failed, agent) || w.step(failed, agent) || w.step(running, agent) {
			t.Fatal("steps are not exactly once")
		}
		w.step(wire.StepStatus{Seq: 4, JobID: a.ID, Attempt: attempt, StepIndex: 2, Name: "left open", Status: "running"}, agent)
		w.step(wire.StepStatus{Seq: 5, JobID: a.ID, Attempt: attempt, StepIndex: 3, Name: "never", Status: "pending"}, agent)
		w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobFailed, KillMethod: "cgroup", Seq: 6})

		steps, _ := w.st.Read().WholeSteps(ctx, a.ID)
		if len(steps) != 3 || steps[0].Status != "failed" || steps[1].Status != "failed" || steps[2].Status != "skipped" {
			t.Fatalf("steps %+v", steps)
		}
		r := w.run(id)
		if r.Status != "failed" || r.FailureReason != `a: step "build" failed with exit code 2` || r.FailureClass != "step_failure" {
			t.Fatalf("run %s: %q (%s)", r.Status, r.FailureReason, r.FailureClass)
		}
		as, _ := w.st.Read().WholeAssignments(ctx, a.ID)
		if len(as) != 1 || !as[0].EndedAt.Valid || as[0].EndReason != "finished" || !as[0].AckedAt.Valid {
			t.Fatalf("assignments %+v", as)
		}
		if g, _ := w.st.Read().WholeAgent(ctx, agent); g.State != "draining" || g.JobsDone != 1 {
			t.Fatalf("agent is %s after %d jobs: a managed agent serves one", g.State, g.JobsDone)
		}
	})
}

// TestSTM5TerminalNeverChanges: whatever comes after the end changes nothing and is counted.
func TestSTM5TerminalNeverChanges(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		refused := 0
		w.s.Observe(run.Observer{Refused: func(string) { refused++ }})
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		end := run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess, Outputs: map[string]string{"x": "1"}}
		w.finish(end)
		before, beforeRun := w.job(id, "a"), w.run(id)
		if w.finish(end) {
			t.Fatal("a repeat was applied")
		}
		if refused != 0 {
			t.Fatalf("an equal repeat was counted as refused (%d)", refused)
		}
		late := []run.End{
			{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobFailed},
			{JobID: a.ID, Status: ci.JobStale},
			{JobID: a.ID, Status: ci.JobCancelled},
			{JobID: a.ID, AgentID: "another", Status: ci.JobSuccess},
		}
		for _, e := range late {
			if w.finish(e) {
				t.Fatalf("%+v was applied", e)
			}
		}
		if w.started(a.ID, agent, attempt) || w.step(wire.StepStatus{Seq: 9, JobID: a.ID, Attempt: attempt, StepIndex: 1, Status: "running"}, agent) {
			t.Fatal("a late report was applied")
		}
		if w.requeue(a.ID, attempt, "lost", true) {
			t.Fatal("a finished job was requeued")
		}
		if refused != len(late)+2 {
			t.Fatalf("%d refused writes counted", refused)
		}
		if w.job(id, "a") != before || w.run(id) != beforeRun {
			t.Fatal("the rows changed")
		}
	})
}

// TestXC76LateAcknowledgement: before the requeue a late sign of life keeps the job; after it the old agent's reports are dropped.
func TestXC76LateAcknowledgement(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		a, b := w.job(id, "a"), w.job(id, "b")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		if w.requeue(a.ID, attempt, "not_acked", true) {
			t.Fatal("a started job was requeued")
		}
		old, oldAttempt := w.assign(b.ID)
		if !w.requeue(b.ID, oldAttempt, "not_acked", true) {
			t.Fatal("not requeued")
		}
		if w.started(b.ID, old, oldAttempt) || w.finish(run.End{JobID: b.ID, Attempt: oldAttempt, AgentID: old, Status: ci.JobSuccess}) {
			t.Fatal("the old agent's report was taken")
		}
		agent, attempt = w.assign(b.ID)
		if attempt != oldAttempt+1 {
			t.Fatalf("attempt %d after %d", attempt, oldAttempt)
		}
		if w.started(b.ID, old, oldAttempt) || !w.started(b.ID, agent, attempt) {
			t.Fatal("the job is not the new agent's")
		}
		if w.try(func(tx *store.Tx) (bool, error) { return w.s.Holds(tx, b.ID, oldAttempt, old) }) {
			t.Fatal("the old agent holds the job")
		}
		if !w.try(func(tx *store.Tx) (bool, error) { return w.s.Holds(tx, b.ID, attempt, agent) }) {
			t.Fatal("the new agent does not hold the job")
		}
	})
}

// TestXC77FiveRejections: the fifth fails the job with the last reason. TestXC88: refusals of a draining agent do not count.
func TestXC77FiveRejections(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		for i := range 5 {
			if got := w.job(id, "a"); got.Status != string(ci.JobQueued) || got.AgentID.Valid {
				t.Fatalf("before try %d: %s, agent %v", i+1, got.Status, got.AgentID)
			}
			_, attempt := w.assign(a.ID)
			w.requeue(a.ID, attempt, "rejected: busy", true)
		}
		got := w.job(id, "a")
		if got.Status != string(ci.JobFailed) || got.InitFailure != "no_agent" || !strings.Contains(got.Error, "rejected: busy") {
			t.Fatalf("%s %s %q", got.Status, got.InitFailure, got.Error)
		}
		w.want(id, "a=failed", ci.RunFailed)
		if r := w.run(id); r.FailureClass != "never_started" {
			t.Fatalf("class %s", r.FailureClass)
		}
	})
}

func TestXC88DrainDoesNotCount(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	id := w.insert(newRun(job("a")))
	a := w.job(id, "a")
	for range 12 {
		_, attempt := w.assign(a.ID)
		w.requeue(a.ID, attempt, "rejected: draining", false)
	}
	if got := w.job(id, "a"); got.Status != string(ci.JobQueued) || got.DispatchAttempts != 0 || got.QueuedAt != a.QueuedAt {
		t.Fatalf("%s after %d attempts", got.Status, got.DispatchAttempts)
	}
}

// TestXC78LinkLostAndBack: the same agent reclaims its job and goes on.
func TestXC78LinkLostAndBack(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		if !w.try(func(tx *store.Tx) (bool, error) { return w.s.Recover(tx, a.ID, attempt, 99) }) {
			t.Fatal("not recovering")
		}
		if got := w.job(id, "a"); got.Status != string(ci.JobRecovering) || got.RecoverBy.Int64 != 99 {
			t.Fatalf("%s until %d", got.Status, got.RecoverBy.Int64)
		}
		if w.try(func(tx *store.Tx) (bool, error) { return w.s.Recovered(tx, a.ID, attempt, "another") }) {
			t.Fatal("another agent reclaimed it")
		}
		if !w.try(func(tx *store.Tx) (bool, error) { return w.s.Recovered(tx, a.ID, attempt, agent) }) {
			t.Fatal("not reclaimed")
		}
		if got := w.job(id, "a"); got.Status != string(ci.JobRunning) || got.RecoverBy.Valid || got.Attempt != int64(attempt) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestLost(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		lost := func(jobID string, attempt int) bool {
			return w.try(func(tx *store.Tx) (bool, error) { return w.s.Lost(tx, jobID, attempt, "agent x was lost") })
		}
		id := w.insert(newRun(job("started"), job("waiting"), job("recovering")))
		s, q, r := w.job(id, "started"), w.job(id, "waiting"), w.job(id, "recovering")
		agent, attempt := w.assign(s.ID)
		w.started(s.ID, agent, attempt)
		if !lost(s.ID, attempt) || lost(s.ID, attempt) {
			t.Fatal("not exactly once")
		}
		_, attempt = w.assign(q.ID)
		lost(q.ID, attempt)
		agent, attempt = w.assign(r.ID)
		w.started(r.ID, agent, attempt)
		w.try(func(tx *store.Tx) (bool, error) { return w.s.Recover(tx, r.ID, attempt, 1) })
		lost(r.ID, attempt)
		w.want(id, "started=failed waiting=queued recovering=failed", ci.RunRunning)
		if got := w.job(id, "started"); got.Error != "agent x was lost" {
			t.Fatalf("error %q", got.Error)
		}
		if got := w.run(id); got.FailureClass != "timed_out" {
			t.Fatalf("class %q", got.FailureClass)
		}
	})
}

// TestXC97HeartbeatOfAnother: it counts only from the agent that holds the job.
func TestXC97HeartbeatOfAnother(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		w.started(a.ID, agent, attempt)
		for _, c := range []struct {
			agent   string
			attempt int
			want    bool
		}{{"another", attempt, false}, {agent, attempt + 1, false}, {agent, attempt, true}} {
			got := w.try(func(tx *store.Tx) (bool, error) { return w.s.Heartbeat(tx, a.ID, c.attempt, c.agent) })
			if got != c.want {
				t.Fatalf("heartbeat of %s, attempt %d: %v", c.agent, c.attempt, got)
			}
		}
	})
}

// A success may be the first that is heard of a job: "running" was lost with a link, or the job was too short.
func TestFinishImpliesStart(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a")))
		a := w.job(id, "a")
		agent, attempt := w.assign(a.ID)
		if !w.finish(run.End{JobID: a.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess}) {
			t.Fatal("refused")
		}
		w.want(id, "a=success", ci.RunSuccess)
		if r := w.run(id); !r.StartedAt.Valid {
			t.Fatal("the run has no start")
		}
	})
}

// TestXC85ExpiryAgainstClaim: exactly one wins.
func TestXC85ExpiryAgainstClaim(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.insert(newRun(job("a"), job("b")))
		a, b := w.job(id, "a"), w.job(id, "b")
		_, _ = w.assign(a.ID)
		if w.finish(run.End{JobID: a.ID, Status: ci.JobStale, OnlyWaiting: true}) {
			t.Fatal("an assigned job expired")
		}
		if !w.finish(run.End{JobID: b.ID, Status: ci.JobStale, OnlyWaiting: true, Error: "waited too long"}) {
			t.Fatal("a waiting job did not expire")
		}
		w.want(id, "a=queued b=timed_out_stale", ci.RunPending)
	})
}

// TestXC82QueueFull: a new job is refused with a reason, a requeue never.
func TestXC82QueueFull(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t), func(s *run.Settings) { s.QueueMaxDepth = 3 })
	id := w.insert(newRun(job("a"), job("b"), job("c"), job("d")))
	w.want(id, "a=queued b=queued c=queued d=failed", ci.RunPending)
	if d := w.job(id, "d"); d.InitFailure != "queue_full" || !strings.HasPrefix(d.Error, "queue full") {
		t.Fatalf("%q %q", d.InitFailure, d.Error)
	}
	a := w.job(id, "a")
	_, attempt := w.assign(a.ID)
	if !w.requeue(a.ID, attempt, "rejected: busy", true) {
		t.Fatal("a requeue was refused")
	}
	w.want(id, "a=queued b=queued c=queued d=failed", ci.RunPending)
}
