package placement

import (
	"cmp"
	"slices"

	"github.com/kici-go/kici/internal/ci"
)

// nodeState is a node and what its live agents and the launches of this pass use.
type nodeState struct {
	*Node
	agents int64
	used   ci.Resources
}

// scalerState is a scaler and what its live agents and the launches of this pass use.
type scalerState struct {
	*Scaler
	node     *nodeState // nil when the snapshot does not know the node
	pool     *poolState // nil without a machine pool
	position int        // file order on its node
	agents   int64
	used     ci.Resources
	launched int64
	sets     []offer
	blocked  *Reason // why it takes nothing now whatever the job asks, nil when it is open
}

// poolState is a machine pool and what is used of it.
type poolState struct {
	MachinePool
	used ci.Resources // by the agents of this node and the launches of this pass
}

// span is whose agents a cap counts.
type span int

const (
	ofScaler span = iota
	ofPool        // of all scalers of the node in the machine pool
	ofNode        // of all scalers of the node
)

// limit is one cap that a launch would exceed.
type limit struct {
	name      string // maxAgents, resourceCap.cpu, …
	span      span
	used, max int64
	asks      int64
}

// tooLarge reports whether the claim can never fit.
func (l limit) tooLarge() bool { return l.asks > l.max }

// exceeded returns the first cap that one more agent with this claim would exceed, in the order of MG-6.
func (s *scalerState) exceeded(c ci.Resources) (limit, bool) {
	n, pool := s.node, poolState{}
	if s.pool != nil {
		pool = *s.pool
	}
	checks := [...]limit{
		{"globalMaxAgents", ofNode, n.agents, n.GlobalMaxAgents, 1},
		{"maxAgents", ofScaler, s.agents, s.MaxAgents, 1},
		{"resourceCap.cpu", ofScaler, s.used.CPUMilli, s.Cap.CPUMilli, c.CPUMilli},
		{"resourceCap.memory", ofScaler, s.used.MemBytes, s.Cap.MemBytes, c.MemBytes},
		{"globalResourceCap.cpu", ofNode, n.used.CPUMilli, n.GlobalCap.CPUMilli, c.CPUMilli},
		{"globalResourceCap.memory", ofNode, n.used.MemBytes, n.GlobalCap.MemBytes, c.MemBytes},
		{"machinePool.cpu", ofPool, pool.used.CPUMilli + pool.Others.CPUMilli, pool.Cap.CPUMilli, c.CPUMilli},
		{"machinePool.memory", ofPool, pool.used.MemBytes + pool.Others.MemBytes, pool.Cap.MemBytes, c.MemBytes},
	}
	found, any := limit{}, false
	for i, l := range checks {
		resource := i >= 2
		if resource && (l.max == 0 || l.asks == 0) || l.used+l.asks <= l.max {
			continue
		}
		if l.tooLarge() {
			return l, true // waiting does not help: say so first
		}
		if !any {
			found, any = l, true
		}
	}
	return found, any
}

// shares reports whether the agents of another scaler of the node, nil for one that is not known, count under a cap of this one.
func (s *scalerState) shares(other *scalerState, of span) bool {
	switch of {
	case ofNode:
		return true
	case ofPool:
		return other != nil && other.pool == s.pool
	}
	return other == s
}

// take counts one launch.
func (s *scalerState) take(c ci.Resources) {
	s.agents++
	s.launched++
	s.used = add(s.used, c)
	s.node.agents++
	s.node.used = add(s.node.used, c)
	if s.pool != nil {
		s.pool.used = add(s.pool.used, c)
	}
}

func add(a, b ci.Resources) ci.Resources {
	return ci.Resources{CPUMilli: a.CPUMilli + b.CPUMilli, MemBytes: a.MemBytes + b.MemBytes}
}

func (p *pass) loadScalers() {
	p.nodes = make([]nodeState, len(p.in.Nodes))
	byID := make(map[string]*nodeState, len(p.in.Nodes))
	for i := range p.in.Nodes {
		p.nodes[i].Node = &p.in.Nodes[i]
		byID[p.in.Nodes[i].ID] = &p.nodes[i]
	}
	p.scalers = make([]scalerState, len(p.in.Scalers))
	p.scalerOf = make(map[scalerKey]*scalerState, len(p.in.Scalers))
	p.sameName = map[string]int{}
	pools := map[scalerKey]*poolState{} // by node and name of the pool
	position, last := 0, ""
	for i := range p.in.Scalers {
		s := &p.scalers[i]
		s.Scaler = &p.in.Scalers[i]
		if s.NodeID != last {
			position, last = 0, s.NodeID
		}
		s.position, s.node = position, byID[s.NodeID]
		if s.Pool.Name != "" {
			key := scalerKey{s.NodeID, s.Pool.Name}
			if pools[key] == nil {
				pools[key] = &poolState{MachinePool: s.Pool}
			}
			s.pool = pools[key]
		}
		position++
		s.sets = make([]offer, len(s.LabelSets))
		for j := range s.LabelSets {
			s.sets[j] = p.labels.offer(s.LabelSets[j].Enriched, s.LabelSets[j].Gate)
		}
		p.scalerOf[scalerKey{s.NodeID, s.Name}] = s
		p.sameName[s.Name]++
	}
	p.countUse(byID)
	for i := range p.scalers {
		p.scalers[i].blocked = p.blockedReason(&p.scalers[i])
	}
}

// countUse bills every live row: until it is gone it counts (DESIGN §2).
func (p *pass) countUse(nodes map[string]*nodeState) {
	for i := range p.in.Agents {
		a := &p.in.Agents[i]
		if a.NodeID == "" || !a.State.Live() {
			continue
		}
		if n := nodes[a.NodeID]; n != nil {
			n.agents++
			n.used = add(n.used, a.Reserved)
		}
		if s := p.scalerOf[scalerKey{a.NodeID, a.Scaler}]; s != nil {
			s.agents++
			s.used = add(s.used, a.Reserved)
			if s.pool != nil {
				s.pool.used = add(s.pool.used, a.Reserved)
			}
		}
	}
}

// target is one label set that could be launched for a shape.
type target struct {
	scaler *scalerState
	set    int
	claim  ci.Claim // effective (SC-23)
}

// runs reports whether agents of a label set can be started in an image, ” for a job that names none.
func (s *scalerState) runs(set int, image string) bool {
	if image == "" {
		return !s.LabelSets[set].OnlyImages
	}
	return s.JobImages
}

// targets lists the label sets that match, best first: the smallest enriched set, then file order, then node id (D16). A shape
// without labels takes sets in file order (SC-12).
func (p *pass) targets(sh *shapeState) []target {
	var out []target
	for i := range p.scalers {
		s := &p.scalers[i]
		for j := range s.sets {
			if sh.match(&s.sets[j]) && s.runs(j, sh.Image) {
				out = append(out, target{s, j, sh.Claim.Or(s.LabelSets[j].Resources)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b target) int {
		if len(sh.Labels) > 0 {
			if c := cmp.Compare(a.scaler.sets[a.set].size, b.scaler.sets[b.set].size); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(a.scaler.position, b.scaler.position), cmp.Compare(a.set, b.set),
			cmp.Compare(a.scaler.NodeID, b.scaler.NodeID))
	})
	return out
}
