package placement

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/kici-go/kici/internal/ci"
)

// Decide says what should happen next. Jobs are served oldest first over all shapes; a job that nothing can serve does not
// hold up younger ones. Idle connected agents come first, then launches where every cap has room, counted over live rows plus
// the launches of this pass. Decide is deterministic and linear in shapes.
//
// A job with a live agent bound to it gets no second launch (XS-20, XS-21). Whoever writes an Assign down also binds the
// agent to that job, so that an agent which takes over another job frees its old one for a new launch.
func Decide(s Snapshot) Decisions {
	p := &pass{in: s, labels: newUniverse(s.Shapes), near: map[string]string{}, held: map[holdersKey]heldBy{}}
	p.loadScalers()
	p.loadAgents()
	p.loadShapes()
	p.assignBound()
	p.serve()
	p.assignBooting()
	p.withdraw()
	p.keepWarm()
	p.explain()
	return p.out
}

type scalerKey struct{ node, name string }

// pass is the working state of one Decide.
type pass struct {
	in       Snapshot
	labels   universe
	nodes    []nodeState
	scalers  []scalerState
	scalerOf map[scalerKey]*scalerState
	sameName map[string]int // scalers of one name on several nodes need the node in sentences
	agents   []agentState
	idle     []*agentState // in order of preference
	bound    map[string]*agentState
	ended    map[string]bool
	shapes   []shapeState
	near     map[string]string
	held     map[holdersKey]heldBy
	out      Decisions
}

// agentState is an agent in this pass.
type agentState struct {
	*Agent
	offer
	idle  bool // connected, no work, not condemned
	taken bool // got a job in this pass
}

// shapeState is a shape in this pass. Its cursors only move forward: what is taken or full stays so within a pass.
type shapeState struct {
	*Shape
	demand
	idle       []*agentState
	targets    []target
	moved      []bool // per job: it has an agent, of its own or from this pass
	booting    []int  // jobs whose own agent cannot take them yet
	next       int    // first job not yet looked at
	nextIdle   int
	nextTarget int
	assigned   int
	launched   int
}

func (p *pass) loadAgents() {
	p.ended = make(map[string]bool, len(p.in.Ended))
	for _, id := range p.in.Ended {
		p.ended[id] = true
	}
	p.bound = map[string]*agentState{}
	p.agents = make([]agentState, len(p.in.Agents))
	for i := range p.in.Agents {
		a := &p.agents[i]
		a.Agent = &p.in.Agents[i]
		a.offer = p.labels.offer(a.Labels, a.Gate)
		a.idle = a.State == ci.AgentOnline && a.Connected && !a.Draining && a.Job == ""
		if !a.State.Live() || a.State == ci.AgentEnding {
			continue
		}
		if b := p.bound[a.BoundJob]; a.BoundJob != "" && (b == nil || !b.idle && a.idle) {
			p.bound[a.BoundJob] = a
		}
		// An agent bound to a job that still wants it is that job's alone.
		if a.idle && (a.BoundJob == "" || p.ended[a.BoundJob]) {
			p.idle = append(p.idle, a)
		}
	}
	// First those that would be withdrawn otherwise, then the least special ones, so that special ones stay free.
	slices.SortStableFunc(p.idle, func(a, b *agentState) int {
		return cmp.Or(cmp.Compare(freeRank(a), freeRank(b)), cmp.Compare(a.size, b.size), cmp.Compare(a.ID, b.ID))
	})
}

func freeRank(a *agentState) int {
	if a.BoundJob != "" {
		return 0
	}
	return 1
}

func (p *pass) loadShapes() {
	p.shapes = make([]shapeState, len(p.in.Shapes))
	for i := range p.in.Shapes {
		sh := &p.shapes[i]
		sh.Shape = &p.in.Shapes[i]
		sh.demand = p.labels.demand(sh.Shape)
		sh.moved = make([]bool, len(sh.Jobs))
		for _, a := range p.idle {
			if a.OrgID == sh.OrgID && sh.match(&a.offer) && suits(a.Agent, sh.Shape) {
				sh.idle = append(sh.idle, a)
			}
		}
		sh.targets = p.targets(sh)
	}
}

// assignBound gives every job its own agent where that is ready, and sets the jobs aside whose own agent is on its way.
func (p *pass) assignBound() {
	if len(p.bound) == 0 {
		return
	}
	for i := range p.shapes {
		sh := &p.shapes[i]
		for j := range sh.Jobs {
			a := p.bound[sh.Jobs[j].ID]
			switch {
			case a == nil:
				continue
			case a.idle && !a.taken && a.OrgID == sh.OrgID:
				p.assign(sh, j, a)
			default:
				sh.booting = append(sh.booting, j)
			}
			sh.moved[j] = true
		}
	}
}

func (p *pass) assign(sh *shapeState, job int, a *agentState) {
	a.taken = true
	sh.moved[job] = true
	sh.assigned++
	p.out.Assign = append(p.out.Assign, Assign{JobID: sh.Jobs[job].ID, RunID: sh.Jobs[job].RunID, OrgID: sh.OrgID, AgentID: a.ID})
}

