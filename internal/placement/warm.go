package placement

import (
	"cmp"
	"slices"

	"github.com/kici-go/kici/internal/ci"
)

// WarmPool keeps agents of each label set of a scaler running in advance. The zero value is none.
type WarmPool struct {
	Size   int64 `json:"size"`   // of each label set
	IdleMs int64 `json:"idleMs"` // what is more than Size is ended when it has been idle for so long
}

// poolKey is one pool: a label set of a scaler (WP-1).
type poolKey struct{ node, scaler, set string }

// keepWarm looks after the warm pools when jobs have been served: it makes room where a job waits for it, ends what is surplus, and
// starts what is missing. An agent that got a job in this pass, or is on its way for one, is no part of a pool.
func (p *pass) keepWarm() {
	pools := map[poolKey][]*agentState{}
	for i := range p.agents {
		if a := &p.agents[i]; a.NodeID != "" && a.BoundJob == "" && a.Job == "" && !a.taken && a.State.Live() && a.State != ci.AgentEnding {
			key := poolKey{a.NodeID, a.Scaler, a.LabelSet}
			pools[key] = append(pools[key], a)
		}
	}
	crowded := p.makeRoom(pools)
	kept := map[poolKey]bool{}
	for i := range p.scalers {
		s := &p.scalers[i]
		for j := range s.LabelSets {
			key := poolKey{s.NodeID, s.Name, ci.LabelKey(s.LabelSets[j].Declared)}
			if kept[key] {
				continue // the first of equal sets has the pool (CF-7)
			}
			pool := pools[key]
			kept[key] = true
			delete(pools, key)
			size := s.Warm.Size
			if s.Retiring || s.LabelSets[j].OnlyImages { // which image it would be, nobody knows yet
				size = 0
			}
			p.trim(pool, size, s.Warm.IdleMs)
			if size > 0 && s.blocked == nil && !crowded[s.NodeID] {
				p.fill(s, j, size-int64(len(pool))-p.standIns(&s.LabelSets[j]))
			}
		}
	}
	for _, key := range sortedPools(pools) { // of sets that are no longer offered (WP-8)
		if s := p.scalerOf[scalerKey{key.node, key.scaler}]; s != nil {
			p.trim(pools[key], 0, 0)
		}
	}
}

func sortedPools(pools map[poolKey][]*agentState) []poolKey {
	var keys []poolKey
	for k := range pools {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b poolKey) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.scaler, b.scaler), cmp.Compare(a.set, b.set))
	})
	return keys
}

// makeRoom ends warm agents that nobody wanted in this pass where jobs wait for the room that they take: one that runs in advance must
// not keep a job from running. It returns the nodes on which jobs wait so; nothing is started there in advance.
func (p *pass) makeRoom(pools map[poolKey][]*agentState) (crowded map[string]bool) {
	crowded = map[string]bool{}
	for i := range p.shapes {
		sh := &p.shapes[i]
		waiting := 0
		for j := range sh.Jobs {
			if !sh.moved[j] {
				waiting++
			}
		}
		for _, t := range sh.targets {
			if waiting == 0 {
				break
			}
			l, full := t.scaler.exceeded(t.claim.Requests)
			if t.scaler.blocked != nil || !full || l.tooLarge() {
				continue
			}
			crowded[t.scaler.NodeID] = true
			for _, key := range sortedPools(pools) {
				if key.node != t.scaler.NodeID || !t.scaler.shares(p.scalerOf[scalerKey{key.node, key.scaler}], l.span) {
					continue
				}
				for waiting > 0 && len(pools[key]) > 0 {
					p.end(pools[key][0], ci.GoneMadeRoom)
					pools[key] = pools[key][1:]
					waiting--
				}
			}
		}
	}
	return crowded
}

// trim ends what is more than size, of the idle ones only: those that have been idle for long, the oldest first. A pool of no size ends
// at once, with what is on its way (WP-6).
func (p *pass) trim(pool []*agentState, size, idleMs int64) {
	surplus := int64(len(pool)) - size
	if surplus <= 0 {
		return
	}
	old := slices.Clone(pool)
	slices.SortStableFunc(old, func(a, b *agentState) int {
		return cmp.Or(cmp.Compare(a.IdleSince, b.IdleSince), cmp.Compare(a.ID, b.ID))
	})
	for _, a := range old {
		if surplus == 0 {
			return
		}
		if size > 0 && (!a.idle || p.in.Now-a.IdleSince < idleMs) {
			continue
		}
		p.end(a, ci.GoneIdle)
		surplus--
	}
}

func (p *pass) end(a *agentState, reason string) {
	a.idle = false
	p.out.Withdraw = append(p.out.Withdraw, Withdraw{a.ID, reason})
}

// fill starts what a pool lacks, where every cap has room (WP-3, WP-4).
func (p *pass) fill(s *scalerState, set int, lacks int64) {
	claim := s.LabelSets[set].Resources
	for range lacks {
		if _, full := s.exceeded(claim.Requests); full {
			return
		}
		s.take(claim.Requests)
		p.out.Launch = append(p.out.Launch, Launch{OrgID: p.in.WarmOrg, NodeID: s.NodeID, Scaler: s.Name, Type: s.Type, LabelSet: set, Claim: claim})
	}
}

// standIns are idle static agents that would take a job which names the labels of a set: they count as ready (WP-1).
func (p *pass) standIns(set *LabelSet) (n int64) {
	asks := ci.NormalizeLabels(slices.Concat(set.Declared, set.Gate))
	for i := range p.agents {
		a := &p.agents[i]
		if a.NodeID == "" && a.idle && !a.taken && a.OrgID == p.in.WarmOrg && containsAll(a.Labels, asks) && containsAll(asks, a.Gate) {
			n++
		}
	}
	return n
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
