package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestIdleAgentGetsTheJob(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		agent := w.static("box", "linux")
		id := w.insert(job("a", "linux"))
		w.place()
		a := w.job(id, "a")
		if a.AgentID.String != agent || a.Attempt != 1 || a.Status != string(ci.JobQueued) {
			t.Fatalf("%+v", a)
		}
		as := w.assignments(a.ID)
		if len(as) != 1 || as[0].State != "assigned" || as[0].AckBy-as[0].CreatedAt != 10_000 || as[0].AgentID != agent {
			t.Fatalf("%+v", as)
		}
		w.place()
		if len(w.assignments(a.ID)) != 1 {
			t.Fatal("assigned twice")
		}
	})
}

func TestLaunchBindRegisterAssign(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.scaler("vm", 5, "linux", "x64")
		id := w.insert(job("a", "linux"))
		w.place()
		w.place()
		all := w.agents()
		if len(all) != 1 {
			t.Fatalf("%d agents for one job", len(all))
		}
		g := all[0]
		a := w.job(id, "a")
		if g.State != "requested" || g.BoundJobID.String != a.ID || g.NodeID != "n1" || g.Scaler != "vm" || g.Labels != `["linux","x64"]` ||
			g.LabelSet != "linux,x64" || !g.RegisterBy.Valid || !strings.HasPrefix(g.ID, "scaler-fake-") || len(g.ID) != len("scaler-fake-")+8 {
			t.Fatalf("%+v", g)
		}
		w.register(g.ID, "linux", "x64")
		w.place()
		a = w.job(id, "a")
		if a.AgentID.String != g.ID {
			t.Fatalf("agent %v", a.AgentID)
		}
		w.started(a)
		w.place()
		w.finish(a, ci.JobSuccess)
		w.insert(job("b", "linux"))
		w.place()
		if got := w.agent(g.ID); got.State != "draining" {
			t.Fatalf("the agent that has served is %s", got.State)
		}
		if all := w.agents(); len(all) != 2 {
			t.Fatalf("%d agents: a managed agent serves one job", len(all))
		}
	})
}

func TestWithdrawWhenJobEnds(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.scaler("vm", 5, "linux")
		id := w.insert(job("a", "linux"))
		w.place()
		if _, err := w.runs.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.place()
		if g := w.agents()[0]; g.State != "ending" || g.GoneReason != ci.GoneWithdrawn {
			t.Fatalf("%s %s", g.State, g.GoneReason)
		}
		if rows, _ := w.st.Read().DispatchReasons(ctx); len(rows) != 0 {
			t.Fatalf("reasons of a shape that waits no more: %v", rows)
		}
	})
}

// A faster agent takes the job; the one that boots for it is withdrawn.
func TestBoundAgentSuperseded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.scaler("vm", 5, "linux")
		id := w.insert(job("a", "linux"))
		w.place()
		w.static("box", "linux")
		w.place()
		if a := w.job(id, "a"); a.AgentID.String != "box" {
			t.Fatalf("agent %v", a.AgentID)
		}
		w.place()
		for _, g := range w.agents() {
			if g.Type == "fake" && (g.State != "ending" || g.GoneReason != ci.GoneWithdrawn) {
				t.Fatalf("%s %s", g.State, g.GoneReason)
			}
		}
	})
}

// TestXC75OneJobOnce: sixteen passes at once over one snapshot, sixteen agents: each job gets one agent, each agent one job.
func TestXC75OneJobOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		var jobs []string
		var agents []string
		for i := range 16 {
			agents = append(agents, w.static(fmt.Sprint("box", i), "linux"))
		}
		for i := range 4 {
			id := w.insert(job(fmt.Sprint("j", i), "linux"))
			jobs = append(jobs, w.job(id, fmt.Sprint("j", i)).ID)
		}
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				p := w.d.placer(w.term)
				for j := range jobs {
					a := placement.Assign{JobID: jobs[(i+j)%len(jobs)], RunID: "r", AgentID: agents[(i*3+j)%16]}
					if err := p.lead(ctx, func(tx *store.Tx) error { return p.assign(ctx, tx, a) }); err != nil && !store.IsUnique(err) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		busy := map[string]string{}
		for _, id := range jobs {
			open := 0
			for _, a := range w.assignments(id) {
				if a.EndedAt.Valid {
					continue
				}
				open++
				if other := busy[a.AgentID]; other != "" {
					t.Fatalf("agent %s has %s and %s", a.AgentID, other, id)
				}
				busy[a.AgentID] = id
			}
			if open != 1 {
				t.Fatalf("job %s has %d assignments", id, open)
			}
		}
	})
}

