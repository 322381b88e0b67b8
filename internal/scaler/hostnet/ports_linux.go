package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nlenc"
	"golang.org/x/sys/unix"
)

// An agent is known by its address (NET-3), and whoever may send raw frames can write another's address into them. So an address is bound
// to the port of the bridge behind which its agent is: what comes through a guarded port with any other address is dropped where frames
// come in, before anything looks at them. A port that is not known is not guarded, and addresses alone count there.

// rawBridge is where frames come in, before they are forwarded or go up.
const rawBridge = -300

// guard are the rules for frames of guarded ports. Those that carry something else than IPv4 and ARP concern other rules.
func (k *kernel) guard() chain {
	const arpSender = 14 // in an ARP packet of IPv4 over Ethernet
	strange := func(ether uint16, sender uint32) []expr.Any {
		return concat(protocol(ether), inSet(nameIn, k.guarded), []expr.Any{
			nameIn(reg1), network(sender)(reg2), &expr.Lookup{SourceRegister: reg1, SetName: k.homes.Name, SetID: k.homes.ID, Invert: true},
		}, drop())
	}
	return chain{k.hooked(k.bridge, "prerouting", nftables.ChainHookPrerouting, rawBridge), []chainRule{
		{"IPv4 from a port with the address of another", strange(etherIPv4, sourceOffset)},
		{"ARP from a port with the address of another", strange(etherARP, arpSender)},
	}}
}

// home is the place of an agent's address behind its port.
type home struct {
	port string
	entry
}

func (h home) element() nftables.SetElement {
	addr := h.Addr.As4()
	return nftables.SetElement{Key: append(ifname(h.port), addr[:]...), Comment: h.comment()}
}

// allHomes lists what is bound to ports here.
func (k *kernel) allHomes() ([]home, error) {
	elements, err := k.elements(k.homes)
	if err != nil {
		return nil, fmt.Errorf("list guarded ports: %w", err)
	}
	var out []home
	for _, el := range elements {
		port, addr, ok := parsePlace(el.Key)
		e, ours := parseComment(el.Comment)
		if ok && ours {
			e.Addr = addr
			out = append(out, home{port, e})
		}
	}
	return out, nil
}

// queueHome queues the guard of an agent's port in the place of what there, its id or its port had.
func (k *kernel) queueHome(owner string, r Rules, there []home) error {
	if r.Port == "" {
		return nil
	}
	if err := k.queueLeaving(there, func(h home) bool { return h.ID == r.Agent || h.port == r.Port }); err != nil {
		return err
	}
	h := home{r.Port, entry{Agent: Agent{ID: r.Agent, Owner: owner, Addr: r.Addr}, digest: "0"}}
	return errors.Join(
		k.conn.SetAddElements(k.homes, []nftables.SetElement{h.element()}),
		k.conn.SetAddElements(k.guarded, []nftables.SetElement{{Key: ifname(r.Port)}}),
	)
}

// queueLeaving queues the end of the guard of those that leave names. Where a port that is there no more comes back under its name, it is
// not guarded until somebody says who is behind it.
func (k *kernel) queueLeaving(there []home, leaves func(home) bool) error {
	for _, h := range there {
		if !leaves(h) {
			continue
		}
		if err := k.conn.SetDeleteElements(k.homes, []nftables.SetElement{{Key: h.element().Key}}); err != nil {
			return err
		}
		if !slices.ContainsFunc(there, func(o home) bool { return o.port == h.port && !leaves(o) }) {
			port := []nftables.SetElement{{Key: ifname(h.port)}} // made before it is deleted: somebody may have done so by hand
			if err := errors.Join(k.conn.SetAddElements(k.guarded, port), k.conn.SetDeleteElements(k.guarded, port)); err != nil {
				return err
			}
		}
	}
	return nil
}

// netLink is an interface as the kernel lists it.
type netLink struct {
	index, master, peer uint32 // peer is the other end of a pair, by its index there
	name                string
}

// ErrNoPort is wrapped when the port of an agent cannot be found out.
var ErrNoPort = errors.New("the agent's port of the bridge cannot be found")

// Port finds the port of a bridge behind which the process pid of this host is, in a network namespace of its own.
func (n *Net) Port(ctx context.Context, bridge string, pid int) (string, error) {
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoPort, err)
	}
	defer inside.Close()
	theirs, err := listLinks(ctx, inside)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoPort, err)
	}
	ours, err := listLinks(ctx, n.ns)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoPort, err)
	}
	if name := portOf(bridge, ours, theirs); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%w: process %d has no interface on %s", ErrNoPort, pid, bridge)
}

// portOf is the port of the bridge on this side that is a pair with an interface on the other; ” when there is none, or more than one.
func portOf(bridge string, ours, theirs []netLink) (name string) {
	i := slices.IndexFunc(ours, func(l netLink) bool { return l.name == bridge })
	if i < 0 {
		return ""
	}
	for _, l := range ours {
		pair := func(o netLink) bool { return o.peer == l.index && l.peer == o.index }
		if l.master != ours[i].index || !slices.ContainsFunc(theirs, pair) {
			continue
		}
		if name != "" {
			return ""
		}
		name = l.name
	}
	return name
}

// listLinks lists the interfaces of a network namespace, this process's own when ns is nil.
func listLinks(ctx context.Context, ns *os.File) ([]netLink, error) {
	var config netlink.Config
	if ns != nil {
		config.NetNS = int(ns.Fd())
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	until := time.Now().Add(netlinkTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := c.SetDeadline(until); err != nil {
		return nil, err
	}
	messages, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg),
	})
	if err != nil {
		return nil, err
	}
	var out []netLink
	for _, m := range messages {
		if l, err := parseLink(m.Data); err == nil {
			out = append(out, l)
		}
	}
	return out, nil
}

func parseLink(data []byte) (l netLink, err error) {
	if len(data) < unix.SizeofIfInfomsg {
		return l, errors.New("a short answer of the kernel")
	}
	l.index = binary.NativeEndian.Uint32(data[4:8])
	attributes, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.IFLA_IFNAME:
			l.name = strings.TrimRight(nlenc.String(attributes.Bytes()), "\x00")
		case unix.IFLA_MASTER:
			l.master = attributes.Uint32()
		case unix.IFLA_LINK:
			l.peer = attributes.Uint32()
		}
	}
	return l, attributes.Err()
}
