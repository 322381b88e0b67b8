package hostnet

import (
	"bytes"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// Docker's and the usual firewalls' chains stand at 0: what agents may not do is dropped before anything there could accept it, and what
// they may do those chains can still refuse.
const beforeFilter = -10

// baseChain is a chain on a hook of the kernel with all rules that ever stand in it. What agents may do is in the maps that the first
// rules look up, never in rules added here: nothing can come to stand behind the last drop, or in front of another's rule (NET-5, XS-108).
type baseChain struct {
	chain nftables.Chain
	rules []baseRule
}

// baseRule is one rule; its comment tells a person what it is for, and this room whether it is there.
type baseRule struct {
	comment string
	exprs   []expr.Any
}

func (k *kernel) baseline(s Support) []baseChain {
	chains := []baseChain{
		{k.hooked(k.ip, "forward", nftables.ChainHookForward, beforeFilter), []baseRule{
			{"no agent reaches another", concat(inSet(nameIn, bridges(k.ip)), inSet(nameOut, bridges(k.ip)), drop())},
			{"what an agent reaches through the host", lookupAgent(k.forward)},
			{"no agent has this address", concat(inSet(nameIn, bridges(k.ip)), drop())},
			{"answers to agents", concat(inSet(nameOut, bridges(k.ip)), established(), pass())},
			{"nobody opens connections to agents", concat(inSet(nameOut, bridges(k.ip)), drop())},
		}},
		{k.hooked(k.ip, "input", nftables.ChainHookInput, beforeFilter), []baseRule{
			{"what an agent reaches on the host", lookupAgent(k.input)},
			{"no agent has this address", concat(inSet(nameIn, bridges(k.ip)), drop())},
		}},
		{k.hooked(k.ip6, "prerouting", nftables.ChainHookPrerouting, -300), []baseRule{
			{"agents have no IPv6 (NET-12)", concat(inSet(nameIn, bridges(k.ip6)), drop())},
		}},
	}
	return append(chains, baseChain{k.hooked(k.bridge, "forward", nftables.ChainHookForward, -200), k.betweenPorts(s)})
}

// betweenPorts keeps agents of one bridge apart: their frames pass no hook of the other families (NET-11).
func (k *kernel) betweenPorts(s Support) []baseRule {
	var rules []baseRule
	if s.BridgeMeta {
		rules = append(rules, baseRule{"from agent to agent", concat(inSet(bridgeIn, bridges(k.bridge)), drop())})
	}
	const source, destination, arpSender, arpTarget = 12, 16, 14, 24
	return append(
		rules,
		baseRule{"IPv4 from an agent to an agent", concat(protocol(etherIPv4), inSet(network(source), k.subnets), drop())},
		baseRule{"IPv4 to an agent from an agent", concat(protocol(etherIPv4), inSet(network(destination), k.subnets), drop())},
		baseRule{"ARP from an agent to an agent", concat(protocol(etherARP), inSet(network(arpSender), k.subnets), drop())},
		baseRule{"ARP to an agent from an agent", concat(protocol(etherARP), inSet(network(arpTarget), k.subnets), drop())},
	)
}

func (k *kernel) hooked(t *nftables.Table, name string, hook *nftables.ChainHook, priority nftables.ChainPriority) nftables.Chain {
	policy := nftables.ChainPolicyAccept
	return nftables.Chain{Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority, Policy: &policy}
}

// lacksBaseline reports whether anything of a bridge's baseline is missing or is something else.
func (k *kernel) lacksBaseline(b Bridge, s Support) (bool, error) {
	subnets, err := k.elements(k.subnets)
	if err != nil || !hasKey(subnets, hostAddress(b.Subnet.Masked().Addr())) {
		return true, err
	}
	for _, t := range []*nftables.Table{k.ip, k.ip6, k.bridge} {
		elements, err := k.elements(bridges(t))
		if err != nil || !hasKey(elements, ifname(b.Name)) {
			return true, err
		}
	}
	for _, c := range k.baseline(s) {
		rules, err := k.conn.GetRules(c.chain.Table, &c.chain)
		if err != nil || !slices.EqualFunc(rules, c.rules, func(r *nftables.Rule, want baseRule) bool {
			comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
			return comment == want.comment
		}) {
			return true, err
		}
	}
	return false, nil
}

func hasKey(elements []nftables.SetElement, key []byte) bool {
	return slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return bytes.Equal(e.Key, key) })
}

// putBaseline queues a bridge's baseline. Whatever of it is there stays or is replaced by the same; other bridges' is not touched.
func (k *kernel) putBaseline(b Bridge, s Support) error {
	for _, t := range []*nftables.Table{k.ip, k.ip6, k.bridge} {
		k.conn.AddTable(t)
		if err := k.conn.AddSet(bridges(t), []nftables.SetElement{{Key: ifname(b.Name)}}); err != nil {
			return err
		}
	}
	for _, set := range []*nftables.Set{k.forward, k.input} {
		if err := k.conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	if err := k.conn.AddSet(k.transports, []nftables.SetElement{{Key: []byte{protoTCP}}, {Key: []byte{protoUDP}}}); err != nil {
		return err
	}
	if err := k.conn.AddSet(k.subnets, interval(b.Subnet)); err != nil {
		return err
	}
	for _, c := range k.baseline(s) {
		k.putChain(&c.chain, c.rules)
	}
	return nil
}

// putChain queues a chain with exactly these rules.
func (k *kernel) putChain(c *nftables.Chain, rules []baseRule) {
	k.conn.AddChain(c)
	k.conn.FlushChain(c)
	for _, r := range rules {
		k.conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
	}
}
