package hostnet

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// everywhere are all the places that an agent could try, by both protocols.
func everywhere() []string {
	var out []string
	for _, addr := range append([]string{gateway, hostOut, twoAddr}, far...) {
		for _, port := range []string{"53", someport} {
			out = append(out, "tcp "+net.JoinHostPort(addr, port), "udp "+net.JoinHostPort(addr, port))
		}
	}
	return out
}

func reached(answers map[string]bool) []string {
	maps.DeleteFunc(answers, func(_ string, yes bool) bool { return !yes })
	return slices.Sorted(maps.Keys(answers))
}

// at is both protocols to addr and every port of ports.
func at(addr string, ports ...string) []string {
	var out []string
	for _, p := range ports {
		out = append(out, "tcp "+net.JoinHostPort(addr, p), "udp "+net.JoinHostPort(addr, p))
	}
	return out
}

func expect(t *testing.T, ns namespace, want ...[]string) {
	t.Helper()
	list := slices.Sorted(slices.Values(slices.Concat(want...)))
	if got := reached(ns.reach(everywhere(), list...)); !slices.Equal(got, list) {
		t.Errorf("reached:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(list, "\n"))
	}
}

// TestPackets asks the kernel, by packets, what agents reach (NET-3, NET-4, NET-6, HA-3, HA-4).
func TestPackets(t *testing.T) {
	t.Parallel()
	open := at(internet, "53", someport)
	access := func(entries ...string) []netpolicy.Access {
		var out []netpolicy.Access
		for _, e := range entries {
			a, err := netpolicy.ParseAccess(e)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, a)
		}
		return out
	}
	w := newWorld(t)
	expect(t, w.one, everywhere()) // without rules everything is open: what follows is their doing
	n := w.open(t, me)
	if err := n.Ensure(t.Context(), testBridge); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		rules *Rules
		want  [][]string
	}{
		{"no rules", nil, nil},
		{"default", &Rules{HostAccess: netpolicy.DefaultAccess(testBridge.Gateway, "ws://host:"+someport)}, [][]string{open, at(gateway, "53", someport), at(hostOut, someport)}},
		{"XS-107: an empty hostAccess", &Rules{}, [][]string{open}},
		{"hostAccess by address", &Rules{HostAccess: access(hostOut)}, [][]string{open, at(hostOut, "53", someport)}},
		{"hostAccess by network and port", &Rules{HostAccess: access("203.0.113.0/24:53")}, [][]string{open, at(hostOut, "53")}},
		{"hostAccess everywhere", &Rules{HostAccess: access("*")}, [][]string{open, at(gateway, "53", someport), at(hostOut, "53", someport)}},
		{"an allow-list", &Rules{Allow: prefixes("10.9.0.0/16", carrier+"/32")}, [][]string{open, at(corp, "53", someport), at(carrier, "53", someport)}},
		{"an allow-list of everything", &Rules{Allow: prefixes("0.0.0.0/0")}, [][]string{
			open, at(corp, "53", someport), at(corpToo, "53", someport), at("172.31.4.4", "53", someport), at("192.168.7.7", "53", someport),
			at(carrier, "53", someport), at(metadata, "53", someport),
		}},
		{"the allow-list opens no neighbour and no host", &Rules{Allow: prefixes("172.30.0.0/16", "203.0.113.0/24")}, [][]string{open}},
		{"a resolver in a private network", &Rules{Resolvers: []netip.Addr{netip.MustParseAddr("192.168.7.7")}}, [][]string{open, at("192.168.7.7", "53")}},
		{"denyAll", &Rules{DenyAll: true}, nil},
		{"denyAll with an allow-list and a host", &Rules{DenyAll: true, Allow: prefixes(corp + "/32"), HostAccess: access("*:" + someport)}, [][]string{
			at(corp, "53", someport), at(gateway, someport), at(hostOut, someport),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.rules != nil {
				r := *tc.rules
				r.Agent, r.Addr = "one", netip.MustParseAddr(oneAddr)
				w.apply(t, n, r)
			}
			expect(t, w.one, tc.want...)
		})
	}
	if err := n.Remove(t.Context(), Agent{"one", me, "br-test", netip.MustParseAddr(oneAddr)}); err != nil {
		t.Fatal(err)
	}
	expect(t, w.one) // nothing is left of the last policy
}

// TestAnAddressOfItsOwnChoosing: rules are for an address, and a source that nobody was given reaches nothing.
func TestAnAddressOfItsOwnChoosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	w.apply(t, n, Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes("0.0.0.0/0"), HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere}}})
	if !w.one.gets("tcp", internet, someport) || !w.one.gets("tcp", gateway, someport) {
		t.Fatal("the agent does not reach what it may")
	}
	w.one.ip(t, "addr add 172.30.0.77/16 dev eth0")
	w.one.ip(t, "addr del %s/16 dev eth0", oneAddr)
	w.one.ip(t, "addr replace 172.30.0.77/16 dev eth0")
	w.one.ip(t, "route replace default via %s", gateway)
	expect(t, w.one)
}

