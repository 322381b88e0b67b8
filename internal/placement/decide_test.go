package placement

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

const gib = 1 << 30

// world builds snapshots for tests: one organisation, one node "n1" named build-1 with room for 50 agents.
type world struct{ Snapshot }

func newWorld() *world {
	return &world{Snapshot{
		Now:   1_700_000_000_000,
		Nodes: []Node{{ID: "n1", Name: "build-1", Live: true, GlobalMaxAgents: 50}},
	}}
}

func (w *world) scaler(name string, max int64, labels ...string) *Scaler {
	set := ci.NormalizeLabels(labels)
	w.Scalers = append(w.Scalers, Scaler{
		NodeID: "n1", Name: name, Type: "bare-metal", MaxAgents: max, Ready: true,
		LabelSets: []LabelSet{{Declared: set, Enriched: ci.NormalizeLabels(append([]string{"kici:os:linux", "kici:scaler:" + name}, set...))}},
	})
	return &w.Scalers[len(w.Scalers)-1]
}

func (w *world) static(id string, labels ...string) *Agent {
	w.Agents = append(w.Agents, Agent{ID: id, OrgID: "org", Type: "static", State: ci.AgentOnline, Connected: true, Labels: ci.NormalizeLabels(labels)})
	return &w.Agents[len(w.Agents)-1]
}

func (w *world) managed(id, scaler string, state ci.AgentState, bound string) *Agent {
	w.Agents = append(w.Agents, Agent{
		ID: id, OrgID: "org", NodeID: "n1", Scaler: scaler, Type: "bare-metal", State: state, BoundJob: bound, Connected: state == ci.AgentOnline,
		Labels: []string{"kici:os:linux", "kici:scaler:" + scaler, "linux"},
	})
	return &w.Agents[len(w.Agents)-1]
}

// jobs queues jobs of a new shape, one a second, from the given second on.
func (w *world) jobs(key string, at int64, ids []string, labels ...string) *Shape {
	sh := Shape{Key: key, OrgID: "org", Labels: ci.NormalizeLabels(labels), Total: len(ids)}
	for i, id := range ids {
		sh.Jobs = append(sh.Jobs, Job{ID: id, RunID: "run-" + id, QueuedAt: at + int64(i)})
	}
	w.Shapes = append(w.Shapes, sh)
	return &w.Shapes[len(w.Shapes)-1]
}

func (w *world) decide() Decisions { return Decide(w.Snapshot) }

// moves renders what was decided: "j1→agent", "j2⇒scaler", "agent✕reason".
func moves(d Decisions) string {
	var out []string
	for _, a := range d.Assign {
		out = append(out, a.JobID+"→"+a.AgentID)
	}
	for _, l := range d.Launch {
		out = append(out, l.JobID+"⇒"+l.Scaler)
	}
	for _, w := range d.Withdraw {
		out = append(out, w.AgentID+"✕"+w.Reason)
	}
	return strings.Join(out, " ")
}

func ids(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}

