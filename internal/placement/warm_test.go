package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
)

// warm adds an agent of a pool, idle since some seconds before now when it is online.
func (w *world) warm(id, scaler string, state ci.AgentState, idle int64, set ...string) *Agent {
	a := w.managed(id, scaler, state, "")
	a.LabelSet, a.IdleSince = ci.LabelKey(set), w.Now-idle*1000
	return a
}

// TestWarm is what becomes of warm pools (WP-1 to WP-8). The pool of every case holds two and lets a surplus idle for a minute.
func TestWarm(t *testing.T) {
	pool := func(w *world, max int64) *Scaler {
		w.WarmOrg = "org"
		s := w.scaler("vm", max, "linux")
		s.Warm = WarmPool{Size: 2, IdleMs: 60_000}
		return s
	}
	for _, c := range []struct {
		name string
		set  func(*world)
		want string
	}{
		{"filled at once", func(w *world) { pool(w, 8) }, "⇒vm ⇒vm"},
		{"what is on its way counts", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentBooting, 0, "linux")
			w.warm("b", "vm", ci.AgentOnline, 5, "linux")
		}, ""},
		{"one that is ending does not count", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentEnding, 0, "linux")
			w.warm("b", "vm", ci.AgentOnline, 5, "linux")
		}, "⇒vm"},
		{"a job takes one, and another is started", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentOnline, 9, "linux")
			w.warm("b", "vm", ci.AgentOnline, 5, "linux")
			w.jobs("s", 1, []string{"j"}, "linux")
		}, "j→a ⇒vm"},
		{"an agent for a job is no part of the pool", func(w *world) {
			pool(w, 8)
			w.managed("a", "vm", ci.AgentBooting, "j").LabelSet = "linux"
			w.jobs("s", 1, []string{"j"}, "linux")
		}, "⇒vm ⇒vm"},
		{"a static agent stands in (WP-1)", func(w *world) {
			pool(w, 8)
			w.static("s1", "linux", "ssd")
		}, "⇒vm"},
		{"a static agent of another organisation does not", func(w *world) {
			pool(w, 8)
			w.static("s1", "linux").OrgID = "other"
		}, "⇒vm ⇒vm"},
		{"only within the caps (XS-60)", func(w *world) { pool(w, 1) }, "⇒vm"},
		{"jobs come before the pool", func(w *world) {
			pool(w, 2)
			w.jobs("s", 1, []string{"j", "k"}, "linux")
		}, "j⇒vm k⇒vm"},
		{"not while it backs off", func(w *world) { pool(w, 8).BackoffUntil = w.Now + 1 }, ""},
		{"not while its node drains; what is there stays", func(w *world) {
			pool(w, 8)
			w.Nodes[0].Draining = true
			w.warm("a", "vm", ci.AgentOnline, 900, "linux").Draining = true
		}, ""},
		{"surplus that has been idle for long ends, the oldest first (WP-6)", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentOnline, 70, "linux")
			w.warm("b", "vm", ci.AgentOnline, 90, "linux")
			w.warm("c", "vm", ci.AgentOnline, 80, "linux")
		}, "b✕idle"},
		{"surplus that has not stays", func(w *world) {
			pool(w, 8)
			for i, id := range []string{"a", "b", "c"} {
				w.warm(id, "vm", ci.AgentOnline, int64(10+i), "linux")
			}
		}, ""},
		{"a quiet pool keeps its size (XS-61)", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentOnline, 9000, "linux")
			w.warm("b", "vm", ci.AgentOnline, 9000, "linux")
		}, ""},
		{"a pool of no size ends at once, with what is on its way (WP-8)", func(w *world) {
			pool(w, 8).Warm = WarmPool{}
			w.warm("a", "vm", ci.AgentOnline, 1, "linux")
			w.warm("b", "vm", ci.AgentRequested, 0, "linux")
		}, "a✕idle b✕idle"},
		{"one that retires ends", func(w *world) {
			pool(w, 8).Retiring = true
			w.warm("a", "vm", ci.AgentOnline, 1, "linux")
		}, "a✕idle"},
		{"so does that of a set that is gone", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentOnline, 1, "arm")
		}, "⇒vm ⇒vm a✕idle"},
		{"a claimed one is never ended (XS-59)", func(w *world) {
			pool(w, 8).Warm = WarmPool{}
			w.warm("a", "vm", ci.AgentOnline, 99, "linux").Job = "j"
			w.warm("b", "vm", ci.AgentOnline, 99, "linux")
			w.jobs("s", 1, []string{"k"}, "linux")
		}, "k→b"},
		{"a job that asks for more gets an agent of its own (XS-62)", func(w *world) {
			pool(w, 8)
			w.warm("a", "vm", ci.AgentOnline, 1, "linux")
			w.warm("b", "vm", ci.AgentOnline, 1, "linux")
			w.jobs("s", 1, []string{"j"}, "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 4000}}
		}, "j⇒vm"},
		{"one makes room for a job that waits for it, and is not started again meanwhile", func(w *world) {
			pool(w, 2)
			w.scaler("gpu", 5, "gpu")
			w.Nodes[0].GlobalMaxAgents = 2
			w.warm("a", "vm", ci.AgentOnline, 1, "linux")
			w.warm("b", "vm", ci.AgentOnline, 1, "linux")
			w.jobs("s", 1, []string{"j"}, "gpu")
		}, "a✕made-room"},
		{"none makes room where that does not help", func(w *world) {
			pool(w, 2)
			w.scaler("gpu", 1, "gpu")
			w.managed("g", "gpu", ci.AgentOnline, "x").Job = "x"
			w.warm("a", "vm", ci.AgentOnline, 1, "linux")
			w.warm("b", "vm", ci.AgentOnline, 1, "linux")
			w.jobs("s", 1, []string{"j"}, "gpu")
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.set(w)
			if got := moves(w.decide()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestWarmPoolsComeToRest: whatever there is, after some passes in which agents start and end as they were told nothing is decided any
// more, and unless a job waits every pool that can have its size has it.
func TestWarmPoolsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		s.WarmOrg = "org"
		for i := range s.Shapes {
			s.Shapes[i].Total = len(s.Shapes[i].Jobs)
		}
		for pass := range 60 {
			d := Decide(s)
			checkInvariants(rapidTB{t: t}, s, d)
			if len(d.Assign)+len(d.Launch)+len(d.Withdraw) == 0 {
				checkPools(t, s)
				return
			}
			s = settle(apply(s, d), pass)
		}
		t.Fatalf("it does not come to rest: %+v", Decide(s))
	})
}

// settle lets agents live on: those that start register, those that end are gone.
func settle(s Snapshot, pass int) Snapshot {
	s.Agents = slices.DeleteFunc(slices.Clone(s.Agents), func(a Agent) bool { return a.State == ci.AgentEnding })
	for i := range s.Agents {
		a := &s.Agents[i]
		if strings.HasPrefix(a.ID, "new-") && a.State != ci.AgentOnline {
			a.State, a.Connected, a.IdleSince = ci.AgentOnline, true, s.Now
			a.ID = fmt.Sprint(a.ID, "-", pass, "-", i)
		}
	}
	s.Now += 10_000
	return s
}

// checkPools: with nobody waiting, a pool that is to hold nothing holds nothing, and one that lacks something lacks the room for it.
func checkPools(t *rapid.T, s Snapshot) {
	for _, sh := range s.Shapes {
		if len(sh.Jobs) > 0 {
			return // somebody may wait for the room
		}
	}
	p := &pass{in: s, labels: newUniverse(s.Shapes)}
	p.loadScalers()
	p.loadAgents()
	held, seen := map[poolKey]int64{}, map[poolKey]bool{}
	for _, a := range s.Agents {
		if a.NodeID != "" && a.BoundJob == "" && a.Job == "" && a.State != ci.AgentEnding {
			held[poolKey{a.NodeID, a.Scaler, a.LabelSet}]++
		}
	}
	for i := range p.scalers {
		sc := &p.scalers[i]
		for j := range sc.LabelSets {
			set := &sc.LabelSets[j]
			key := poolKey{sc.NodeID, sc.Name, ci.LabelKey(set.Declared)}
			if seen[key] {
				continue // the first of equal sets has the pool
			}
			seen[key] = true
			n := held[key]
			_, full := sc.exceeded(set.Resources.Requests)
			switch {
			case (sc.Warm.Size == 0 || set.OnlyImages) && n > 0:
				t.Fatalf("%s of %s has no pool and holds %d", sc.Name, sc.NodeID, n)
			case !set.OnlyImages && sc.blocked == nil && !full && n+p.standIns(set) < sc.Warm.Size:
				t.Fatalf("%s of %s holds %d of %d although there is room", sc.Name, sc.NodeID, n, sc.Warm.Size)
			}
		}
	}
}
