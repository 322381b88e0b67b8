package dispatch

import (
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestJudge(t *testing.T) {
	const now, ready = int64(1_000_000), int64(500_000)
	base := func(change func(*db.DispatchDueAssignmentsRow)) db.DispatchDueAssignmentsRow {
		a := db.DispatchDueAssignmentsRow{State: "acked", AgentState: "online", JobStatus: "running", AckBy: now + 5000}
		a.StartedAt.Int64, a.StartedAt.Valid = now-1000, true
		a.HeartbeatAt.Int64, a.HeartbeatAt.Valid = now-1000, true
		change(&a)
		return a
	}
	unstarted := func(a *db.DispatchDueAssignmentsRow) {
		a.State, a.JobStatus, a.StartedAt.Valid, a.HeartbeatAt.Valid = "assigned", "queued", false, false
	}
	lost := func(at int64) func(*db.DispatchDueAssignmentsRow) {
		return func(a *db.DispatchDueAssignmentsRow) { a.LinkLostAt.Int64, a.LinkLostAt.Valid = at, true }
	}
	cases := map[string]struct {
		change func(*db.DispatchDueAssignmentsRow)
		ready  int64
		want   assignmentFate
	}{
		"fine":                                             {func(*db.DispatchDueAssignmentsRow) {}, ready, assignmentFine},
		"ack still possible":                               {func(a *db.DispatchDueAssignmentsRow) { unstarted(a); a.AckBy = now + 1 }, ready, assignmentFine},
		"ack overdue":                                      {func(a *db.DispatchDueAssignmentsRow) { unstarted(a); a.AckBy = now }, ready, assignmentNotAcked},
		"ack overdue, but we just came up":                 {func(a *db.DispatchDueAssignmentsRow) { unstarted(a); a.AckBy = now }, now - 9_999, assignmentFine},
		"ack overdue, and we came up before":               {func(a *db.DispatchDueAssignmentsRow) { unstarted(a); a.AckBy = now }, now - 10_000, assignmentNotAcked},
		"ack overdue while the link is lost":               {func(a *db.DispatchDueAssignmentsRow) { unstarted(a); a.AckBy = now; lost(now - 50_000)(a) }, ready, assignmentFine},
		"link lost, within the grace":                      {lost(now - 59_999), ready, assignmentFine},
		"link lost for the grace":                          {lost(now - 60_000), ready, assignmentLost},
		"XC79 link lost while we were down":                {lost(now - 600_000), now - 59_999, assignmentFine},
		"link lost while we were down, and not back since": {lost(now - 600_000), now - 60_000, assignmentLost},
		"we are not ready yet":                             {lost(now - 600_000), 0, assignmentFine},
		"agent ended":                                      {func(a *db.DispatchDueAssignmentsRow) { a.AgentState = "ending" }, ready, assignmentEnded},
		"agent gone, while we are not ready":               {func(a *db.DispatchDueAssignmentsRow) { a.AgentState = "gone" }, 0, assignmentEnded},
		"silent":                                           {func(a *db.DispatchDueAssignmentsRow) { a.HeartbeatAt.Int64 = now - 120_000 }, ready, assignmentStale},
		"recovering, its link is back, and silent":         {func(a *db.DispatchDueAssignmentsRow) { a.JobStatus = "recovering"; a.HeartbeatAt.Int64 = now - 120_000 }, ready, assignmentStale},
		"silent, but its link is lost":                     {func(a *db.DispatchDueAssignmentsRow) { a.HeartbeatAt.Int64 = now - 120_000; lost(now - 10)(a) }, ready, assignmentFine},
		"silent because we were down":                      {func(a *db.DispatchDueAssignmentsRow) { a.HeartbeatAt.Int64 = now - 600_000 }, now - 100_000, assignmentFine},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := judge(base(c.change), clock{now: now, ready: c.ready, settings: DefaultSettings()}); got != c.want {
				t.Fatalf("got %d, want %d", got, c.want)
			}
		})
	}
}

// placed makes a run of one job on a launched agent.
func (w *world) placed() (runID string, a db.ExecutionJob) {
	w.t.Helper()
	w.scaler("vm", 100, "linux")
	runID = w.insert(job("a", "linux"))
	w.place()
	for _, g := range w.agents() {
		if g.State == "requested" {
			w.register(g.ID, "linux")
		}
	}
	w.place()
	a = w.job(runID, "a")
	if !a.AgentID.Valid {
		w.t.Fatal("not placed")
	}
	return runID, a
}

// beat keeps the node alive while the clock moves.
func (w *world) beat() {
	w.t.Helper()
	w.write(func(tx *store.Tx) error { _, err := tx.BeatInstance(ctx, tx.Now(), "n1"); return err })
}

