package placement

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/ci"
)

var someLabels = []string{"arm64", "docker", "gpu", "linux", "macos", "ssd"}

var somePatterns = []string{"*u*", "/^(linux|macos)$/", "arm*"}

// wishesGen draws what a job asks for: labels, and sometimes patterns of them.
func wishesGen(max int) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		from := rapid.SampledFrom(slices.Concat(someLabels, someLabels, somePatterns))
		return ci.NormalizeLabels(rapid.SliceOfN(from, 0, max).Draw(t, "wishes"))
	})
}

func labelsGen(max int) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		return ci.NormalizeLabels(rapid.SliceOfN(rapid.SampledFrom(someLabels), 0, max).Draw(t, "labels"))
	})
}

func amount(t *rapid.T, name string) ci.Resources {
	return ci.Resources{
		CPUMilli: rapid.SampledFrom([]int64{0, 0, 1000, 2000, 8000}).Draw(t, name), MemBytes: rapid.SampledFrom([]int64{0, 0, gib, 4 * gib}).Draw(t, name),
	}
}

// snapshots draws anything that a ledger could hold.
func snapshots(t *rapid.T) Snapshot {
	s := Snapshot{Now: 1000}
	orgs := rapid.SampledFrom([]string{"org", "org", "other"})
	for n := range rapid.IntRange(0, 3).Draw(t, "nodes") {
		node := Node{ID: fmt.Sprint("n", n), Live: rapid.IntRange(0, 5).Draw(t, "live") > 0, Draining: rapid.IntRange(0, 5).Draw(t, "drain") == 0}
		node.GlobalMaxAgents, node.GlobalCap = rapid.Int64Range(0, 8).Draw(t, "global"), amount(t, "global cap")
		s.Nodes = append(s.Nodes, node)
		for i := range rapid.IntRange(0, 3).Draw(t, "scalers") {
			sc := Scaler{
				NodeID: node.ID, Name: fmt.Sprint("s", i), Type: "fake", MaxAgents: rapid.Int64Range(0, 4).Draw(t, "max"), Cap: amount(t, "cap"),
				Retiring: rapid.IntRange(0, 8).Draw(t, "retiring") == 0, Ready: rapid.IntRange(0, 8).Draw(t, "ready") > 0,
				BackoffUntil: rapid.SampledFrom([]int64{0, 0, 0, 999, 2000}).Draw(t, "backoff"), JobImages: rapid.Bool().Draw(t, "job images"),
			}
			sc.Warm = WarmPool{Size: rapid.SampledFrom([]int64{0, 0, 0, 1, 2, 9}).Draw(t, "warm"), IdleMs: rapid.SampledFrom([]int64{0, 20_000}).Draw(t, "idle")}
			if rapid.IntRange(0, 3).Draw(t, "pooled") == 0 {
				sc.Pool = MachinePool{Name: "box", Cap: ci.Resources{CPUMilli: 6000}, Others: ci.Resources{CPUMilli: 1000}}
			}
			for range rapid.IntRange(0, 2).Draw(t, "sets") {
				labels := labelsGen(4).Draw(t, "set")
				set := LabelSet{Declared: labels, Enriched: labels, Resources: ci.Claim{Requests: amount(t, "set resources")}, OnlyImages: sc.JobImages && rapid.Bool().Draw(t, "only images")}
				if len(labels) > 0 && rapid.Bool().Draw(t, "gated") {
					set.Gate = labels[:1]
				}
				sc.LabelSets = append(sc.LabelSets, set)
			}
			s.Scalers = append(s.Scalers, sc)
		}
	}
	jobs := rapid.IntRange(0, 20).Draw(t, "jobs")
	states := []ci.AgentState{ci.AgentRequested, ci.AgentStarting, ci.AgentBooting, ci.AgentOnline, ci.AgentOnline, ci.AgentOnline, ci.AgentDraining, ci.AgentEnding}
	bound := map[string]bool{}
	for i := range rapid.IntRange(0, 12).Draw(t, "agents") {
		a := Agent{ID: fmt.Sprintf("a%02d", i), OrgID: orgs.Draw(t, "org"), State: rapid.SampledFrom(states).Draw(t, "state"), Labels: labelsGen(5).Draw(t, "agent labels")}
		a.Connected = a.State == ci.AgentOnline && rapid.IntRange(0, 4).Draw(t, "connected") > 0
		a.Draining = rapid.IntRange(0, 8).Draw(t, "draining") == 0
		a.Reserved = amount(t, "reserved")
		if len(a.Labels) > 0 && rapid.IntRange(0, 3).Draw(t, "gated") == 0 {
			a.Gate = a.Labels[:1]
		}
		if len(s.Scalers) > 0 && rapid.Bool().Draw(t, "managed") {
			sc := rapid.SampledFrom(s.Scalers).Draw(t, "scaler")
			a.NodeID, a.Scaler, a.Type = sc.NodeID, sc.Name, sc.Type
			a.Image = imageOf(t, sc.JobImages)
			a.BoundJob = fmt.Sprintf("j%02d", rapid.IntRange(0, jobs+3).Draw(t, "bound"))
			if a.State != ci.AgentEnding && bound[a.BoundJob] {
				a.BoundJob = ""
			}
			bound[a.BoundJob] = bound[a.BoundJob] || a.State != ci.AgentEnding
			if len(sc.LabelSets) > 0 {
				a.LabelSet = ci.LabelKey(rapid.SampledFrom(sc.LabelSets).Draw(t, "label set").Declared)
			}
		}
		if a.State == ci.AgentOnline && rapid.IntRange(0, 2).Draw(t, "busy") == 0 {
			a.Job, a.Holder = "working-"+a.ID, "acme/site #1"
		}
		s.Agents = append(s.Agents, a)
	}
	for j := jobs; j < jobs+4; j++ { // beyond the queue: ended
		s.Ended = append(s.Ended, fmt.Sprintf("j%02d", j))
	}
	shapes := rapid.IntRange(1, 4).Draw(t, "shapes")
	for k := range shapes {
		sh := Shape{Key: fmt.Sprint("k", k), OrgID: orgs.Draw(t, "shape org"), Labels: wishesGen(2).Draw(t, "want"), Exclude: wishesGen(1).Draw(t, "exclude"), Claim: ci.Claim{Requests: amount(t, "claim")}}
		sh.Image = imageOf(t, true)
		for j := k; j < jobs; j += shapes {
			sh.Jobs = append(sh.Jobs, Job{ID: fmt.Sprintf("j%02d", j), RunID: "r", QueuedAt: rapid.Int64Range(0, 5).Draw(t, "queued")})
		}
		slices.SortFunc(sh.Jobs, compareJobs)
		sh.Total = len(sh.Jobs) + rapid.IntRange(0, 2).Draw(t, "beyond")
		s.Shapes = append(s.Shapes, sh)
	}
	return s
}

