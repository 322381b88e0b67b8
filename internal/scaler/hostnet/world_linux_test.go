package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own. It is gone with the file, also when the test is killed.
type namespace struct{ *os.File }

// lacks skips a test, or fails it where KICI_TEST_REQUIRE says that this machine must be able to run it.
func lacks(t *testing.T, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "netns") {
		t.Fatalf("%s, and KICI_TEST_REQUIRE names netns", why)
	}
	t.Skip("needs root, network namespaces and iproute2: " + why)
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		lacks(t, err.Error())
	}
	var f *os.File
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EINVAL) {
		lacks(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	ns := namespace{f}
	ns.ip(t, "link set lo up")
	return ns
}

// onThread runs f on an operating-system thread that ends with it, so that what f does to the thread stays there.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// do runs f inside. Sockets that f opens, and programs that it starts, belong to the namespace.
func (ns namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (ns namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// ip runs the ip command inside.
func (ns namespace) ip(t *testing.T, format string, args ...any) {
	t.Helper()
	command := fmt.Sprintf(format, args...)
	err := ns.do(func() error {
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (ns namespace) sysctl(t *testing.T, name, value string) {
	t.Helper()
	err := ns.do(func() error {
		return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) //nolint:gosec // it is there
	})
	if err != nil {
		lacks(t, err.Error())
	}
}

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

// ports are served at every address.
var ports = []string{"53", someport, "7001"}

// serve echoes TCP and UDP on the ports of an address.
func (ns namespace) serve(t *testing.T, addr string) {
	t.Helper()
	for _, port := range ports {
		var l net.Listener
		var p net.PacketConn
		err := ns.do(func() (err error) {
			if l, err = net.Listen("tcp", net.JoinHostPort(addr, port)); err != nil {
				return err
			}
			p, err = net.ListenPacket("udp", net.JoinHostPort(addr, port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(); _ = p.Close() })
		go echoStreams(l)
		go echoPackets(p)
	}
}

func echoStreams(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
	}
}

func echoPackets(p net.PacketConn) {
	b := make([]byte, 100)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = p.WriteTo(b[:n], from)
	}
}

// Something that is let through answers within microseconds; what is dropped is waited for this long.
const patience = 400 * time.Millisecond

// reaches reports whether an echo comes back: "tcp" or "udp", from inside.
func (ns namespace) reaches(network, addr, port string) bool {
	return ns.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return echo(c)
	}) == nil
}

func echo(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

// reach are the answers to many questions, asked all at once: "udp 10.9.9.9:53".
func (ns namespace) reach(questions []string) map[string]bool {
	type answer struct {
		question string
		yes      bool
	}
	answers := make(chan answer)
	for _, q := range questions {
		go func() {
			network, at, _ := strings.Cut(q, " ")
			addr, port, _ := net.SplitHostPort(at)
			answers <- answer{q, ns.reaches(network, addr, port)}
		}()
	}
	out := map[string]bool{}
	for range questions {
		a := <-answers
		out[a.question] = a.yes
	}
	return out
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