// TestXC76NotAcked: the job goes back to the queue, the silent agent is ended, and another one gets the job.
func TestXC76NotAcked(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.pass(9 * time.Second)
	w.duties()
	if got := w.job(id, "a"); !got.AgentID.Valid {
		t.Fatal("requeued before the deadline")
	}
	w.pass(2 * time.Second)
	w.duties()
	got := w.job(id, "a")
	if got.AgentID.Valid || got.DispatchAttempts != 1 || got.Status != string(ci.JobQueued) || got.QueuedAt != a.QueuedAt {
		t.Fatalf("%+v", got)
	}
	if g := w.agent(a.AgentID.String); g.State != "ending" || g.GoneReason != ci.GoneUnresponsive {
		t.Fatalf("agent %s %s", g.State, g.GoneReason)
	}
	if as := w.assignments(a.ID); as[0].EndReason != "not_acked" {
		t.Fatalf("%+v", as)
	}
	w.place()
	if n := len(w.agents()); n != 2 {
		t.Fatalf("%d agents", n)
	}
}

func TestLostBeforeStartIsRequeued(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.loseLink(a.AgentID.String)
	w.pass(59 * time.Second)
	w.duties()
	if got := w.job(id, "a"); !got.AgentID.Valid {
		t.Fatal("given up before the grace")
	}
	w.pass(time.Second)
	w.duties()
	if got := w.job(id, "a"); got.AgentID.Valid || got.Status != string(ci.JobQueued) || got.DispatchAttempts != 1 {
		t.Fatalf("%+v", got)
	}
	if g := w.agent(a.AgentID.String); g.State != "ending" || g.GoneReason != ci.GoneLost {
		t.Fatalf("agent %s %s", g.State, g.GoneReason)
	}
}

func TestLostAfterStartFails(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.started(a)
	w.loseLink(a.AgentID.String)
	w.pass(61 * time.Second)
	w.duties()
	w.wantJob(w.job(id, "a"), ci.JobFailed, "agent "+a.AgentID.String+" was lost")
	if g := w.agent(a.AgentID.String); g.State != "ending" || g.GoneReason != ci.GoneLost {
		t.Fatalf("agent %s %s", g.State, g.GoneReason)
	}
	if r := w.run(id); r.Status != "failed" || r.FailureClass != "timed_out" {
		t.Fatalf("run %s %s", r.Status, r.FailureClass)
	}
}

// The node saw the process die: nobody waits for the grace.
func TestEndedAgentFailsItsJobAtOnce(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.started(a)
	w.write(func(tx *store.Tx) error {
		_, err := tx.NodeEndAgent(ctx, db.NodeEndAgentParams{ID: a.AgentID.String, State: "online", GoneReason: ci.GoneLost, Error: "exited with 137", Now: tx.Now()})
		return err
	})
	w.duties()
	w.wantJob(w.job(id, "a"), ci.JobFailed, "ended while it had this job (lost): exited with 137")
}

// A static agent that does not answer is gone until it registers again.
func TestStaticAgentNotAcked(t *testing.T) {
	w := sqlite(t)
	w.static("box", "linux")
	id := w.insert(job("a", "linux"))
	w.place()
	w.pass(11 * time.Second)
	w.duties()
	if g := w.agent("box"); g.State != "gone" || !g.EndedAt.Valid {
		t.Fatalf("agent is %s", g.State)
	}
	w.static("box", "linux")
	w.place()
	if a := w.job(id, "a"); a.AgentID.String != "box" || a.Attempt != 2 {
		t.Fatalf("%+v", a)
	}
}

// TestSTL2Stale: connected, and silent about its job.
func TestSTL2Stale(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.started(a)
	w.pass(119 * time.Second)
	w.duties()
	w.wantJob(w.job(id, "a"), ci.JobRunning, "")
	w.write(func(tx *store.Tx) error {
		_, err := w.runs.Heartbeat(tx, a.ID, int(a.Attempt), a.AgentID.String)
		return err
	})
	w.pass(119 * time.Second)
	w.duties()
	w.wantJob(w.job(id, "a"), ci.JobRunning, "")
	w.pass(2 * time.Second)
	w.beat()
	w.duties()
	w.wantJob(w.job(id, "a"), ci.JobStale, "has said nothing about this job")
	if g := w.agent(a.AgentID.String); g.State != "ending" || g.GoneReason != ci.GoneUnresponsive {
		t.Fatalf("agent %s %s", g.State, g.GoneReason)
	}
}

