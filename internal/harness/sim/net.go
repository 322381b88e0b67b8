package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kici-go/kici/internal/service"
)

// network joins the actors. A connection is a pair of ends with a queue each way: what is written arrives later, in order, unless the
// connection breaks before. Writing never waits.
type network struct {
	w *world

	mu        sync.Mutex
	listeners map[int]*listener
	ends      map[*end]struct{}
	dials     map[string]uint64
	cut       map[string]bool // actors that exist no more
	stalled   map[string]time.Time
}

func newNetwork(w *world) *network {
	return &network{
		w: w, listeners: map[int]*listener{}, ends: map[*end]struct{}{}, dials: map[string]uint64{}, cut: map[string]bool{},
		stalled: map[string]time.Time{},
	}
}

// anyPort is the address of a balancer in front of all coordinators.
const anyPort = 999

type listener struct {
	n     *network
	owner *life
	port  int
	queue chan *end
	done  chan struct{}
	once  sync.Once
}

func (n *network) listen(owner *life, port int) *listener {
	l := &listener{n: n, owner: owner, port: port, queue: make(chan *end, 1024), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[port] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		if l.n.listeners[l.port] == l {
			delete(l.n.listeners, l.port)
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.port) }

func address(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// client is an HTTP client of an actor. sent is called before everything that it writes, and may be nil.
func (n *network) client(actor string, sent func()) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return n.dial(ctx, actor, addr, sent) },
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 20 * time.Second, DisableCompression: true,
	}}
}

