package hostnet

import (
	"net/netip"
	"testing"
)

// world is a host with a bridge, two agents on it, and the world behind the host:
//
//	one 172.30.0.2 ─┐
//	                ├─ br-test 172.30.0.1, host, 203.0.113.1 ── 203.0.113.2, outside
//	two 172.30.0.20 ┘
type world struct {
	host, outside, one, two namespace
}

const (
	gateway  = "172.30.0.1"
	oneAddr  = "172.30.0.2"
	twoAddr  = "172.30.0.20" // begins like the other
	internet = "198.51.100.7"
	hostOut  = "203.0.113.1"
	corp     = "10.9.9.9"
	corpToo  = "10.8.8.8"
	carrier  = "100.64.1.1"
	metadata = "169.254.169.254"
	someport = "7000"
)

// far are the addresses outside.
var far = []string{internet, corp, corpToo, "172.31.4.4", "192.168.7.7", carrier, metadata}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{host: newNamespace(t), outside: newNamespace(t), one: newNamespace(t), two: newNamespace(t)}
	w.host.sysctl(t, "ipv4/ip_forward", "1")
	w.host.ip(t, "link add br-test type bridge")
	w.host.ip(t, "addr add %s/16 dev br-test", gateway)
	w.host.ip(t, "link set br-test up")
	w.plug(t, w.one, "port1", oneAddr)
	w.plug(t, w.two, "port2", twoAddr)
	w.host.ip(t, "link add ext type veth peer name eth0 netns %s", w.outside.path())
	w.host.ip(t, "addr add %s/24 dev ext", hostOut)
	w.host.ip(t, "link set ext up")
	w.outside.ip(t, "addr add 203.0.113.2/24 dev eth0")
	w.outside.ip(t, "link set eth0 up")
	w.outside.ip(t, "route add 172.30.0.0/16 via %s", hostOut)
	for _, a := range far {
		w.outside.ip(t, "addr add %s/32 dev lo", a)
		w.host.ip(t, "route add %s/32 via 203.0.113.2", a)
		w.outside.serve(t, a)
	}
	w.host.serve(t, gateway)
	w.host.serve(t, hostOut)
	w.one.serve(t, oneAddr)
	w.two.serve(t, twoAddr)
	return w
}

func (w *world) plug(t *testing.T, ns namespace, port, addr string) {
	t.Helper()
	w.host.ip(t, "link add %s type veth peer name eth0 netns %s", port, ns.path())
	w.host.ip(t, "link set %s master br-test up", port)
	ns.ip(t, "addr add %s/16 dev eth0", addr)
	ns.ip(t, "link set eth0 up")
	ns.ip(t, "route add default via %s", gateway)
}

// open opens the room's rules on the world's host.
func (w *world) open(t *testing.T, owner string) *Net {
	t.Helper()
	n, err := Open(Options{Namespace: w.host.path(), Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func (w *world) apply(t *testing.T, n *Net, rules ...Rules) {
	t.Helper()
	for _, r := range rules {
		if err := n.Apply(t.Context(), testBridge, r); err != nil {
			t.Fatal(err)
		}
	}
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}
