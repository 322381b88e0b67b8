package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// DefaultTable is the name of the tables, one for all orchestrators of a host (NET-1).
const DefaultTable = "kici"

// Options say where rules stand and whose they are.
type Options struct {
	// Namespace is the path of the network namespace that the bridge is in, such as /run/netns/x; empty is this process's own.
	Namespace string
	// Table is the tables' name; empty is DefaultTable.
	Table string
	// Owner names who makes rules: letters, digits and ._:/@-, at most 128. Sync removes what its owner has and does not want, so
	// two callers of Sync need two owners (such as node/scaler).
	Owner string
}

// ErrNoRules is returned for an agent that has none here.
var ErrNoRules = errors.New("the agent has no rules on this host")

// MaxRefused is how many refused destinations are kept of an agent, the first ones.
const MaxRefused = 10

// Refused is what was kept from an agent since its rules were made.
type Refused struct {
	Packets uint64        // dropped, repetitions included
	First   []Destination // at most MaxRefused, each once, sorted
}

// Destination is where a packet was to go.
type Destination struct {
	Addr     netip.Addr
	Protocol uint8  // of IP: 6 is TCP, 17 UDP, 1 ICMP
	Port     uint16 // 0 when the protocol has no ports
}

// Support says what isolation on this kernel leaves open.
type Support struct {
	// BridgeMeta: frames between the ports of a bridge are dropped whatever they carry. Without it (CONFIG_NFT_BRIDGE_META) only IPv4
	// and ARP from or to the bridge's own subnet are, which closes every connection between agents, but two agents that work together
	// could still exchange other frames.
	BridgeMeta bool
}

func (d Destination) compare(o Destination) int {
	return cmp.Or(d.Addr.Compare(o.Addr), cmp.Compare(d.Protocol, o.Protocol), cmp.Compare(d.Port, o.Port))
}

// String is the destination for people: "tcp 10.0.0.1:443".
func (d Destination) String() string {
	name, known := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp"}[d.Protocol]
	if !known {
		name = "protocol " + strconv.Itoa(int(d.Protocol))
	}
	if d.Port == 0 {
		return name + " " + d.Addr.String()
	}
	return name + " " + netip.AddrPortFrom(d.Addr, d.Port).String()
}

// String is what was refused for people, "" for nothing.
func (r Refused) String() string {
	if r.Packets == 0 {
		return ""
	}
	first := make([]string, len(r.First))
	for i, d := range r.First {
		first[i] = d.String()
	}
	return fmt.Sprintf("packets: %d, first to: %s", r.Packets, strings.Join(first, ", "))
}