func (n *network) dial(ctx context.Context, actor, addr string, sent func()) (net.Conn, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dials[actor]++
	name := actor + "#" + strconv.FormatUint(n.dials[actor], 10)
	wait := time.Until(n.stalled[actor])
	n.mu.Unlock()
	if wait > 0 { // what is sent gets nowhere for so long
		if err := service.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
	if err := service.Sleep(ctx, n.w.latency("dial "+name, 0)); err != nil {
		return nil, err
	}
	l := n.find(port, name)
	n.mu.Lock()
	gone := n.cut[actor]
	n.mu.Unlock()
	if l == nil || gone {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := n.pair(name, actor, l)
	near.sent, far.sent = sent, l.owner.sent
	select {
	case l.queue <- far:
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	n.w.trace.add("connect %s %s", name, l.owner.actor)
	return near, nil
}

func (n *network) find(port int, name string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if port != anyPort {
		return n.listeners[port]
	}
	var ports []int
	for p := range n.listeners {
		ports = append(ports, p)
	}
	if len(ports) == 0 {
		return nil
	}
	slices.Sort(ports)
	return n.listeners[ports[n.w.seed.at("balance "+name, 0)%uint64(len(ports))]]
}

func (n *network) pair(name, actor string, l *listener) (near, far *end) {
	near = &end{n: n, name: name + ">", actor: actor, local: address(40000), remote: address(l.port)}
	far = &end{n: n, name: name + "<", actor: l.owner.actor, local: address(l.port), remote: address(40000)}
	near.peer, far.peer = far, near
	near.cond.L, far.cond.L = &near.mu, &far.mu
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[near], n.ends[far] = struct{}{}, struct{}{}
	return near, far
}

// drop ends an actor's connections. Those at the other side are told, unless the whole machine has gone.
func (n *network) drop(actor string, told bool) {
	n.mu.Lock()
	var mine []*end
	for e := range n.ends {
		if e.actor == actor {
			mine = append(mine, e)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(mine, func(a, b *end) int { return compare(a.name, b.name) })
	for _, e := range mine {
		e.breakOff(told)
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// kill ends an actor for good.
func (n *network) kill(actor string, told bool) {
	n.mu.Lock()
	n.cut[actor] = true
	n.mu.Unlock()
	n.drop(actor, told)
}

// stall lets nothing of or to an actor through for a while.
func (n *network) stall(actor string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalled[actor] = time.Now().Add(d)
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.stalled)
}

func (n *network) stalledUntil(a, b string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	until := n.stalled[a]
	if other := n.stalled[b]; other.After(until) {
		until = other
	}
	return until
}

// end is one end of a connection.
type end struct {
	n             *network
	name, actor   string
	local, remote net.Addr
	peer          *end
	sent          func()

	mu       sync.Mutex
	cond     sync.Cond
	in       []byte
	eof      bool
	closed   bool
	broken   bool      // by the network
	silent   bool      // … without anybody being told
	arrives  time.Time // of the last thing on its way to the peer
	writes   uint64
	packet   *packet // the last that was sent
	deadline time.Time
	alarm    *time.Timer
}

func (e *end) Read(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		switch {
		case e.closed:
			return 0, net.ErrClosed
		case !e.deadline.IsZero() && !time.Now().Before(e.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(e.in) > 0:
			k := copy(b, e.in)
			e.in = e.in[k:]
			return k, nil
		case e.broken && !e.silent:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		case e.eof:
			return 0, io.EOF
		}
		e.cond.Wait()
	}
}

func (e *end) Write(b []byte) (int, error) {
	if e.sent != nil {
		e.sent()
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return 0, net.ErrClosed
	}
	if e.broken && !e.silent {
		e.mu.Unlock()
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	lost := e.broken
	e.mu.Unlock()
	if !lost {
		e.send(b)
	}
	return len(b), nil
}

// send puts bytes on their way. What is written at the same instant travels together: it may come from several goroutines, whose
// order must not make a difference.
func (e *end) send(b []byte) {
	e.mu.Lock()
	if p := e.packet; p != nil && p.at.Equal(time.Now()) {
		p.data = append(p.data, b...)
		e.mu.Unlock()
		return
	}
	p := &packet{at: time.Now(), data: slices.Clone(b)}
	e.packet = p
	e.mu.Unlock()
	e.deliver(func(peer *end) {
		peer.in = append(peer.in, p.data...)
	})
}

// packet is what was written at one instant.
type packet struct {
	at   time.Time
	data []byte
}

// deliver does something to the peer when it gets there.
func (e *end) deliver(do func(*end)) {
	e.mu.Lock()
	e.writes++
	n := e.writes
	at := time.Now().Add(e.n.w.latency(e.name, n))
	if until := e.n.stalledUntil(e.actor, e.peer.actor); until.After(at) {
		at = until.Add(e.n.w.latency(e.name, n))
	}
	if !at.After(e.arrives) {
		at = e.arrives.Add(1 + time.Duration(e.n.w.seed.at(e.name, n)%997))
	}
	e.arrives = at
	e.mu.Unlock()
	time.AfterFunc(time.Until(at), func() {
		p := e.peer
		e.mu.Lock()
		lost := e.broken
		e.mu.Unlock()
		if lost {
			return
		}
		e.n.w.trace.add("packet %s %d", e.name, n)
		p.mu.Lock()
		do(p)
		p.cond.Broadcast()
		p.mu.Unlock()
	})
}

func (e *end) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	if e.alarm != nil {
		e.alarm.Stop()
	}
	e.cond.Broadcast()
	broken := e.broken
	e.mu.Unlock()
	e.n.mu.Lock()
	delete(e.n.ends, e)
	e.n.mu.Unlock()
	if !broken {
		e.deliver(func(p *end) { p.eof = true })
	}
	return nil
}

// breakOff is the network's end of a connection: what is on its way is lost.
func (e *end) breakOff(told bool) {
	for _, side := range []*end{e, e.peer} {
		side.mu.Lock()
		side.broken, side.silent = true, side == e.peer && !told
		side.cond.Broadcast()
		side.mu.Unlock()
	}
	e.n.w.trace.add("break %s %v", e.name, told)
}

func (e *end) LocalAddr() net.Addr  { return e.local }
func (e *end) RemoteAddr() net.Addr { return e.remote }

func (e *end) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	if e.alarm != nil {
		e.alarm.Stop()
		e.alarm = nil
	}
	if !t.IsZero() && !e.closed {
		e.alarm = time.AfterFunc(time.Until(t), func() {
			e.mu.Lock()
			e.cond.Broadcast()
			e.mu.Unlock()
		})
	}
	return nil
}

func (e *end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }
func (e *end) SetWriteDeadline(time.Time) error { return nil }

func (e *end) String() string { return fmt.Sprintf("%s (%s)", e.name, e.actor) }