// TestXC72OverdueByTwoDays: however long ago the deadline was.
func TestXC72OverdueByTwoDays(t *testing.T) {
	w := sqlite(t)
	n := run.New{
		OrgID: "acme", Repo: "acme/shop", TriggerEvent: "push",
		Workflow: lock.Workflow{Name: "ci", TimeoutMs: 60_000, Jobs: []lock.Job{job("a", "linux")}},
	}
	var id string
	w.write(func(tx *store.Tx) error {
		var err error
		id, _, err = w.runs.Insert(tx, w.runs.Plan(n))
		return err
	})
	w.pass(59 * time.Second)
	w.duties()
	if r := w.run(id); r.Status != "pending" {
		t.Fatalf("run is %s", r.Status)
	}
	w.pass(48 * time.Hour)
	w.duties()
	if r := w.run(id); r.Status != "cancelled" || r.CancelledBy != "kici" || r.FailureReason[:17] != "workflow_timeout:" {
		t.Fatalf("%s by %s: %q", r.Status, r.CancelledBy, r.FailureReason)
	}
}

// TestXC94CancelDriven: told again after 240 s, ended without the agent after 480 s.
func TestXC94CancelDriven(t *testing.T) {
	w := sqlite(t)
	id, a := w.placed()
	w.started(a)
	if _, err := w.runs.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration) {
		for d > 0 { // heartbeats go on
			step := min(d, 60*time.Second)
			w.pass(step)
			d -= step
			w.write(func(tx *store.Tx) error {
				_, err := w.runs.Heartbeat(tx, a.ID, int(a.Attempt), a.AgentID.String)
				return err
			})
			w.duties()
		}
	}
	pass(239 * time.Second)
	if w.run(id).CancelForce {
		t.Fatal("forced too early")
	}
	pass(61 * time.Second)
	if !w.run(id).CancelForce || !w.job(id, "a").CancelForce || w.run(id).Status != "cancelling" {
		t.Fatalf("not driven: %s", w.run(id).Status)
	}
	pass(240 * time.Second)
	w.wantJob(w.job(id, "a"), ci.JobCancelled, "did not stop it in time")
	if w.run(id).Status != "cancelled" || w.agent(a.AgentID.String).State != "ending" {
		t.Fatalf("run %s, agent %s", w.run(id).Status, w.agent(a.AgentID.String).State)
	}
}

// TestXC56SweepAtStart: a run that stands still is moved as soon as somebody leads.
func TestXC56SweepAtStart(t *testing.T) {
	w := sqlite(t)
	id := w.insert(job("a", "linux"))
	w.write(func(tx *store.Tx) error { return tx.DeleteJobsOfRun(ctx, id) })
	w.duties()
	if r := w.run(id); r.Status != "pending" {
		t.Fatalf("a run of this moment is %s", r.Status)
	}
	w.pass(121 * time.Second)
	w.w = w.d.warden(w.term)
	w.duties()
	if r := w.run(id); r.Status != "failed" || r.FailureClass != "never_started" {
		t.Fatalf("%s %s", r.Status, r.FailureClass)
	}
}

// TestXC80DeadCoordinator: an agent whose server is dead, and that no other server hears of within the grace, fails its job for that
// (STL-6, PIPE-21). Fleet has taken the link (TestXC79OnlyItsOwnRows). A server that is back was no more than restarted, and a job that
// had not started begins elsewhere.
func TestXC80DeadCoordinator(t *testing.T) {
	for name, c := range map[string]struct {
		started, back bool
		status        ci.JobStatus
		class, text   string
	}{
		"its server is dead":              {true, false, ci.JobFailed, "dead_orchestrator", "server n2, which agent"},
		"its server is back without it":   {true, true, ci.JobFailed, "timed_out", "did not come back within"},
		"dead, and the job did not start": {false, false, ci.JobQueued, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := sqlite(t)
			id, a := w.placed()
			w.write(func(tx *store.Tx) error { return w.node(tx, "n2") })
			w.admitTo("n2", a.AgentID.String, "linux")
			if c.started {
				w.started(a)
			}
			w.pass(ci.InstanceTimeout + time.Second)
			w.beat()
			w.loseLink(a.AgentID.String)
			w.pass(61 * time.Second)
			if c.back {
				w.write(func(tx *store.Tx) error { _, err := tx.BeatInstance(ctx, tx.Now(), "n2"); return err })
			}
			w.duties()
			w.wantJob(w.job(id, "a"), c.status, c.text)
			if r := w.run(id); r.FailureClass != c.class {
				t.Errorf("class %q, want %q", r.FailureClass, c.class)
			}
		})
	}
}

// The agents of a dead instance get no work.
func TestNoWorkForAgentsOfDeadInstance(t *testing.T) {
	w := sqlite(t)
	w.static("box", "linux")
	w.pass(121 * time.Second)
	id := w.insert(job("a", "linux"))
	w.place()
	if a := w.job(id, "a"); a.AgentID.Valid {
		t.Fatal("assigned to an agent whose coordinator is dead")
	}
	w.beat()
	w.place()
	if a := w.job(id, "a"); !a.AgentID.Valid {
		t.Fatal("not assigned after the heartbeat")
	}
}