// TestXC87ClaimInCancelledRun: what was decided before the cancel is not written after it (CAN-6).
func TestXC87ClaimInCancelledRun(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.scaler("vm", 5, "linux")
		w.static("box", "linux")
		id := w.insert(job("a", "linux"), job("b", "linux"))
		v, err := w.p.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := placement.Decide(v.snapshot)
		if len(out.Assign) != 1 || len(out.Launch) != 1 {
			t.Fatalf("%+v", out)
		}
		if _, err := w.runs.Cancel(ctx, run.CancelRequest{OrgID: "acme", RunID: id, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if err := w.p.move(ctx, v.snapshot, out); err != nil {
			t.Fatal(err)
		}
		if a := w.job(id, "a"); a.AgentID.Valid || a.Status != string(ci.JobCancelled) {
			t.Fatalf("%+v", a)
		}
		if len(w.agents()) != 1 {
			t.Fatal("an agent was launched for a cancelled job")
		}
	})
}

// TestXC100OldTerm: a pass of a leader that was replaced writes nothing.
func TestXC100OldTerm(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.static("box", "linux")
		id := w.insert(job("a", "linux"))
		w.write(func(tx *store.Tx) error {
			_, err := tx.TakeLeaderTerm(ctx)
			return err
		})
		if err := w.p.tick(ctx); !errors.Is(err, store.ErrNotLeader) {
			t.Fatalf("got %v", err)
		}
		if a := w.job(id, "a"); a.AgentID.Valid {
			t.Fatal("assigned under an old term")
		}
	})
}