// imageOf draws the image of a job, or of an agent of a scaler that runs them: mostly none.
func imageOf(t *rapid.T, may bool) string {
	if !may {
		return ""
	}
	return rapid.SampledFrom([]string{"", "", "", "go", "node"}).Draw(t, "image")
}

func TestNothingDecidedBreaksARule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		d := Decide(s)
		checkInvariants(rapidTB{t: t}, s, d)
		if again := Decide(s); !reflect.DeepEqual(d, again) {
			t.Fatalf("not deterministic:\n%+v\n%+v", d, again)
		}
	})
}

// What is left waiting could not be served by what is left free: no agent that fits is idle and no scaler that fits has room.
func TestNobodyWaitsForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		d := Decide(s)
		if slices.ContainsFunc(d.Withdraw, func(w Withdraw) bool { return w.Reason == ci.GoneLost }) {
			t.Skip("a launch that a lost node had frees its job for the next pass")
		}
		after := apply(s, d)
		for i := range after.Shapes {
			after.Shapes[i].Total = len(after.Shapes[i].Jobs)
		}
		if again := Decide(after); len(again.Assign)+len(again.Launch) > 0 {
			t.Fatalf("the second pass moves %+v", again)
		}
	})
}

func setOf(s Snapshot, l Launch) (LabelSet, bool) {
	for _, sc := range s.Scalers {
		if sc.NodeID == l.NodeID && sc.Name == l.Scaler {
			return sc.LabelSets[l.LabelSet], true
		}
	}
	return LabelSet{}, false
}

// apply writes decisions down as dispatch does.
func apply(s Snapshot, d Decisions) Snapshot {
	s.Agents = slices.Clone(s.Agents)
	done := map[string]bool{}
	for _, a := range d.Assign {
		done[a.JobID] = true
		for i := range s.Agents {
			if s.Agents[i].ID == a.AgentID {
				s.Agents[i].Job = a.JobID
				if s.Agents[i].NodeID != "" {
					s.Agents[i].BoundJob = a.JobID
				}
			} else if s.Agents[i].BoundJob == a.JobID {
				s.Ended = append(slices.Clone(s.Ended), a.JobID)
			}
		}
	}
	for i, l := range d.Launch {
		set, _ := setOf(s, l)
		s.Agents = append(s.Agents, Agent{
			ID: fmt.Sprint("new-", l.JobID, i), OrgID: l.OrgID, NodeID: l.NodeID, Scaler: l.Scaler, Type: l.Type, State: ci.AgentRequested, BoundJob: l.JobID, Reserved: l.Claim.Requests,
			Labels: set.Enriched, Gate: set.Gate, LabelSet: ci.LabelKey(set.Declared), Image: l.Image,
		})
	}
	for _, w := range d.Withdraw {
		for i := range s.Agents {
			if s.Agents[i].ID == w.AgentID {
				s.Agents[i].State, s.Agents[i].BoundJob = ci.AgentEnding, ""
			}
		}
	}
	s.Shapes = slices.Clone(s.Shapes)
	for i := range s.Shapes {
		s.Shapes[i].Jobs = slices.DeleteFunc(slices.Clone(s.Shapes[i].Jobs), func(j Job) bool { return done[j.ID] })
	}
	return s
}

// rapidTB lets the checks of table tests serve property tests.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Helper()                   {}
func (r rapidTB) Errorf(f string, a ...any) { r.t.Errorf(f, a...) }
func (r rapidTB) Fatalf(f string, a ...any) { r.t.Fatalf(f, a...) }