// TestABridgeOfAnotherName: when a caller has the bridge's name wrong, its agents reach nothing, rather than everything; the host's own
// traffic from that network goes on.
func TestABridgeOfAnotherName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	wrong := testBridge
	wrong.Name = "br-wrong"
	err := n.Apply(t.Context(), wrong, Rules{
		Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes("0.0.0.0/0"), HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := reached(w.one.reach(append(at(internet, someport), append(at(corp, someport), at(gateway, someport)...)...))); len(got) > 0 {
		t.Errorf("reached: %v", got)
	}
	if !w.host.gets("tcp", gateway, someport) || !w.host.gets("tcp", internet, someport) {
		t.Error("the host does not reach itself or the internet")
	}
}

// TestAgentsCannotReachEachOther is NET-11, with and without br_netfilter, which shows bridged frames to the IPv4 hooks.
func TestAgentsCannotReachEachOther(t *testing.T) {
	t.Parallel()
	_, err := os.Stat("/proc/sys/net/bridge")
	canFilter := err == nil
	for _, filter := range []string{"0", "1"} {
		if !canFilter && filter == "1" {
			continue
		}
		w := newWorld(t)
		if canFilter {
			w.host.sysctl(t, "bridge/bridge-nf-call-iptables", filter)
		}
		if !w.one.gets("tcp", twoAddr, someport) || !w.two.gets("udp", oneAddr, someport) {
			t.Fatal("the bridge does not carry frames at all")
		}
		open := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes("0.0.0.0/0")}
		other := open
		other.Agent, other.Addr = "two", netip.MustParseAddr(twoAddr)
		n := w.open(t, me)
		w.apply(t, n, open, other)
		for _, network := range []string{"tcp", "udp"} {
			if w.one.reaches(network, twoAddr, someport) || w.two.reaches(network, oneAddr, someport) {
				t.Errorf("bridge-nf-call-iptables=%s: an agent reaches another by %s", filter, network)
			}
		}
		// Nor by the address of somebody who does not exist, with the neighbour's hardware address.
		w.one.ip(t, "addr add 192.0.2.1/32 dev eth0")
		w.two.ip(t, "addr add 192.0.2.2/32 dev eth0")
		w.one.ip(t, "route add 192.0.2.2/32 dev eth0 src 192.0.2.1")
		w.two.ip(t, "route add 192.0.2.1/32 dev eth0 src 192.0.2.2")
		w.two.serve(t, "192.0.2.2")
		if s, err := n.Check(t.Context()); err != nil {
			t.Fatal(err)
		} else if got := w.one.reaches("udp", "192.0.2.2", someport); got && (s.BridgeMeta || filter == "1") {
			t.Errorf("bridge-nf-call-iptables=%s: agents talk by addresses of their own", filter)
		}
		if !w.one.gets("tcp", internet, someport) || !w.two.gets("tcp", internet, someport) {
			t.Error("keeping agents apart has cut them off")
		}
	}
}

// TestNobodyOpensConnectionsToAgents: from outside; the host itself may, and gets its answers.
func TestNobodyOpensConnectionsToAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !w.outside.gets("tcp", oneAddr, someport) {
		t.Fatal("there is no way from outside at all")
	}
	n := w.open(t, me)
	w.apply(t, n, Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes("0.0.0.0/0")})
	for _, network := range []string{"tcp", "udp"} {
		if w.outside.reaches(network, oneAddr, someport) {
			t.Errorf("outside reaches an agent by %s", network)
		}
		if !w.host.gets(network, oneAddr, someport) {
			t.Errorf("the host does not get an answer of its agent by %s", network)
		}
	}
	if !w.host.gets("tcp", internet, someport) {
		t.Error("the host's own traffic is cut off")
	}
}

// TestNoIPv6 is NET-12.
func TestNoIPv6(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("this kernel has no IPv6 to close")
	}
	w := newWorld(t)
	w.host.ip(t, "-6 addr add fd00::1/64 dev br-test nodad")
	w.one.ip(t, "-6 addr add fd00::2/64 dev eth0 nodad")
	w.host.serve(t, "fd00::1")
	answers := func() bool { return w.one.reaches("tcp", "fd00::1", someport) }
	for until := time.Now().Add(10 * time.Second); !answers(); {
		if time.Now().After(until) {
			t.Fatal("there is no IPv6 to close")
		}
	}
	n := w.open(t, me)
	w.apply(t, n, Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere}}})
	if answers() {
		t.Error("an agent reaches its host by IPv6")
	}
	if !w.one.gets("tcp", gateway, someport) {
		t.Error("IPv4 went with it")
	}
}
