package hostnet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// TestRulesOutliveTheProcess: what comes up again finds what is there, changes none of it and loses no counter.
func TestRulesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.open(t, me)
	one := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes(corp + "/32")}
	two := Rules{Agent: "two", Addr: netip.MustParseAddr(twoAddr)}
	w.apply(t, first, one, two)
	w.one.reaches("udp", metadata, someport)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !w.one.gets("tcp", corp, someport) || w.two.reaches("tcp", corp, someport) {
		t.Error("without the process the rules are not what they were")
	}

	next := w.open(t, me)
	if _, err := next.Sync(t.Context(), testBridge, []Rules{one}); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, next); got != "[node/me one br-test 172.30.0.2]" {
		t.Errorf("listed: %s", got)
	}
	if got, err := next.Refused(t.Context(), "one"); err != nil || got.Packets != 1 {
		t.Errorf("the counter was lost: %+v, %v", got, err)
	}
	if !w.one.gets("tcp", corp, someport) || w.two.reaches("tcp", internet, someport) {
		t.Error("Sync did not take up what is there")
	}
}

// TestWhatAnAdministratorDeletesComesBack: parts or all of it, by any of the calls; and meanwhile nothing is open that was closed, but
// for the table itself.
func TestWhatAnAdministratorDeletesComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	one := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes(corp + "/32")}
	c := n.names.agent("one")
	forward := &nftables.Chain{Table: n.names.ip, Name: "forward"}
	for name, damage := range map[string]func(*nftables.Conn){
		"the tables":         func(c *nftables.Conn) { c.FlushRuleset() },
		"the bridge's table": func(c *nftables.Conn) { c.DelTable(n.names.bridge) },
		"IPv6's table":       func(c *nftables.Conn) { c.DelTable(n.names.ip6) },
		"a hook's rules":     func(c *nftables.Conn) { c.FlushChain(forward) },
		"the map's entries":  func(c *nftables.Conn) { c.FlushSet(n.names.forward) },
		"the other map's":    func(c *nftables.Conn) { c.FlushSet(n.names.input) },
		"the bridge's name":  func(c *nftables.Conn) { c.FlushSet(bridges(n.names.ip)) },
		"the subnet":         func(c *nftables.Conn) { c.FlushSet(subnets(n.names.bridge)) },
		"the other subnet":   func(c *nftables.Conn) { c.FlushSet(subnets(n.names.ip)) },
		"a rule too many": func(c *nftables.Conn) {
			c.AddRule(&nftables.Rule{Table: n.names.ip, Chain: forward, Exprs: pass()})
		},
		"half of an agent's": func(conn *nftables.Conn) {
			conn.FlushSet(n.names.forward)
			conn.DelChain(c.forward)
		},
		"an agent's rules": func(conn *nftables.Conn) { conn.FlushChain(c.input) },
		"the maps do not agree": func(conn *nftables.Conn) {
			el := nftables.SetElement{Key: n.Agent(testBridge, one).key(), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: c.input.Name}, Comment: me + " one 0"}
			conn.FlushSet(n.names.input)
			if err := conn.SetAddElements(n.names.input, []nftables.SetElement{el}); err != nil {
				t.Fatal(err)
			}
		},
		"all rules": func(conn *nftables.Conn) { conn.FlushTable(n.names.ip) },
		"other rules in their place": func(conn *nftables.Conn) {
			conn.FlushChain(c.input)
			for range inputRules(one) {
				conn.AddRule(&nftables.Rule{Table: n.names.ip, Chain: c.input, Exprs: pass()})
			}
		},
		"the rest of an agent's": func(conn *nftables.Conn) {
			conn.FlushChain(c.forward)
			conn.FlushChain(c.input)
			conn.DelChain(c.refuse)
			conn.DelSet(c.refused)
		},
		"all that is an agent's": func(conn *nftables.Conn) {
			conn.FlushSet(n.names.forward)
			conn.FlushSet(n.names.input)
			for _, part := range []*nftables.Chain{c.forward, c.input, c.refuse} {
				conn.DelChain(part)
			}
			conn.DelSet(c.refused)
		},
	} {
		for _, repair := range []func() error{
			func() error { return failed(n.Sync(t.Context(), testBridge, []Rules{one})) },
			func() error { return n.Apply(t.Context(), testBridge, one) },
		} {
			w.apply(t, n, one)
			tamper(t, n, damage)
			if err := repair(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.whole(t, n, name)
		}
	}
	// An agent's chain that is emptied closes: the packet comes back to the baseline's drop.
	tamper(t, n, func(conn *nftables.Conn) { conn.FlushChain(c.forward) })
	if w.one.reaches("tcp", corp, someport) || w.one.reaches("tcp", corpToo, someport) {
		t.Error("an emptied chain opens something")
	}
	if err := n.Remove(t.Context(), n.Agent(testBridge, one)); err != nil || ids(t, n) != "[]" {
		t.Errorf("removing what is damaged: %v, %s", err, ids(t, n))
	}
}

func tamper(t *testing.T, n *Net, damage func(*nftables.Conn)) {
	t.Helper()
	err := n.retry(t.Context(), func(k *kernel) error {
		damage(k.conn)
		return k.conn.Flush()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// whole checks one agent that may reach corp, without waiting where it need not.
func (w *world) whole(t *testing.T, n *Net, after string) {
	t.Helper()
	err := n.retry(t.Context(), func(k *kernel) error {
		if lacks, err := k.lacksBaseline(testBridge, *n.support.Load()); err != nil || lacks {
			return fmt.Errorf("the baseline lacks something: %t, %w", lacks, err)
		}
		return nil
	})
	if err != nil || !w.one.gets("tcp", corp, someport) || ids(t, n) != "[node/me one br-test 172.30.0.2]" {
		t.Errorf("%s did not come back: %v; %s", after, err, ids(t, n))
	}
}

// TestXS108NothingComesBehindTheBaseline: agents' rules are never in the chains on the hooks, so nothing can stand behind a drop or in
// front of another's rule; another table that accepts does not open what is closed here.
func TestXS108NothingComesBehindTheBaseline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	w.apply(t, n, Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), DenyAll: true})
	w.apply(t, n, Rules{Agent: "two", Addr: netip.MustParseAddr(twoAddr), Allow: prefixes("0.0.0.0/0")})
	tamper(t, n, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
		c.AddRule(&nftables.Rule{Table: table, Exprs: pass(), Chain: c.AddChain(&nftables.Chain{
			Table: table, Name: "FORWARD", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		})})
	})
	if w.one.reaches("tcp", internet, someport) || !w.two.gets("tcp", corp, someport) {
		t.Error("denyAll was defeated, or an allow-list closed")
	}
	err := n.retry(t.Context(), func(k *kernel) error {
		for _, c := range k.baseline(*n.support.Load()) {
			rules, err := k.conn.GetRules(c.at.Table, c.at)
			if err != nil || len(rules) != len(c.rules) {
				return fmt.Errorf("%s has %d rules, not %d: %w", c.at.Name, len(rules), len(c.rules), err)
			}
			for _, r := range rules {
				for _, e := range r.Exprs {
					if v, ok := e.(*expr.Verdict); ok && v.Chain != "" {
						return fmt.Errorf("%s jumps to %s", c.at.Name, v.Chain)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
