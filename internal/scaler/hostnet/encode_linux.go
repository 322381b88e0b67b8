package hostnet

import (
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	protoTCP = unix.IPPROTO_TCP
	protoUDP = unix.IPPROTO_UDP

	etherIPv4 = unix.ETH_P_IP
	etherARP  = unix.ETH_P_ARP

	// Registers. The kernel has four of 16 bytes, and names their quarters too: a key of several parts is loaded side by side.
	reg1, reg2          = unix.NFT_REG_1, unix.NFT_REG_2
	part0, part1, part2 = unix.NFT_REG32_00, unix.NFT_REG32_01, unix.NFT_REG32_02

	sourceOffset, destinationOffset = 12, 16 // in an IPv4 header
)

// What a rule loads to compare it: each returns the expression that puts it into a register.
func nameIn(reg uint32) expr.Any   { return &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg} }
func nameOut(reg uint32) expr.Any  { return &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg} }
func bridgeIn(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyBRIIIFNAME, Register: reg} }
func l4proto(reg uint32) expr.Any  { return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg} }

func port(reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// network loads an IPv4 address from a header.
func network(offset uint32) func(uint32) expr.Any {
	return func(reg uint32) expr.Any {
		return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
	}
}

func concat(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func inSet(load func(uint32) expr.Any, s *nftables.Set) []expr.Any {
	return []expr.Any{load(reg1), &expr.Lookup{SourceRegister: reg1, SetName: s.Name, SetID: s.ID}}
}

// lookupAgent jumps to the chain of the agent that the packet comes from by bridge and address; without one the next rule follows.
func lookupAgent(m *nftables.Set) []expr.Any {
	return []expr.Any{
		nameIn(reg1), network(sourceOffset)(reg2),
		&expr.Lookup{SourceRegister: reg1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: m.Name, SetID: m.ID},
	}
}

func protocol(ether uint16) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: reg1}, equal(binaryutil.BigEndian.PutUint16(ether))}
}

func equal(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: data} }

func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: reg1},
		&expr.Bitwise{
			SourceRegister: reg1, DestRegister: reg1, Len: 4, Xor: make([]byte, 4),
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: make([]byte, 4)},
	}
}

func reply() []expr.Any {
	const ipCtDirReply = 1
	return concat(established(), []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg1}, equal([]byte{ipCtDirReply})})
}

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func pass() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// encode turns an agent's rules into those of nftables.
func (k *kernel) encode(rules []rule, refuseChain *nftables.Chain) []chainRule {
	out := make([]chainRule, len(rules))
	for i, r := range rules {
		end := pass()
		if r.Verdict != accept {
			end = []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: refuseChain.Name}}
		}
		out[i] = chainRule{r.String(), concat(k.encodeMatch(r.Match), end)}
	}
	return out
}

func (k *kernel) encodeMatch(m match) []expr.Any {
	var out []expr.Any
	if m.Reply {
		out = append(out, reply()...)
	}
	if m.To.IsValid() && m.To.Bits() > 0 {
		out = append(out, to(m.To)...)
	}
	if m.Port {
		out = append(out, inSet(l4proto, k.transports)...)
		if m.Num != 0 {
			out = append(out, port(reg1), equal(binaryutil.BigEndian.PutUint16(m.Num)))
		}
	}
	return out
}

func to(p netip.Prefix) []expr.Any {
	out := []expr.Any{network(destinationOffset)(reg1)}
	if p.Bits() < 32 {
		out = append(out, &expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: net.CIDRMask(p.Bits(), 32), Xor: make([]byte, 4)})
	}
	return append(out, equal(hostAddress(p.Addr())))
}

// refuseRules remember where a packet was to go, count it and drop it. A set that is full takes no more, and the next rule follows.
func refuseRules(refused, transports *nftables.Set) []chainRule {
	remember := &expr.Dynset{SrcRegKey: part0, SetName: refused.Name, SetID: refused.ID, Operation: unix.NFT_DYNSET_OP_ADD}
	key := []expr.Any{network(destinationOffset)(part0), l4proto(part1)}
	noPorts := []expr.Any{l4proto(reg1), &expr.Lookup{SourceRegister: reg1, SetName: transports.Name, SetID: transports.ID, Invert: true}}
	return []chainRule{
		{"first destinations", concat(inSet(l4proto, transports), key, []expr.Any{port(part2), remember})},
		{"first destinations", concat(noPorts, key, []expr.Any{&expr.Immediate{Register: part2, Data: make([]byte, 4)}, remember})},
		{"refused", concat([]expr.Any{&expr.Counter{}}, drop())},
	}
}
