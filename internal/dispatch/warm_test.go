package dispatch

import (
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// live are the agents that are not gone or ending.
func (w *world) live() (out []db.Agent) {
	for _, a := range w.agents() {
		if a.State != "gone" && a.State != "ending" {
			out = append(out, a)
		}
	}
	return out
}

// TestWarmPool: agents stand ready before there is a job, one of them has it in the next pass, and another is started in its place; when
// the pool is gone they are ended.
func TestWarmPool(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, ci.DefaultOrg, 1) })
		w.pooled("vm", 5, placement.WarmPool{Size: 1, IdleMs: 1}, "linux")
		w.place()
		w.place()
		all := w.live()
		if len(all) != 1 || all[0].BoundJobID.Valid || all[0].LabelSet != "linux" || all[0].OrgID != ci.DefaultOrg || all[0].State != "requested" {
			t.Fatalf("%+v", all)
		}
		first := all[0].ID
		w.register(first, "linux")
		id := w.insertOf(ci.DefaultOrg, job("a", "linux"))
		w.place()
		if j := w.job(id, "a"); j.AgentID.String != first {
			t.Fatalf("the job is at %q", j.AgentID.String)
		}
		if got := w.agent(first); got.BoundJobID.String != w.job(id, "a").ID {
			t.Errorf("not bound: %+v", got)
		}
		all = w.live()
		if len(all) != 2 {
			t.Fatalf("%d agents, want the one at work and another that is ready", len(all))
		}
		w.pooled("vm", 5, placement.WarmPool{}, "linux")
		w.place()
		if all = w.live(); len(all) != 1 || all[0].ID != first {
			t.Fatalf("%+v", all)
		}
	})
}

// TestXS59WarmAgentIsClaimedWhileItIsEnded: the write that ends an agent of a pool does nothing to one that has been given a job since the
// decision.
func TestXS59WarmAgentIsClaimedWhileItIsEnded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, ci.DefaultOrg, 1) })
		w.pooled("vm", 5, placement.WarmPool{Size: 1, IdleMs: 1}, "linux")
		w.place()
		agent := w.live()[0].ID
		w.register(agent, "linux")
		id := w.insertOf(ci.DefaultOrg, job("a", "linux"))
		v, err := w.p.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.place() // somebody else, with the same snapshot
		err = w.p.move(ctx, v.snapshot, placement.Decisions{Withdraw: []placement.Withdraw{{AgentID: agent, Reason: ci.GoneIdle}}})
		if err != nil {
			t.Fatal(err)
		}
		if j := w.job(id, "a"); w.agent(agent).State != "online" || j.AgentID.String != agent {
			t.Errorf("agent %+v, job at %s", w.agent(agent), j.AgentID.String)
		}
	})
}

// TestWarmPoolWaitsForADrainedNode: since the decision its node was told to drain.
func TestWarmPoolWaitsForADrainedNode(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, ci.DefaultOrg, 1) })
		w.pooled("vm", 5, placement.WarmPool{Size: 1, IdleMs: 1}, "linux")
		v, err := w.p.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.write(func(tx *store.Tx) error {
			_, err := tx.SetInstanceDraining(ctx, true, "n1")
			return err
		})
		if err := w.p.move(ctx, v.snapshot, placement.Decide(v.snapshot)); err != nil {
			t.Fatal(err)
		}
		if all := w.live(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
	})
}

// TestCapIsLoweredBeforeTheLaunch: what was decided under a cap is not written under a lower one.
func TestCapIsLoweredBeforeTheLaunch(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.write(func(tx *store.Tx) error { return tx.InsertOrg(ctx, ci.DefaultOrg, 1) })
		pool := placement.WarmPool{Size: 3, IdleMs: 1}
		w.pooled("vm", 3, pool, "linux")
		v, err := w.p.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.pooled("vm", 1, pool, "linux")
		if err := w.p.move(ctx, v.snapshot, placement.Decide(v.snapshot)); err != nil {
			t.Fatal(err)
		}
		if all := w.live(); len(all) != 1 {
			t.Errorf("%d agents, the cap is 1", len(all))
		}
	})
}
