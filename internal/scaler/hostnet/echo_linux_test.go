package hostnet

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

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

const (
	// What is let through answers within microseconds; what is dropped is waited for this long.
	patience = 400 * time.Millisecond
	// An answer that must come is given more: the machine may be busy.
	longPatience = 10 * time.Second
)

// reaches reports whether an echo comes back: "tcp" or "udp", from inside.
func (ns namespace) reaches(network, addr, port string) bool {
	return ns.asks(network, addr, port, patience)
}

// gets is reaches where the answer should be yes.
func (ns namespace) gets(network, addr, port string) bool {
	return ns.asks(network, addr, port, patience) || ns.asks(network, addr, port, longPatience)
}

func (ns namespace) asks(network, addr, port string, patience time.Duration) bool {
	return ns.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return echo(c, patience)
	}) == nil
}

func echo(c net.Conn, patience time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

// reach are the answers to many questions, asked all at once: "udp 10.9.9.9:53". Those in yes should be yes.
func (ns namespace) reach(questions []string, yes ...string) map[string]bool {
	type answer struct {
		question string
		yes      bool
	}
	answers := make(chan answer)
	for _, q := range questions {
		go func() {
			network, at, _ := strings.Cut(q, " ")
			addr, port, _ := net.SplitHostPort(at)
			ask := ns.reaches
			if slices.Contains(yes, q) {
				ask = ns.gets
			}
			answers <- answer{q, ask(network, addr, port)}
		}()
	}
	out := map[string]bool{}
	for range questions {
		a := <-answers
		out[a.question] = a.yes
	}
	return out
}