// serve walks the jobs of all shapes, oldest first. A shape that nothing can serve any more leaves the walk.
func (p *pass) serve() {
	h := make(shapeHeap, 0, len(p.shapes))
	for i := range p.shapes {
		if sh := &p.shapes[i]; sh.skipMoved() {
			h = append(h, sh)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		sh := h[0]
		if !p.serveNext(sh) || !sh.skipMoved() {
			heap.Pop(&h)
			continue
		}
		heap.Fix(&h, 0)
	}
}

func (p *pass) serveNext(sh *shapeState) bool {
	if a := sh.takeIdle(); a != nil {
		p.assign(sh, sh.next, a)
		return true
	}
	t, ok := sh.takeRoom()
	if !ok {
		return false
	}
	j := sh.Jobs[sh.next]
	sh.moved[sh.next] = true
	sh.launched++
	t.scaler.take(t.claim.Requests)
	p.out.Launch = append(p.out.Launch, Launch{
		JobID: j.ID, RunID: j.RunID, OrgID: sh.OrgID,
		NodeID: t.scaler.NodeID, Scaler: t.scaler.Name, Type: t.scaler.Type, LabelSet: t.set, Claim: t.claim, Image: sh.Image,
	})
	return true
}

// assignBooting gives idle agents that nobody else wants to jobs whose own agent is still on its way; that agent is then
// withdrawn by a later pass, or serves another job.
func (p *pass) assignBooting() {
	type waiting struct {
		sh  *shapeState
		job int
	}
	var all []waiting
	for i := range p.shapes {
		if sh := &p.shapes[i]; sh.peekIdle() != nil {
			for _, j := range sh.booting {
				all = append(all, waiting{sh, j})
			}
		}
	}
	slices.SortFunc(all, func(a, b waiting) int { return compareJobs(a.sh.Jobs[a.job], b.sh.Jobs[b.job]) })
	for _, w := range all {
		if a := w.sh.takeIdle(); a != nil {
			p.assign(w.sh, w.job, a)
			w.sh.booting = slices.DeleteFunc(w.sh.booting, func(j int) bool { return j == w.job })
		}
	}
}

// Reasons of Withdraw beside ci's.
const reasonNodeLost = ci.GoneLost

// withdraw ends agents whose job no longer needs them, unless they got another in this pass, and gives up on agents that a lost
// node was to start, so that their jobs may go elsewhere.
func (p *pass) withdraw() {
	live := make(map[string]bool, len(p.nodes))
	for i := range p.nodes {
		live[p.nodes[i].ID] = p.nodes[i].Live
	}
	for i := range p.agents {
		a := &p.agents[i]
		if a.NodeID == "" || a.taken || a.Job != "" || a.BoundJob == "" {
			continue
		}
		switch {
		case a.State != ci.AgentOnline && !unborn(a.State):
		case p.ended[a.BoundJob]:
			p.out.Withdraw = append(p.out.Withdraw, Withdraw{a.ID, ci.GoneWithdrawn})
		case unborn(a.State) && !a.Connected && !live[a.NodeID]:
			p.out.Withdraw = append(p.out.Withdraw, Withdraw{a.ID, reasonNodeLost})
		}
	}
}

// unborn reports whether an agent in this state has not registered yet.
func unborn(s ci.AgentState) bool {
	return s == ci.AgentRequested || s == ci.AgentStarting || s == ci.AgentBooting
}

// skipMoved moves to the next job without an agent and reports whether there is one.
func (sh *shapeState) skipMoved() bool {
	for sh.next < len(sh.Jobs) && sh.moved[sh.next] {
		sh.next++
	}
	return sh.next < len(sh.Jobs)
}

func (sh *shapeState) peekIdle() *agentState {
	for sh.nextIdle < len(sh.idle) && sh.idle[sh.nextIdle].taken {
		sh.nextIdle++
	}
	if sh.nextIdle == len(sh.idle) {
		return nil
	}
	return sh.idle[sh.nextIdle]
}

func (sh *shapeState) takeIdle() *agentState {
	a := sh.peekIdle()
	if a != nil {
		sh.nextIdle++
	}
	return a
}

func (sh *shapeState) takeRoom() (target, bool) {
	for ; sh.nextTarget < len(sh.targets); sh.nextTarget++ {
		t := sh.targets[sh.nextTarget]
		if t.scaler.blocked != nil {
			continue
		}
		if _, full := t.scaler.exceeded(t.claim.Requests); !full {
			return t, true
		}
	}
	return target{}, false
}

// shapeHeap orders shapes by their next job.
type shapeHeap []*shapeState

func (h shapeHeap) Len() int { return len(h) }
func (h shapeHeap) Less(i, j int) bool {
	return compareJobs(h[i].Jobs[h[i].next], h[j].Jobs[h[j].next]) < 0
}
func (h shapeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *shapeHeap) Push(x any)   { *h = append(*h, x.(*shapeState)) }
func (h *shapeHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func compareJobs(a, b Job) int {
	return cmp.Or(cmp.Compare(a.QueuedAt, b.QueuedAt), cmp.Compare(a.ID, b.ID))
}
