package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/netpolicy"
)

// otherBridge is where a second orchestrator has its agents.
var otherBridge = Bridge{Name: "br-other", Subnet: netip.MustParsePrefix("172.29.0.0/16"), Gateway: netip.MustParseAddr("172.29.0.1")}

// plugOther adds the second bridge with an agent at 172.29.0.2.
func (w *world) plugOther(t *testing.T) namespace {
	t.Helper()
	w.host.ip(t, "link add br-other type bridge")
	w.host.ip(t, "addr add 172.29.0.1/16 dev br-other")
	w.host.ip(t, "link set br-other up")
	w.outside.ip(t, "route add 172.29.0.0/16 via %s", hostOut)
	ns := newNamespace(t)
	w.host.ip(t, "link add port3 type veth peer name eth0 netns %s", ns.path())
	w.host.ip(t, "link set port3 master br-other up")
	ns.ip(t, "addr add 172.29.0.2/16 dev eth0")
	ns.ip(t, "link set eth0 up")
	ns.ip(t, "route add default via 172.29.0.1")
	ns.serve(t, "172.29.0.2")
	return ns
}

func ids(t *testing.T, n *Net) string {
	t.Helper()
	list, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range list {
		out = append(out, a.Owner+" "+a.ID+" "+a.Bridge+" "+a.Addr.String())
	}
	return fmt.Sprint(out)
}

// TestTwoOwnersOneTable: two orchestrators, two bridges, one table; what one does changes nothing for the other.
func TestTwoOwnersOneTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	third := w.plugOther(t)
	a, b := w.open(t, me), w.open(t, other)
	one := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr), Allow: prefixes("0.0.0.0/0")}
	three := Rules{Agent: "three", Addr: netip.MustParseAddr("172.29.0.2"), Allow: prefixes("0.0.0.0/0")}
	for _, err := range []error{failed(a.Sync(t.Context(), testBridge, []Rules{one})), failed(b.Sync(t.Context(), otherBridge, []Rules{three}))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	both := "[node/other three br-other 172.29.0.2 node/me one br-test 172.30.0.2]"
	if got := ids(t, a); got != both || ids(t, b) != both {
		t.Errorf("listed: %s", got)
	}
	if !w.one.gets("tcp", corp, someport) || !third.gets("tcp", corp, someport) {
		t.Error("an agent does not reach what it may")
	}
	if w.one.reaches("tcp", "172.29.0.2", someport) || third.reaches("tcp", oneAddr, someport) {
		t.Error("agents of two bridges reach each other, although an allow-list opens only what is no agent")
	}
	if _, err := a.Sync(t.Context(), testBridge, nil); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, a); got != "[node/other three br-other 172.29.0.2]" || w.one.reaches("tcp", internet, someport) || !third.gets("tcp", corp, someport) {
		t.Errorf("after one owner has gone: %s", got)
	}
	// The address of one bridge is nobody's on the other.
	third.ip(t, "addr add %s/32 dev eth0", oneAddr)
	w.apply(t, a, one)
	third.ip(t, "route replace default via 172.29.0.1 src %s", oneAddr)
	if third.reaches("udp", corp, someport) {
		t.Error("an agent takes the address, and the rules, of another bridge's agent")
	}
}

// TestOverlappingNetworks: a bridge whose network is part of another's is refused with the reason, and has no agents.
func TestOverlappingNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	if err := n.Ensure(t.Context(), testBridge); err != nil {
		t.Fatal(err)
	}
	part := Bridge{Name: "br-part", Subnet: netip.MustParsePrefix("172.30.128.0/17"), Gateway: netip.MustParseAddr("172.30.128.1")}
	for _, err := range []error{n.Ensure(t.Context(), part), n.Apply(t.Context(), part, rulesOf("a", "172.30.128.2"))} {
		if err == nil || !strings.Contains(err.Error(), "172.30.128.0/17 overlap") {
			t.Errorf("%v", err)
		}
	}
	if got := ids(t, n); got != "[]" {
		t.Errorf("listed: %s", got)
	}
}

// TestManyAtOnce: processes that share the table change it at the same time, with the longest lists, and none loses anything.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	host := newNamespace(t)
	const owners, agents = 4, 40
	long := make([]netip.Prefix, netpolicy.MaxEntries)
	for i := range long {
		long[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)
	}
	rules := func(owner, agent int) Rules {
		return Rules{Agent: fmt.Sprintf("a-%d-%d", owner, agent), Addr: netip.AddrFrom4([4]byte{172, 30, byte(owner), byte(agent + 2)}), Allow: long}
	}
	open := func(owner int) *Net {
		n, err := Open(Options{Namespace: host.path(), Owner: fmt.Sprintf("node/%d", owner)})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var wg sync.WaitGroup
	for o := range owners {
		wg.Go(func() {
			n := open(o)
			defer func() { _ = n.Close() }()
			var all []Rules
			for a := range agents {
				all = append(all, rules(o, a))
				if a%10 == 0 {
					if err := n.Apply(t.Context(), testBridge, all[a]); err != nil {
						t.Error(err)
					}
				}
			}
			if _, err := n.Sync(t.Context(), testBridge, all); err != nil {
				t.Error(err)
			}
			if err := n.Remove(t.Context(), n.Agent(testBridge, all[0])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := open(0)
	defer func() { _ = n.Close() }()
	list, err := n.List(t.Context())
	if err != nil || len(list) != owners*(agents-1) {
		t.Fatalf("%d agents, %v", len(list), err)
	}
	stale := Stale(testBridge, list, func(a Agent) bool { return a.Owner != "node/3" })
	if len(stale) != agents-1 {
		t.Errorf("%d stale", len(stale))
	}
	for range owners { // all at the same time, as sweeps of several orchestrators
		wg.Go(func() {
			for _, a := range stale {
				if err := n.Remove(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if list, err = n.List(t.Context()); err != nil || len(list) != (owners-1)*(agents-1) || slices.ContainsFunc(list, func(a Agent) bool { return a.Owner == "node/3" }) {
		t.Errorf("%d agents are left, %v", len(list), err)
	}
}

// TestFailedListingChangesNothing is NET-10: by a deadline, and because the kernel refuses to list.
func TestFailedListingChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.open(t, me)
	one := Rules{Agent: "one", Addr: netip.MustParseAddr(oneAddr)}
	w.apply(t, n, one)
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, err := range []error{failed(n.Sync(late, testBridge, nil)), n.Remove(late, n.Agent(testBridge, one))} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	err := w.host.do(func() error {
		if err := dropCapabilities(); err != nil {
			return err
		}
		powerless := &Net{owner: me, names: n.names} // in the thread's own namespace
		powerless.support.Store(n.support.Load())
		_, list := powerless.List(t.Context())
		for _, err := range []error{list, failed(powerless.Sync(t.Context(), testBridge, nil)), powerless.Remove(t.Context(), n.Agent(testBridge, one))} {
			if !errors.Is(err, errDenied) {
				return fmt.Errorf("without the right to list: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := ids(t, n); got != "[node/me one br-test 172.30.0.2]" {
		t.Errorf("listed: %s", got)
	}
}
