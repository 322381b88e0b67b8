package hostnet

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// TestXS81AddressReused: a new agent at the address of a dead one inherits neither rules nor open connections.
func TestXS81AddressReused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	addr := netip.MustParseAddr(oneAddr)
	w.apply(t, n, Rules{Agent: "dead", Addr: addr, Allow: prefixes("10.0.0.0/8"), HostAccess: []netpolicy.Access{{To: netpolicy.Anywhere}}})
	inside, private := dialFrom(t, w.one, gateway), dialFrom(t, w.one, corp)
	for _, c := range []net.Conn{inside, private} {
		if err := echo(c, longPatience); err != nil {
			t.Fatal("the first agent does not reach what it may: ", err)
		}
	}

	w.apply(t, n, Rules{Agent: "next", Addr: addr})
	for _, c := range []net.Conn{inside, private} {
		if err := echo(c, patience); err == nil {
			t.Errorf("the next agent goes on with what the dead one opened to %s", c.RemoteAddr())
		}
	}
	expect(t, w.one, at(internet, "53", someport))
	if list, err := n.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "next" {
		t.Errorf("%v, %v", list, err)
	}
}

// dialFrom opens a connection of UDP, which the kernel takes for the same as long as the ports are.
func dialFrom(t *testing.T, ns namespace, addr string) net.Conn {
	t.Helper()
	var c net.Conn
	err := ns.do(func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(addr, someport))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestRefusedIsCountedAndNamed: every drop counts, and the first ten destinations are kept.
func TestRefusedIsCountedAndNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	if _, err := n.Refused(t.Context(), "one"); !errors.Is(err, ErrNoRules) {
		t.Fatalf("an agent without rules: %v", err)
	}
	w.apply(t, n, Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr)}, Rules{Agent: "two", Addr: netip.MustParseAddr(twoAddr)})
	w.one.reach([]string{"tcp " + corp + ":443", "udp " + metadata + ":80", "tcp " + gateway + ":22", "tcp " + internet + ":" + someport})
	err := w.one.do(func() error {
		c, err := net.Dial("ip4:icmp", corp)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write([]byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.Refused(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	want := []Destination{
		{netip.MustParseAddr(corp), 1, 0},
		{netip.MustParseAddr(corp), 6, 443},
		{netip.MustParseAddr(metadata), 17, 80},
		{netip.MustParseAddr(gateway), 6, 22},
	}
	if !slices.Equal(got.First, want) || got.Packets < 4 {
		t.Errorf("refused: %+v, want %v", got, want)
	}

	var many []string
	for port := range 40 {
		many = append(many, "udp "+net.JoinHostPort(corp, []string{"1", "2", "3", "4"}[port%4]+string(rune('0'+port/4))))
	}
	w.one.reach(many)
	if got, err = n.Refused(t.Context(), "one"); err != nil || len(got.First) != MaxRefused || got.Packets < 44 {
		t.Errorf("after forty more: %+v, %v", got, err)
	}
	for _, d := range want {
		if !slices.Contains(got.First, d) {
			t.Errorf("%v was one of the first and is gone", d)
		}
	}
	if other, err := n.Refused(t.Context(), "two"); err != nil || other.Packets != 0 || len(other.First) != 0 {
		t.Errorf("the other agent: %+v, %v", other, err)
	}
}
