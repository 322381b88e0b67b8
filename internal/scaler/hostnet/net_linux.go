package hostnet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Net makes and removes the rules of one owner in one network namespace. It is safe for concurrent use, and beside other processes: what
// another has changed between reading and writing is read again. Close it.
type Net struct {
	owner string
	names names
	ns    *os.File // nil: this process's own

	support atomic.Pointer[Support] // nil until it has been found out
}

// Open opens the namespace; it touches no rule. Whether rules can be made here, Check finds out.
func Open(o Options) (*Net, error) {
	if !ownerPattern().MatchString(o.Owner) {
		return nil, fmt.Errorf("network isolation: %.80q is no name of an owner", o.Owner)
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if !ifacePattern().MatchString(o.Table) {
		return nil, fmt.Errorf("network isolation: %.40q is no name of a table", o.Table)
	}
	n := &Net{owner: o.Owner, names: newNames(o.Table)}
	if o.Namespace == "" {
		return n, nil
	}
	ns, err := os.Open(o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("network isolation: open network namespace: %w", err)
	}
	n.ns = ns
	return n, nil
}

// Close lets go of the namespace. Rules stay in force.
func (n *Net) Close() error {
	if n.ns == nil {
		return nil
	}
	return n.ns.Close()
}

// Check finds out, by trying it in a transaction that leaves nothing, whether this process can isolate agents on this kernel. Errors
// name what is missing and the cure (CT-4, NET-13).
func (n *Net) Check(ctx context.Context) (Support, error) {
	s, err := n.probe(ctx)
	if err != nil {
		return Support{}, err
	}
	n.support.Store(&s)
	return s, nil
}

// Ensure puts the baseline around a bridge, which need not exist yet: from then on its agents can send only by rules of their own.
func (n *Net) Ensure(ctx context.Context, b Bridge) error {
	_, err := n.change(ctx, b, nil, func([]entry) changes { return changes{} })
	return err
}

// Apply gives an agent its rules, and first the baseline if it is not there. Whatever the agent or its address had is replaced, in one
// transaction (NET-7). Call it before the agent's first instruction.
func (n *Net) Apply(ctx context.Context, b Bridge, r Rules) error {
	_, err := n.change(ctx, b, []Rules{r}, func(there []entry) changes { return replace(n.owner, b, r, there) })
	return err
}

// Sync makes want the rules of this owner: it repairs the baseline, adds what is missing or different, and removes what is not wanted.
// What is right already is not touched. When the rules that are there cannot be listed, nothing is changed (NET-10). An agent that Apply
// gives its rules meanwhile, and want does not have, loses them: let one of the two wait for the other. It returns the agents whose rules are
// gone.
func (n *Net) Sync(ctx context.Context, b Bridge, want []Rules) ([]Agent, error) {
	return n.change(ctx, b, want, func(there []entry) changes { return reconcile(n.owner, b, want, there) })
}

// change reads what is there, decides, and writes it down in one transaction. It returns the agents that have no rules any more.
func (n *Net) change(ctx context.Context, b Bridge, want []Rules, decide func([]entry) changes) (gone []Agent, err error) {
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("network isolation: %w", err)
	}
	support, err := n.supported(ctx)
	if err != nil {
		return nil, err
	}
	err = n.retry(ctx, func(k *kernel) error {
		there, err := k.entries()
		if err != nil {
			return err
		}
		if err := checkAll(n.owner, b, want, there); err != nil {
			return err
		}
		if err := k.distrust(there, n.owner, b, want); err != nil {
			return err
		}
		gone = nil
		c := decide(there)
		if c.Baseline, err = k.lacksBaseline(b, support); err != nil || c.empty() {
			return err
		}
		gone = c.gone()
		return k.write(b, support, n.owner, c)
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// Remove takes the rules of these agents away, on both hooks, whoever made them. Only an agent of the same id, owner, bridge and address
// is meant (NET-8); one that is not there is no error. What an agent sends then is dropped. Call it before the address can be given to
// another agent.
func (n *Net) Remove(ctx context.Context, agents ...Agent) error {
	return n.retry(ctx, func(k *kernel) error {
		there, err := k.entries()
		if err != nil {
			return err
		}
		there = slices.DeleteFunc(there, func(e entry) bool { return !slices.Contains(agents, e.Agent) })
		return k.write(Bridge{}, Support{}, n.owner, changes{Remove: there})
	})
}

// List returns every agent that has rules here, whoever made them, sorted by bridge and address (NET-9).
func (n *Net) List(ctx context.Context) ([]Agent, error) {
	var out []Agent
	err := n.retry(ctx, func(k *kernel) error {
		there, err := k.entries()
		if err != nil {
			return err
		}
		out = nil
		for _, e := range there {
			out = append(out, e.Agent)
		}
		return nil
	})
	return slices.Compact(out), err
}

// Refused returns what was kept from an agent; ErrNoRules when it has no rules.
func (n *Net) Refused(ctx context.Context, agent string) (Refused, error) {
	var out Refused
	err := n.retry(ctx, func(k *kernel) (err error) {
		out, err = k.refused(agent)
		return err
	})
	return out, err
}

// Agent is the agent that Apply(ctx, b, r) makes rules for, as List has it and Remove takes it.
func (n *Net) Agent(b Bridge, r Rules) Agent { return Agent{r.Agent, n.owner, b.Name, r.Addr} }

func (n *Net) supported(ctx context.Context) (Support, error) {
	if s := n.support.Load(); s != nil {
		return *s, nil
	}
	return n.Check(ctx)
}