func TestDecide(t *testing.T) {
	cases := []struct {
		name string
		set  func(*world)
		want string
	}{
		{"idle agent first", func(w *world) {
			w.static("s1", "linux")
			w.scaler("vm", 4, "linux")
			w.jobs("a", 1, ids("j", 2), "linux")
		}, "j00→s1 j01⇒vm"},
		{"exact labels only", func(w *world) {
			w.static("s1", "linux-x")
			w.jobs("a", 1, ids("j", 1), "linux")
		}, ""},
		{"gate keeps others out", func(w *world) {
			w.static("s1", "linux", "gpu").Gate = []string{"gpu"}
			w.jobs("a", 1, ids("j", 1), "linux")
			w.jobs("b", 2, ids("k", 1), "linux", "gpu")
		}, "k00→s1"},
		{"excluded label", func(w *world) {
			w.static("s1", "linux", "old")
			w.jobs("a", 1, ids("j", 1), "linux").Exclude = []string{"old"}
		}, ""},
		{"MG-53 a job's own image: only a new agent of who runs images, or one of the same image", func(w *world) {
			w.static("s1", "linux")
			w.managed("a1", "box", ci.AgentOnline, "").Image = "go:1.26"
			w.managed("a2", "box", ci.AgentOnline, "").Image = "go:1.25"
			w.scaler("vm", 4, "linux")
			w.scaler("box", 4, "linux").JobImages = true
			w.jobs("a", 1, ids("j", 2), "linux").Image = "go:1.26"
		}, "j00→a1 j01⇒box a2✕idle"},
		{"an agent of an image takes no job without", func(w *world) {
			w.managed("a1", "box", ci.AgentOnline, "").Image = "go:1.26"
			w.jobs("a", 1, ids("j", 1), "linux")
		}, ""},
		{"SC-12 without labels, with an image", func(w *world) {
			w.scaler("vm", 4, "linux")
			w.scaler("box", 4, "linux").JobImages = true
			w.jobs("a", 1, ids("j", 1)).Image = "go:1.26"
		}, "j00⇒box"},
		{"BM-2 a set for jobs with an image takes no other", func(w *world) {
			s := w.scaler("box", 4, "linux")
			s.JobImages, s.LabelSets[0].OnlyImages = true, true
			w.jobs("a", 1, ids("j", 1), "linux")
			w.jobs("b", 2, ids("k", 1), "linux").Image = "go:1.26"
		}, "k00⇒box"},
		{"BM-1 the same labels with an image and without", func(w *world) {
			w.scaler("vm", 4, "linux")
			s := w.scaler("box", 4, "linux")
			s.JobImages, s.LabelSets[0].OnlyImages = true, true
			w.jobs("a", 1, ids("j", 6), "linux")
			w.jobs("b", 2, ids("k", 1), "linux").Image = "go:1.26"
		}, "j00⇒vm j01⇒vm k00⇒box j02⇒vm j03⇒vm"},
		{"a machine pool is shared by scalers and other servers", func(w *world) {
			pool := MachinePool{Name: "box", Cap: ci.Resources{CPUMilli: 4000}, Others: ci.Resources{CPUMilli: 1000}}
			w.scaler("vm", 9, "linux").Pool = pool
			w.scaler("gpu", 9, "gpu").Pool = pool
			w.jobs("a", 1, ids("j", 2), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 1000}}
			w.jobs("b", 3, ids("k", 2), "gpu").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 1000}}
		}, "j00⇒vm j01⇒vm k00⇒gpu"},
		{"a warm agent ends for the room that it takes of a machine pool", func(w *world) {
			pool := MachinePool{Name: "box", Cap: ci.Resources{CPUMilli: 1000}}
			vm := w.scaler("vm", 9, "linux")
			vm.Pool, vm.Warm = pool, WarmPool{Size: 1, IdleMs: 1}
			w.scaler("gpu", 9, "gpu").Pool = pool
			a := w.managed("a1", "vm", ci.AgentOnline, "")
			a.Reserved, a.LabelSet = ci.Resources{CPUMilli: 1000}, "linux"
			w.jobs("b", 3, ids("k", 1), "gpu").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 1000}}
		}, "a1✕made-room"},
		{"QUE-5 patterns of labels", func(w *world) {
			w.static("s1", "linux", "gpu-a100")
			w.static("s2", "linux", "zone-c")
			w.jobs("a", 1, ids("j", 2), "linux", "gpu-*")
			w.jobs("b", 2, ids("k", 2), "/^zone-[bc]$/")
		}, "j00→s1 k00→s2"},
		{"QUE-5 an excluded pattern", func(w *world) {
			w.static("s1", "linux", "spot-1")
			w.static("s2", "linux")
			w.jobs("a", 1, ids("j", 2), "linux").Exclude = []string{"spot-*"}
		}, "j00→s2"},
		{"QUE-5 a pattern and a scaler", func(w *world) {
			w.scaler("plain", 4, "linux")
			w.scaler("gpu", 4, "linux", "gpu-t4")
			w.jobs("a", 1, ids("j", 1), "/gpu-.4/")
		}, "j00⇒gpu"},
		{"a pattern does not open a gate", func(w *world) {
			w.static("s1", "linux", "gpu").Gate = []string{"gpu"}
			w.jobs("a", 1, ids("j", 1), "linux", "g*")
		}, ""},
		{"a pattern that cannot be read matches nothing", func(w *world) {
			w.static("s1", "linux")
			w.jobs("a", 1, ids("j", 1), "/(/")
		}, ""},
		{"other organisation", func(w *world) {
			w.static("s1", "linux").OrgID = "else"
			w.jobs("a", 1, ids("j", 1), "linux")
		}, ""},
		{"busy, draining and disconnected agents take nothing", func(w *world) {
			w.static("s1", "linux").Job = "x"
			w.static("s2", "linux").Draining = true
			w.static("s3", "linux").Connected = false
			w.jobs("a", 1, ids("j", 3), "linux")
		}, ""},
		{"special agents stay free", func(w *world) {
			w.static("a-special", "gpu", "linux", "ssd")
			w.static("b-plain", "linux")
			w.jobs("a", 1, ids("j", 1), "linux")
		}, "j00→b-plain"},
		{"oldest first over shapes", func(w *world) {
			w.static("s1", "linux", "gpu")
			w.jobs("a", 5, ids("j", 1), "linux")
			w.jobs("b", 2, ids("k", 1), "gpu")
		}, "k00→s1"},
		{"XS-41 an unserviceable head starves nobody", func(w *world) {
			w.scaler("vm", 2, "linux")
			w.jobs("a", 1, ids("j", 20), "windows")
			w.jobs("b", 100, ids("k", 1), "linux")
		}, "k00⇒vm"},
		{"smallest matching set, then file order", func(w *world) {
			w.scaler("big", 1, "linux", "docker", "gpu")
			w.scaler("small", 1, "linux")
			w.scaler("small-too", 1, "linux")
			w.jobs("a", 1, ids("j", 4), "linux")
		}, "j00⇒small j01⇒small-too j02⇒big"},
		{"SC-12 no labels: file order, open gate", func(w *world) {
			w.scaler("gated", 1, "x").LabelSets[0].Gate = []string{"x"}
			w.scaler("big", 1, "linux", "docker")
			w.scaler("small", 1, "linux")
			w.jobs("a", 1, ids("j", 3))
		}, "j00⇒big j01⇒small"},
		{"SC-12 no labels: exclusions apply", func(w *world) {
			w.scaler("old", 1, "old")
			w.scaler("new", 1, "new")
			w.jobs("a", 1, ids("j", 1)).Exclude = []string{"old"}
		}, "j00⇒new"},
		{"maxAgents counts live rows", func(w *world) {
			w.scaler("vm", 3, "linux")
			w.managed("m1", "vm", ci.AgentEnding, "gone")
			w.managed("m2", "vm", ci.AgentRequested, "other")
			w.jobs("a", 1, ids("j", 3), "linux")
		}, "j00⇒vm"},
		{"globalMaxAgents over all scalers", func(w *world) {
			w.Nodes[0].GlobalMaxAgents = 2
			w.scaler("a", 2, "linux")
			w.scaler("b", 2, "linux")
			w.managed("m1", "b", ci.AgentBooting, "other")
			w.jobs("a", 1, ids("j", 3), "linux")
		}, "j00⇒a"},
		{"cpu cap counts this pass", func(w *world) {
			w.scaler("vm", 9, "linux").Cap = ci.Resources{CPUMilli: 5000}
			w.jobs("a", 1, ids("j", 4), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 2000}}
		}, "j00⇒vm j01⇒vm"},
		{"a smaller job still fits", func(w *world) {
			w.scaler("vm", 9, "linux").Cap = ci.Resources{CPUMilli: 5000}
			w.jobs("a", 1, ids("j", 4), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 2000}}
			w.jobs("b", 9, ids("k", 2), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 1000}}
		}, "j00⇒vm j01⇒vm k00⇒vm"},
		{"memory cap of the node", func(w *world) {
			w.Nodes[0].GlobalCap = ci.Resources{MemBytes: 3 * gib}
			w.scaler("vm", 9, "linux").LabelSets[0].Resources = ci.Claim{Requests: ci.Resources{MemBytes: 2 * gib}}
			w.jobs("a", 1, ids("j", 2), "linux")
		}, "j00⇒vm"},
		{"XS-20 one launch for a job", func(w *world) {
			w.scaler("vm", 9, "linux")
			w.managed("m1", "vm", ci.AgentRequested, "j00")
			w.managed("m2", "vm", ci.AgentBooting, "j01")
			w.jobs("a", 1, ids("j", 3), "linux")
		}, "j02⇒vm"},
		{"a bound agent that ends counts no more", func(w *world) {
			w.scaler("vm", 9, "linux")
			w.managed("m1", "vm", ci.AgentEnding, "j00")
			w.jobs("a", 1, ids("j", 1), "linux")
		}, "j00⇒vm"},
		{"bound agent gets its own job, whatever is older", func(w *world) {
			w.managed("m1", "vm", ci.AgentOnline, "k00")
			w.jobs("a", 1, ids("j", 1), "linux")
			w.jobs("b", 5, ids("k", 1), "linux")
		}, "k00→m1"},
		{"a disconnected bound agent blocks a second launch", func(w *world) {
			w.scaler("vm", 9, "linux")
			w.managed("m1", "vm", ci.AgentOnline, "j00").Connected = false
			w.jobs("a", 1, ids("j", 1), "linux")
		}, ""},
		{"a job that boots leaves the idle agent to one that has none", func(w *world) {
			w.managed("m1", "vm", ci.AgentBooting, "j00")
			w.static("s1", "linux")
			w.jobs("a", 1, ids("j", 2), "linux")
		}, "j01→s1"},
		{"… and takes it when nobody else wants it", func(w *world) {
			w.managed("m1", "vm", ci.AgentBooting, "j00")
			w.static("s1", "linux")
			w.jobs("a", 1, ids("j", 1), "linux")
		}, "j00→s1"},
		{"job ended: its agent is withdrawn", func(w *world) {
			w.managed("m1", "vm", ci.AgentBooting, "old")
			w.managed("m2", "vm", ci.AgentOnline, "old2")
			w.managed("m3", "vm", ci.AgentEnding, "old3")
			w.managed("m4", "vm", ci.AgentOnline, "old4").Job = "works"
			w.Ended = []string{"old", "old2", "old3", "old4"}
		}, "m1✕withdrawn m2✕withdrawn"},
		{"XS-71 a job whose state is not known keeps its agents", func(w *world) {
			w.managed("m1", "vm", ci.AgentBooting, "unknown")
			w.managed("m2", "vm", ci.AgentOnline, "unknown2")
		}, ""},
		{"… unless it can serve another", func(w *world) {
			w.managed("m2", "vm", ci.AgentOnline, "old2")
			w.static("a-static", "linux")
			w.Ended = []string{"old2"}
			w.jobs("a", 1, ids("j", 1), "linux")
		}, "j00→m2"},
		{"MG-53 … of its own shape", func(w *world) {
			w.managed("m2", "vm", ci.AgentOnline, "old2").Reserved = ci.Resources{CPUMilli: 1000}
			w.Ended = []string{"old2"}
			w.jobs("a", 1, ids("j", 1), "linux").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 4000}}
		}, "m2✕withdrawn"},
		{"launches on a lost node are given up", func(w *world) {
			w.Nodes[0].Live = false
			w.scaler("vm", 9, "linux")
			w.managed("m1", "vm", ci.AgentRequested, "j00")
			w.managed("m2", "vm", ci.AgentOnline, "x").Job = "x"
			w.jobs("a", 1, ids("j", 1), "linux")
		}, "m1✕lost"},
		{"retiring, not ready, backing off, draining and lost take nothing", func(w *world) {
			w.scaler("a", 1, "linux").Retiring = true
			w.scaler("b", 1, "linux").Ready = false
			w.scaler("c", 1, "linux").BackoffUntil = w.Now + 1
			w.scaler("ok", 1, "linux").BackoffUntil = w.Now
			w.jobs("a", 1, ids("j", 2), "linux")
		}, "j00⇒ok"},
		{"draining node", func(w *world) {
			w.Nodes[0].Draining = true
			w.scaler("a", 1, "linux")
			w.jobs("a", 1, ids("j", 1), "linux")
		}, ""},
		{"same name on two nodes: node id decides", func(w *world) {
			w.Nodes = append(w.Nodes, Node{ID: "n2", Name: "build-2", Live: true, GlobalMaxAgents: 9})
			w.scaler("vm", 1, "linux")
			w.scaler("vm", 1, "linux").NodeID = "n2"
			w.jobs("a", 1, ids("j", 3), "linux")
		}, "j00⇒vm j01⇒vm"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.set(w)
			d := w.decide()
			if got := moves(d); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			checkInvariants(t, w.Snapshot, d)
		})
	}
}

