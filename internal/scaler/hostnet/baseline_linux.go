package hostnet

import (
	"bytes"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Docker's and the usual firewalls' chains stand at 0: what agents may not do is dropped before anything there could accept it, and what
// they may do those chains can still refuse.
const beforeFilter = -10

// The priorities of these hooks that are called raw for IPv6, and filter for bridges.
const (
	rawIPv6      = -300
	filterBridge = -200
)

// baseline are the chains on the kernel's hooks, with all rules that ever stand in them. What agents may do is in the maps that their
// rules look up, never in rules added here: nothing can come to stand behind the last drop, or in front of another's rule (NET-5, XS-108).
func (k *kernel) baseline(s Support) []chain {
	chains := []chain{
		{k.hooked(k.ip, "forward", nftables.ChainHookForward, beforeFilter), []chainRule{
			{"no agent reaches another", concat(inSet(nameIn, bridges(k.ip)), inSet(nameOut, bridges(k.ip)), drop())},
			{"what an agent reaches through the host", lookupAgent(k.forward)},
			{"no agent has this address", concat(inSet(nameIn, bridges(k.ip)), drop())},
			{"no agent is behind this interface", concat(inSet(network(sourceOffset), subnets(k.ip)), drop())},
			{"answers to agents", concat(inSet(nameOut, bridges(k.ip)), established(), pass())},
			{"nobody opens connections to agents", concat(inSet(nameOut, bridges(k.ip)), drop())},
		}},
		{k.hooked(k.ip, "input", nftables.ChainHookInput, beforeFilter), []chainRule{
			{"what an agent reaches on the host", lookupAgent(k.input)},
			{"no agent has this address", concat(inSet(nameIn, bridges(k.ip)), drop())},
			{"the host speaks to itself", concat([]expr.Any{nameIn(reg1), equal(ifname("lo"))}, pass())},
			{"no agent is behind this interface", concat(inSet(network(sourceOffset), subnets(k.ip)), drop())},
		}},
		{k.hooked(k.ip6, "prerouting", nftables.ChainHookPrerouting, rawIPv6), []chainRule{
			{"agents have no IPv6 (NET-12)", concat(inSet(nameIn, bridges(k.ip6)), drop())},
		}},
	}
	return append(chains, chain{k.hooked(k.bridge, "forward", nftables.ChainHookForward, filterBridge), k.betweenPorts(s)}, k.guard())
}

// betweenPorts keeps agents of one bridge apart: their frames pass no hook of the other families (NET-11).
func (k *kernel) betweenPorts(s Support) []chainRule {
	var rules []chainRule
	if s.BridgeMeta {
		rules = append(rules, chainRule{"from agent to agent", concat(inSet(bridgeIn, bridges(k.bridge)), drop())})
	}
	const arpSender, arpTarget = 14, 24 // in an ARP packet of IPv4 over Ethernet
	return append(
		rules,
		chainRule{"IPv4 from an agent to an agent", concat(protocol(etherIPv4), inSet(network(sourceOffset), subnets(k.bridge)), drop())},
		chainRule{"IPv4 to an agent from an agent", concat(protocol(etherIPv4), inSet(network(destinationOffset), subnets(k.bridge)), drop())},
		chainRule{"ARP from an agent to an agent", concat(protocol(etherARP), inSet(network(arpSender), subnets(k.bridge)), drop())},
		chainRule{"ARP to an agent from an agent", concat(protocol(etherARP), inSet(network(arpTarget), subnets(k.bridge)), drop())},
	)
}

func (k *kernel) hooked(t *nftables.Table, name string, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority, Policy: &policy}
}

// lacksBaseline reports whether anything of a bridge's baseline is missing or is something else.
func (k *kernel) lacksBaseline(b Bridge, s Support) (bool, error) {
	for set, key := range map[*nftables.Set][]byte{
		bridges(k.ip): ifname(b.Name), bridges(k.ip6): ifname(b.Name), bridges(k.bridge): ifname(b.Name),
		subnets(k.ip): hostAddress(b.Subnet.Masked().Addr()), subnets(k.bridge): hostAddress(b.Subnet.Masked().Addr()),
	} {
		if elements, err := k.elements(set); err != nil || !hasKey(elements, key) {
			return true, err
		}
	}
	for _, c := range k.baseline(s) {
		if stands, err := k.stands(c); err != nil || !stands {
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
	for _, set := range []*nftables.Set{k.forward, k.input, k.guarded, k.homes} {
		if err := k.conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	if err := k.conn.AddSet(k.transports, []nftables.SetElement{{Key: []byte{protoTCP}}, {Key: []byte{protoUDP}}}); err != nil {
		return err
	}
	for _, t := range []*nftables.Table{k.ip, k.bridge} {
		if err := k.conn.AddSet(subnets(t), interval(b.Subnet)); err != nil {
			return err
		}
	}
	for _, c := range k.baseline(s) {
		k.putChain(c)
	}
	return nil
}
