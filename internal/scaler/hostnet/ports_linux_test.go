package hostnet

import (
	"errors"
	"net/netip"
	"os/exec"
	"testing"
)

// TestAddressOfANeighbour: an agent that takes the address of another one, which lives and may do more, gets nothing by it.
func TestAddressOfANeighbour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	strict := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), DenyAll: true}
	open := Rules{Agent: "two", Addr: netip.MustParseAddr(twoAddr), Allow: prefixes("0.0.0.0/0")}
	w.apply(t, n, strict, open)
	steal := func() {
		w.one.ip(t, "addr add %s/16 dev eth0", twoAddr)
		w.one.ip(t, "addr del %s/16 dev eth0", oneAddr)
		w.one.ip(t, "addr replace %s/16 dev eth0", twoAddr)
		w.one.ip(t, "route replace default via %s", gateway)
	}
	giveBack := func() {
		w.one.ip(t, "addr flush dev eth0")
		w.one.ip(t, "addr add %s/16 dev eth0", oneAddr)
		w.one.ip(t, "route replace default via %s", gateway)
	}
	steal()
	if !w.one.gets("udp", corp, someport) {
		t.Fatal("without ports an address is all that counts: this test would show nothing")
	}
	giveBack()
	strict.Port, open.Port = "port1", "port2"
	w.apply(t, n, strict, open)
	if !w.two.gets("tcp", corp, someport) || w.one.reaches("tcp", corp, someport) {
		t.Fatal("with its own address each does what it may")
	}
	steal()
	for _, network := range []string{"tcp", "udp"} {
		if w.one.reaches(network, corp, someport) || w.one.reaches(network, internet, someport) {
			t.Errorf("by %s, an agent reaches with its neighbour's address what its neighbour may", network)
		}
	}
	if !w.two.gets("tcp", corp, someport) {
		t.Error("the neighbour is cut off")
	}
	giveBack()

	// What is known of ports outlives a Sync that does not know it, and goes with the agent.
	strict.Port, open.Port = "", ""
	if _, err := n.Sync(t.Context(), testBridge, []Rules{strict, open}); err != nil {
		t.Fatal(err)
	}
	steal()
	if w.one.reaches("udp", corp, someport) {
		t.Error("a Sync has opened the port")
	}
	giveBack()
	strict.Port, open.Port = "port1", "port2"
	if err := n.Remove(t.Context(), n.Agent(testBridge, strict)); err != nil { // somebody else's hand
		t.Fatal(err)
	}
	if _, err := n.Sync(t.Context(), testBridge, []Rules{strict, open}); err != nil {
		t.Fatal(err)
	}
	if got := w.homes(t, n); len(got) != 2 {
		t.Errorf("a Sync repairs what is known: %v", got)
	}
	if err := n.Remove(t.Context(), n.Agent(testBridge, strict), n.Agent(testBridge, open)); err != nil {
		t.Fatal(err)
	}
	if got := w.homes(t, n); len(got) > 0 {
		t.Errorf("left of ports: %v", got)
	}
	fresh := Rules{Agent: "three", Addr: netip.MustParseAddr(twoAddr), Allow: prefixes("0.0.0.0/0"), Port: "port1"} // a port that is used again
	w.apply(t, n, fresh)
	steal()
	if !w.one.gets("tcp", corp, someport) {
		t.Error("the next agent behind a port has its own address there")
	}
}

func (w *world) homes(t *testing.T, n *Net) (out []home) {
	t.Helper()
	err := n.retry(t.Context(), func(k *kernel) (err error) {
		out, err = k.allHomes()
		if guarded, gerr := k.elements(k.guarded); gerr == nil && len(guarded) != len(out) {
			t.Errorf("%d ports are guarded for %d addresses", len(guarded), len(out))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	for name, ns := range map[string]namespace{"port1": w.one, "port2": w.two} {
		cmd := exec.Command("sleep", "60")
		if err := ns.do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		got, err := n.Port(t.Context(), "br-test", cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil || got != name {
			t.Errorf("port %q, want %s: %v", got, name, err)
		}
	}
	if _, err := n.Port(t.Context(), "br-test", 1); !errors.Is(err, ErrNoPort) {
		t.Errorf("a process of the host: %v", err)
	}
	if _, err := n.Port(t.Context(), "br-test", 1<<30); !errors.Is(err, ErrNoPort) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestPortOf(t *testing.T) {
	ours := []netLink{{1, 0, 0, "lo"}, {5, 0, 0, "br"}, {6, 5, 2, "veth6"}, {7, 5, 2, "veth7"}, {8, 9, 3, "other"}}
	for _, c := range []struct {
		theirs []netLink
		want   string
	}{
		{[]netLink{{1, 0, 0, "lo"}, {2, 0, 7, "eth0"}}, "veth7"},
		{[]netLink{{3, 0, 8, "eth0"}}, ""}, // of another bridge
		{[]netLink{{2, 0, 6, "eth0"}, {2, 0, 7, "eth1"}}, ""},
		{nil, ""},
	} {
		if got := portOf("br", ours, c.theirs); got != c.want {
			t.Errorf("%v: %q, want %q", c.theirs, got, c.want)
		}
	}
	if got := portOf("none", ours, ours); got != "" {
		t.Errorf("of a bridge that is not there: %q", got)
	}
}

// FuzzParseLink: what is no interface is refused, and nothing is read beyond its end.
func FuzzParseLink(f *testing.F) {
	f.Add(make([]byte, 16))
	f.Add([]byte{0: 1, 4: 5, 16: 8, 18: 3, 20: 'l', 21: 'o', 23: 0})
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseLink(data) })
}