func TestLaunchCarriesWhatTheRowNeeds(t *testing.T) {
	w := newWorld()
	s := w.scaler("vm", 4, "linux")
	s.LabelSets = append(s.LabelSets, LabelSet{Enriched: []string{"gpu", "linux"}, Resources: ci.Claim{
		Requests: ci.Resources{CPUMilli: 1000, MemBytes: gib}, Limits: ci.Resources{CPUMilli: 2000},
	}})
	w.jobs("a", 1, ids("j", 1), "gpu").Claim = ci.Claim{Requests: ci.Resources{CPUMilli: 500}}
	want := []Launch{{
		JobID: "j00", RunID: "run-j00", OrgID: "org", NodeID: "n1", Scaler: "vm", Type: "bare-metal", LabelSet: 1,
		Claim: ci.Claim{Requests: ci.Resources{CPUMilli: 500, MemBytes: gib}, Limits: ci.Resources{CPUMilli: 2000}},
	}}
	if got := w.decide().Launch; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// checkInvariants holds for every snapshot.
func checkInvariants(t testing.TB, s Snapshot, d Decisions) {
	t.Helper()
	agents, jobs := map[string]*Agent{}, map[string]*Shape{}
	for i := range s.Agents {
		agents[s.Agents[i].ID] = &s.Agents[i]
	}
	for i := range s.Shapes {
		for _, j := range s.Shapes[i].Jobs {
			jobs[j.ID] = &s.Shapes[i]
		}
	}
	served, used := map[string]bool{}, map[string]bool{}
	serve := func(job string) {
		if served[job] || jobs[job] == nil {
			t.Errorf("job %s is served twice or was never queued", job)
		}
		served[job] = true
	}
	for _, a := range d.Assign {
		serve(a.JobID)
		g, sh := agents[a.AgentID], jobs[a.JobID]
		if used[a.AgentID] || g == nil || g.State != ci.AgentOnline || !g.Connected || g.Draining || g.Job != "" || g.OrgID != sh.OrgID {
			t.Fatalf("agent %s is not free for %s", a.AgentID, a.JobID)
		}
		used[a.AgentID] = true
		if g.BoundJob != a.JobID && (!fits(sh, g.Labels, g.Gate) || g.Image != sh.Image) {
			t.Errorf("agent %s does not fit %s", a.AgentID, a.JobID)
		}
		if g.BoundJob != "" && g.BoundJob != a.JobID {
			ended := false
			for _, e := range s.Ended {
				ended = ended || e == g.BoundJob
			}
			if !ended {
				t.Errorf("agent %s was taken from its own job", a.AgentID)
			}
		}
	}
	for _, w := range d.Withdraw {
		if used[w.AgentID] || agents[w.AgentID].Job != "" {
			t.Errorf("agent %s is withdrawn with work", w.AgentID)
		}
		used[w.AgentID] = true
	}
	checkCaps(t, s, d, serve, jobs)
	checkReasons(t, s, d)
}

func fits(sh *Shape, have, gate []string) bool {
	has := func(element string) bool {
		if slices.Contains(have, element) {
			return true
		}
		matches, err := ci.CompileLabelPattern(element)
		return ci.IsLabelPattern(element) && err == nil && slices.ContainsFunc(have, matches)
	}
	for _, l := range sh.Labels {
		if !has(l) {
			return false
		}
	}
	for _, g := range gate {
		if !slices.Contains(sh.Labels, g) {
			return false
		}
	}
	return !slices.ContainsFunc(sh.Exclude, has)
}

func checkCaps(t testing.TB, s Snapshot, d Decisions, serve func(string), jobs map[string]*Shape) {
	t.Helper()
	type use struct {
		agents int64
		ci.Resources
	}
	before, after := map[string]use{}, map[string]use{}
	bill := func(m map[string]use, key string, r ci.Resources) {
		u := m[key]
		u.agents++
		u.Resources = add(u.Resources, r)
		m[key] = u
	}
	bound := map[string]bool{}
	for _, a := range s.Agents {
		if a.State.Live() && a.State != ci.AgentEnding {
			bound[a.BoundJob] = true
		}
		if a.State.Live() && a.NodeID != "" {
			for _, m := range []map[string]use{before, after} {
				bill(m, a.NodeID, a.Reserved)
				bill(m, a.NodeID+"/"+a.Scaler, a.Reserved)
			}
		}
	}
	for _, l := range d.Launch {
		for _, sc := range s.Scalers {
			if sh := jobs[l.JobID]; sc.NodeID == l.NodeID && sc.Name == l.Scaler && (sh != nil && sh.Image != l.Image || l.Image != "" && !sc.JobImages || l.Image == "" && sc.LabelSets[l.LabelSet].OnlyImages) {
				t.Errorf("%s is to start the image %q for job %q", l.Scaler, l.Image, l.JobID)
			}
		}
		if l.JobID == "" {
			for _, sc := range s.Scalers {
				if sc.NodeID == l.NodeID && sc.Name == l.Scaler && (sc.Warm.Size == 0 || sc.Retiring || !sc.Ready || sc.BackoffUntil > s.Now) {
					t.Errorf("an agent is started in advance on %s", l.Scaler)
				}
			}
			bill(after, l.NodeID, l.Claim.Requests)
			bill(after, l.NodeID+"/"+l.Scaler, l.Claim.Requests)
			continue
		}
		serve(l.JobID)
		if bound[l.JobID] {
			t.Errorf("second launch for %s", l.JobID)
		}
		for _, sc := range s.Scalers {
			if sc.NodeID == l.NodeID && sc.Name == l.Scaler {
				set := sc.LabelSets[l.LabelSet]
				if !fits(jobs[l.JobID], set.Enriched, set.Gate) || sc.Retiring || !sc.Ready || sc.BackoffUntil > s.Now {
					t.Errorf("%s cannot be launched on %s", l.JobID, l.Scaler)
				}
			}
		}
		bill(after, l.NodeID, l.Claim.Requests)
		bill(after, l.NodeID+"/"+l.Scaler, l.Claim.Requests)
	}
	check := func(key string, max int64, cap ci.Resources) {
		a, b := after[key], before[key]
		if a.agents > max && a.agents > b.agents || cap.CPUMilli > 0 && a.CPUMilli > cap.CPUMilli && a.CPUMilli > b.CPUMilli ||
			cap.MemBytes > 0 && a.MemBytes > cap.MemBytes && a.MemBytes > b.MemBytes {
			t.Errorf("%s: %+v exceeds %d, %+v", key, a, max, cap)
		}
	}
	for _, n := range s.Nodes {
		check(n.ID, n.GlobalMaxAgents, n.GlobalCap)
		if after[n.ID].agents > before[n.ID].agents && (!n.Live || n.Draining) {
			t.Errorf("launch on node %s", n.ID)
		}
	}
	pools := map[string]*[2]int64{} // before and after
	for _, sc := range s.Scalers {
		check(sc.NodeID+"/"+sc.Name, sc.MaxAgents, sc.Cap)
		if sc.Pool.Name != "" {
			key := sc.NodeID + "/" + sc.Pool.Name
			if pools[key] == nil {
				pools[key] = &[2]int64{}
			}
			pools[key][0] += before[sc.NodeID+"/"+sc.Name].CPUMilli
			pools[key][1] += after[sc.NodeID+"/"+sc.Name].CPUMilli
		}
	}
	for _, sc := range s.Scalers {
		if p := pools[sc.NodeID+"/"+sc.Pool.Name]; sc.Pool.Name != "" && p[1] > p[0] && p[1]+sc.Pool.Others.CPUMilli > sc.Pool.Cap.CPUMilli {
			t.Errorf("machine pool of %s: %d went to %d of %d", sc.Name, p[0], p[1], sc.Pool.Cap.CPUMilli)
		}
	}
}

func checkReasons(t testing.TB, s Snapshot, d Decisions) {
	t.Helper()
	if len(d.Reasons) != len(s.Shapes) {
		t.Fatalf("%d reasons for %d shapes", len(d.Reasons), len(s.Shapes))
	}
	for i, r := range d.Reasons {
		if r.Shape != s.Shapes[i].Key {
			t.Fatalf("reason %d is about %s", i, r.Shape)
		}
		if r.Waiting < 0 {
			t.Errorf("shape %s: %d wait", r.Shape, r.Waiting)
		}
		if r.Waiting > 0 && len(r.Reasons) == 0 {
			t.Errorf("shape %s waits silently", r.Shape)
		}
		if len(r.Reasons) > maxScalerReasons+2*maxAgentReasons+40 {
			t.Errorf("shape %s: %d reasons", r.Shape, len(r.Reasons))
		}
		for _, reason := range r.Reasons {
			if reason.Kind == "" || reason.Text == "" {
				t.Errorf("empty reason %+v", reason)
			}
		}
	}
}
