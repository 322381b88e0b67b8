package hostnet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// hook is a place in the kernel where an agent's packets are judged.
type hook uint8

const (
	hookForward hook = 1 << iota
	hookInput
	bothHooks = hookForward | hookInput
)

// entry is an agent as the kernel's maps have it.
type entry struct {
	Agent
	digest string // of the rules that it was given
	hooks  hook
}

// place is what no two agents can have.
type place struct {
	bridge, addr string
}

func (a Agent) place() place { return place{a.Bridge, a.Addr.String()} }

// changes is what makes the kernel's rules those that are wanted.
type changes struct {
	Baseline bool // put it, or repair it
	Remove   []entry
	Put      []Rules
}

func (c changes) empty() bool { return !c.Baseline && len(c.Remove)+len(c.Put) == 0 }

// gone are the agents that have no rules any more after the changes.
func (c changes) gone() (out []Agent) {
	for _, e := range c.Remove {
		again := slices.ContainsFunc(c.Put, func(r Rules) bool { return r.Agent == e.ID })
		if !again && !slices.Contains(out, e.Agent) {
			out = append(out, e.Agent)
		}
	}
	return out
}

// reconcile compares what an owner wants on a bridge with what is there. All of the owner's that is not wanted goes, on whatever bridge;
// what others have stays, unless it holds an address that is wanted: addresses are handed out by the engine, so that agent is gone
// (XS-81). An agent whose rules are as wanted on both hooks is left alone, and keeps its counters.
func reconcile(owner string, b Bridge, want []Rules, there []entry) changes {
	var c changes
	wanted := map[place]entry{}
	for _, r := range want {
		e := entry{Agent{r.Agent, owner, b.Name, r.Addr}, digest(b, r), bothHooks}
		if slices.Contains(there, e) {
			wanted[e.place()] = e
			continue
		}
		wanted[e.place()] = entry{}
		c.Put = append(c.Put, r)
	}
	for _, e := range there {
		if w, taken := wanted[e.place()]; w != e && (taken || e.Owner == owner) {
			c.Remove = append(c.Remove, e)
		}
	}
	return c
}

// replace is what gives one agent its rules anew: all that it or its address had goes (NET-7).
func replace(owner string, b Bridge, r Rules, there []entry) changes {
	at := Agent{r.Agent, owner, b.Name, r.Addr}.place()
	c := changes{Put: []Rules{r}}
	for _, e := range there {
		if e.place() == at || e.Owner == owner && e.ID == r.Agent {
			c.Remove = append(c.Remove, e)
		}
	}
	return c
}

// checkAll refuses rules that could not stand side by side: an address or an agent twice, or the id of somebody else's agent.
func checkAll(owner string, b Bridge, want []Rules, there []entry) error {
	ids, places := map[string]bool{}, map[place]bool{}
	for _, r := range want {
		at := Agent{Bridge: b.Name, Addr: r.Addr}.place()
		if err := r.check(b); err != nil {
			return err
		}
		if ids[r.Agent] || places[at] {
			return fmt.Errorf("agent %s, %s: it or its address is given twice", r.Agent, r.Addr)
		}
		ids[r.Agent], places[at] = true, true
	}
	for _, e := range there {
		if ids[e.ID] && e.Owner != owner && !places[e.place()] {
			return fmt.Errorf("agent %s has rules of %s already", e.ID, e.Owner)
		}
	}
	return nil
}

// Stale returns the agents whose rules nobody needs: those on the bridge whose address alive does not know. Whose they were does not
// matter, so alive must know the agents of every orchestrator on the host (CT-27). When either side could not be listed, call it not.
func Stale(b Bridge, there []Agent, alive func(Agent) bool) []Agent {
	var out []Agent
	for _, a := range there {
		if a.Bridge == b.Name && !alive(a) {
			out = append(out, a)
		}
	}
	return out
}

// digest tells rules apart. The number in it changes when rules of the same values would be encoded differently.
func digest(b Bridge, r Rules) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "1 %v %v", forwardRules(b, r), inputRules(r)))
	return hex.EncodeToString(sum[:8])
}

// comment is how an entry of the map says whose it is.
func (e entry) comment() string { return e.Owner + " " + e.ID + " " + e.digest }

// parseComment reads comment; ok is false for what somebody else has put there.
func parseComment(s string) (e entry, ok bool) {
	f := strings.Split(s, " ")
	if len(f) != 3 || !ownerPattern().MatchString(f[0]) || !idPattern().MatchString(f[1]) {
		return entry{}, false
	}
	e.Owner, e.ID, e.digest = f[0], f[1], f[2]
	return e, true
}

// merge makes one list of what the maps of the two hooks have. An agent that they do not agree about comes once for each, with one hook,
// and so matches nothing that is wanted.
func merge(forward, input []entry) []entry {
	var out []entry
	for _, e := range forward {
		e.hooks = hookForward
		out = append(out, e)
	}
	for _, e := range input {
		e.hooks = hookForward
		if i := slices.Index(out, e); i >= 0 {
			out[i].hooks = bothHooks
			continue
		}
		e.hooks = hookInput
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), a.Addr.Compare(b.Addr), cmp.Compare(a.hooks, b.hooks))
	})
	return out
}
