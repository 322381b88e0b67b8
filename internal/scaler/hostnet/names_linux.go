package hostnet

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
)

// names are the objects of nftables that this room has, all in tables of one name.
type names struct {
	ip, ip6, bridge *nftables.Table

	forward, input *nftables.Set // bridge and source address → the agent's chain
	transports     *nftables.Set // TCP and UDP
	guarded, homes *nftables.Set // ports behind which somebody is; port and his address
}

// placeType is the key of the maps of agents.
var placeType = nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)

// destinationType is the key of the sets of refused destinations.
var destinationType = nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)

// A set of a transaction must have a number; names are what the kernel looks for first, and all that is used here.
const someID = 1

func newNames(table string) names {
	ip := &nftables.Table{Name: table, Family: nftables.TableFamilyIPv4}
	bridge := &nftables.Table{Name: table, Family: nftables.TableFamilyBridge}
	agents := func(name string) *nftables.Set {
		return &nftables.Set{Table: ip, Name: name, ID: someID, IsMap: true, Concatenation: true, KeyType: placeType, DataType: nftables.TypeVerdict}
	}
	return names{
		ip: ip, bridge: bridge,
		ip6:        &nftables.Table{Name: table, Family: nftables.TableFamilyIPv6},
		forward:    agents("agents_forward"),
		input:      agents("agents_input"),
		transports: &nftables.Set{Table: ip, Name: "transports", ID: someID, KeyType: nftables.TypeInetProto},
		guarded:    &nftables.Set{Table: bridge, Name: "guarded", ID: someID, KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian},
		homes:      &nftables.Set{Table: bridge, Name: "homes", ID: someID, Concatenation: true, KeyType: placeType},
	}
}

// bridges is the set of names of bridges; each family has its own.
func bridges(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: "bridges", ID: someID, KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian}
}

// subnets is the set of the bridges' networks.
func subnets(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: "subnets", ID: someID, Interval: true, KeyType: nftables.TypeIPAddr, KeyByteOrder: binaryutil.BigEndian}
}

// agentChains are what one agent has.
type agentChains struct {
	forward, input, refuse *nftables.Chain
	refused                *nftables.Set
}

func (n names) agent(id string) agentChains {
	chain := func(part string) *nftables.Chain {
		return &nftables.Chain{Table: n.ip, Name: "agent/" + id + "/" + part}
	}
	return agentChains{
		forward: chain("forward"), input: chain("input"), refuse: chain("refuse"),
		refused: &nftables.Set{
			Table: n.ip, Name: "agent/" + id + "/refused", ID: someID, Dynamic: true, Concatenation: true, KeyType: destinationType, Size: MaxRefused,
		},
	}
}

func ifname(name string) []byte {
	b := make([]byte, 16)
	copy(b, name)
	return b
}

func (a Agent) key() []byte {
	addr := a.Addr.As4()
	return append(ifname(a.Bridge), addr[:]...)
}

// parsePlace reads key; ok is false for what is no key of a map of agents.
func parsePlace(key []byte) (bridge string, addr netip.Addr, ok bool) {
	if len(key) != 20 {
		return "", netip.Addr{}, false
	}
	addr, ok = netip.AddrFromSlice(key[16:])
	return strings.TrimRight(string(key[:16]), "\x00"), addr, ok
}

func parseDestination(key []byte) (d Destination, ok bool) {
	if len(key) != 12 {
		return Destination{}, false
	}
	d.Addr, ok = netip.AddrFromSlice(key[:4])
	d.Protocol, d.Port = key[4], binary.BigEndian.Uint16(key[8:10])
	return d, ok
}

// interval is a network as two elements of a set: its first address, and the one after its last.
func interval(p netip.Prefix) []nftables.SetElement {
	first := hostAddress(p.Masked().Addr())
	end := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first)+1<<(32-p.Bits()))
	return []nftables.SetElement{{Key: first}, {Key: end, IntervalEnd: true}}
}

// hostAddress is an address as a key.
func hostAddress(a netip.Addr) []byte {
	b := a.As4()
	return b[:]
}