func reasonsOf(w *world, shape string) []placement.Reason {
	w.t.Helper()
	rows, err := w.st.Read().DispatchReasons(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rows {
		if r.Shape == shape {
			var out []placement.Reason
			if err := json.Unmarshal([]byte(r.Reasons), &out); err != nil {
				w.t.Fatal(err)
			}
			return out
		}
	}
	return nil
}

// Reasons are written when they change and not otherwise (D30).
func TestReasonsOnlyWhenChanged(t *testing.T) {
	w := sqlite(t)
	w.scaler("vm", 1, "linux")
	w.insert(job("a", "linux"), job("b", "linux"))
	w.place()
	w.place()
	id := w.insert(job("c", "linux"))
	shape := w.job(id, "c").Shape
	w.place()
	rs := reasonsOf(w, shape)
	if len(rs) == 0 {
		t.Fatal("no reason stored")
	}
	before := w.st.Stats()
	w.pass(time.Second)
	w.place()
	if after := w.st.Stats(); after.Writes != before.Writes {
		t.Fatalf("%d writes in a pass that changed nothing", after.Writes-before.Writes)
	}
	w.p = w.d.placer(w.term) // a new term, or a restart
	w.place()
	if after := w.st.Stats(); after.Writes != before.Writes {
		t.Fatalf("%d writes after a restart that changed nothing", after.Writes-before.Writes)
	}
}

// TestXC83Unroutable: the reason is visible at once, the job ends after the grace, and says which labels nobody has.
func TestXC83Unroutable(t *testing.T) {
	w := sqlite(t)
	w.scaler("vm", 1, "linux")
	id := w.insert(job("a", "gpu", "linux"))
	w.place()
	a := w.job(id, "a")
	if !a.UnroutableSince.Valid || len(reasonsOf(w, a.Shape)) == 0 {
		t.Fatalf("since %v, reasons %v", a.UnroutableSince, reasonsOf(w, a.Shape))
	}
	w.pass(100 * time.Second)
	w.p = w.d.placer(w.term)
	w.place()
	if got := w.job(id, "a"); got.UnroutableSince != a.UnroutableSince || got.Status != string(ci.JobQueued) {
		t.Fatalf("the clock was restarted: %v", got.UnroutableSince)
	}
	w.pass(20 * time.Second)
	w.place()
	w.wantJob(w.job(id, "a"), ci.JobUnroutable, "the labels gpu, linux")
	if r := w.run(id); r.Status != "failed" || r.FailureClass != "never_started" {
		t.Fatalf("run %s %s", r.Status, r.FailureClass)
	}
}

func TestUnroutableClockIsCleared(t *testing.T) {
	w := sqlite(t)
	id := w.insert(job("a", "gpu"))
	w.place()
	w.pass(100 * time.Second)
	w.scaler("vm", 0, "gpu") // could run it one day
	w.place()
	if a := w.job(id, "a"); a.Status != string(ci.JobQueued) {
		t.Fatalf("%s %q", a.Status, a.Error)
	}
}

// A recorded provisioning error takes precedence (QUE-14).
func TestProvisioningErrorTakesPrecedence(t *testing.T) {
	w := sqlite(t)
	id := w.insert(job("a", "gpu"))
	w.write(func(tx *store.Tx) error {
		_, err := tx.NodeSetProvisioningError(ctx, "no space on the host", w.job(id, "a").ID)
		return err
	})
	w.place()
	w.pass(121 * time.Second)
	w.place()
	w.wantJob(w.job(id, "a"), ci.JobStale, "no space on the host")
}

// TestQUE3Expiry: a job that waited past its deadline ends; its dependents follow in the same transaction (XC-84).
func TestQUE3Expiry(t *testing.T) {
	w := sqlite(t)
	w.scaler("vm", 1, "linux")
	busy := w.insert(job("hog", "linux"))
	w.place()
	w.register(w.agents()[0].ID, "linux")
	w.place()
	w.started(w.job(busy, "hog"))
	b := job("b", "linux")
	b.Needs = []lock.Need{{Job: "a", RunOn: []ci.JobStatus{ci.JobSuccess}}}
	id := w.insert(job("a", "linux"), b)
	w.place()
	w.pass(59 * time.Minute)
	w.place()
	w.wantJob(w.job(id, "a"), ci.JobQueued, "")
	w.pass(time.Minute)
	w.write(func(tx *store.Tx) error { _, err := tx.BeatInstance(ctx, tx.Now(), "n1"); return err })
	w.place()
	w.wantJob(w.job(id, "a"), ci.JobStale, "no agent was free for it within 1h0m0s")
	w.wantJob(w.job(id, "b"), ci.JobSkipped, "")
	if r := w.run(id); r.Status != "failed" {
		t.Fatalf("run is %s", r.Status)
	}
}

// The window is as large as what could move, and what lies beyond it comes later.
func TestWindow(t *testing.T) {
	w := sqlite(t)
	w.d.Settings.MovesPerWrite = 7
	w.scaler("vm", 50, "linux")
	for range 12 {
		var jobs []string
		for i := range 10 {
			jobs = append(jobs, fmt.Sprint("j", i))
		}
		list := make([]lock.Job, len(jobs))
		for i, name := range jobs {
			list[i] = job(name, "linux")
		}
		w.insert(list...)
	}
	w.place()
	if n := len(w.agents()); n != 50 {
		t.Fatalf("%d agents launched, the cap is 50", n)
	}
	v, err := w.p.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if sh := v.snapshot.Shapes[0]; sh.Total != 120 || len(sh.Jobs) < 51 || len(sh.Jobs) > 60 {
		t.Fatalf("window of %d in %d", len(sh.Jobs), sh.Total)
	}
	w.place()
	if n := len(w.agents()); n != 50 {
		t.Fatalf("%d agents after a second pass", n)
	}
}

// An agent that refuses a job is not asked again at once, whether that counts (busy) or not (draining): no hot loop, and no
// five attempts in five milliseconds.
func TestRefusingAgentRests(t *testing.T) {
	w := sqlite(t)
	w.static("box", "linux")
	id := w.insert(job("a", "linux"))
	w.place()
	w.write(func(tx *store.Tx) error {
		_, err := w.runs.Requeue(tx, w.job(id, "a").ID, 1, "rejected: draining", false)
		return err
	})
	w.place()
	if a := w.job(id, "a"); a.AgentID.Valid {
		t.Fatal("asked again at once")
	}
	w.static("other", "linux")
	other := w.insert(job("b", "linux"))
	w.place()
	w.place()
	if a := w.job(id, "a"); a.AgentID.String != "other" {
		t.Fatalf("agent %v", a.AgentID)
	}
	w.pass(10 * time.Second)
	w.place()
	if b := w.job(other, "b"); b.AgentID.String != "box" {
		t.Fatalf("agent %v after the rest", b.AgentID)
	}
}
