package hostnet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// agentsAtOnce bounds a transaction, so that its acknowledgements fit the buffer. More agents than that are several transactions; an
// agent that waits for its own can send nothing.
const agentsAtOnce = 64

// write makes changes true: the baseline first, which opens nothing, then the agents in one transaction, or in several when there are
// very many.
func (k *kernel) write(b Bridge, s Support, owner string, c changes) error {
	if c.Baseline {
		if err := errors.Join(k.putBaseline(b, s), k.conn.Flush()); err != nil {
			return fmt.Errorf("baseline of bridge %s (does %s overlap another bridge's network? see: nft list set bridge %s subnets): %w", b.Name, b.Subnet, k.bridge.Name, err)
		}
	}
	queued := 0
	step := func(err error) error {
		if queued++; err == nil && queued%agentsAtOnce == 0 {
			err = k.conn.Flush()
		}
		return err
	}
	homes, err := k.allHomes()
	if err != nil {
		return err
	}
	gone := map[string][]entry{}
	for _, e := range c.Remove {
		gone[e.ID] = append(gone[e.ID], e)
	}
	left := func(h home) bool {
		return len(gone[h.ID]) > 0 && !slices.ContainsFunc(c.Put, func(r Rules) bool { return r.Agent == h.ID })
	}
	if err := k.queueLeaving(homes, left); err != nil {
		return err
	}
	homes = slices.DeleteFunc(homes, left)
	for id, entries := range gone {
		if err := step(k.queueRemoval(id, entries)); err != nil {
			return err
		}
	}
	for _, r := range c.Put {
		if err := step(errors.Join(k.queueAgent(b, owner, r), k.queueHome(owner, r, homes))); err != nil {
			return err
		}
	}
	return k.conn.Flush()
}

// queueRemoval queues the end of an agent's entries and rules. All is made before it is deleted: so a part that somebody has deleted by
// hand stops nothing.
func (k *kernel) queueRemoval(id string, entries []entry) error {
	c := k.agent(id)
	for _, part := range []*nftables.Chain{c.forward, c.input, c.refuse} {
		k.conn.AddChain(part)
		k.conn.FlushChain(part)
	}
	if err := k.conn.AddSet(c.refused, nil); err != nil {
		return err
	}
	for m, on := range map[*nftables.Set]hook{k.forward: hookForward, k.input: hookInput} {
		for _, e := range entries {
			if e.hooks&on == 0 {
				continue
			}
			if err := k.conn.SetDeleteElements(m, []nftables.SetElement{{Key: e.key()}}); err != nil {
				return err
			}
		}
	}
	for _, part := range []*nftables.Chain{c.forward, c.input, c.refuse} {
		k.conn.DelChain(part)
	}
	k.conn.DelSet(c.refused)
	return nil
}

// chainsOf are an agent's chains; the others lead to the first.
func (k *kernel) chainsOf(b Bridge, r Rules) []chain {
	c := k.agent(r.Agent)
	return []chain{
		{c.refuse, refuseRules(c.refused, k.transports)},
		{c.forward, k.encode(forwardRules(b, r), c.refuse)},
		{c.input, k.encode(inputRules(r), c.refuse)},
	}
}

// distrust takes the digest from entries whose chains are not what it says, or whose port is not guarded, so that they are made anew. Until then they are closed.
func (k *kernel) distrust(there []entry, owner string, b Bridge, want []Rules) error {
	homes, err := k.allHomes()
	if err != nil {
		return err
	}
	for _, r := range want {
		i := slices.Index(there, entry{Agent{r.Agent, owner, b.Name, r.Addr}, digest(b, r), bothHooks})
		if i < 0 {
			continue
		}
		if r.Port != "" && !slices.ContainsFunc(homes, func(h home) bool { return h.port == r.Port && h.ID == r.Agent && h.Addr == r.Addr }) {
			there[i].digest = ""
		}
		for _, c := range k.chainsOf(b, r) {
			if stands, err := k.stands(c); err != nil {
				return err
			} else if !stands {
				there[i].digest = ""
			}
		}
	}
	return nil
}

// queueAgent queues an agent's chains and its entries in the maps.
func (k *kernel) queueAgent(b Bridge, owner string, r Rules) error {
	c := k.agent(r.Agent)
	if err := k.conn.AddSet(c.refused, nil); err != nil {
		return err
	}
	for _, part := range k.chainsOf(b, r) {
		k.putChain(part)
	}
	e := entry{Agent: Agent{r.Agent, owner, b.Name, r.Addr}, digest: digest(b, r)}
	for m, chain := range map[*nftables.Set]*nftables.Chain{k.forward: c.forward, k.input: c.input} {
		// Jump, not goto: a chain that somebody has emptied returns to the baseline's drop.
		el := nftables.SetElement{Key: e.key(), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: chain.Name}, Comment: e.comment()}
		if err := k.conn.SetAddElements(m, []nftables.SetElement{el}); err != nil {
			return err
		}
	}
	return nil
}
