package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
	"github.com/kici-go/kici/internal/service"
)

// machine is the host of one node: agents on it outlive the server that started them.
type machine struct {
	w    *world
	name string
	host *fake.Host

	mu      sync.Mutex
	calls   map[string]uint64
	agents  map[string]*agentProcess
	running map[string]int // by scaler
	late    atomic.Int64   // agents that start although they were given up
}

func newMachine(w *world, name string) *machine {
	m := &machine{w: w, name: name, host: fake.NewHost(), calls: map[string]uint64{}, agents: map[string]*agentProcess{}, running: map[string]int{}}
	m.host.Start = m.start
	return m
}

// kind plugs the machine into one life of its server.
func (m *machine) kind(l *life) backend.Kind {
	k := m.host.Kind()
	inner := k.New
	k.New = func(e backend.Entry, h backend.Host) (backend.Backend, error) {
		b, err := inner(e, h)
		if err != nil {
			return nil, err
		}
		return &faultyBackend{Backend: b.(*fake.Backend), m: m, l: l, scaler: e.Name}, nil
	}
	return k
}

// call numbers what is asked of the machine, so that each has a fault of its own.
func (m *machine) call(what string) (h uint64) {
	m.mu.Lock()
	m.calls[what]++
	n := m.calls[what]
	m.mu.Unlock()
	return m.w.seed.at(m.name+" "+what, n)
}

// faultyBackend is the way from a server to the machine.
type faultyBackend struct {
	*fake.Backend
	m      *machine
	l      *life
	scaler string
}

// Reload implements backend.Reloader.
func (b *faultyBackend) Reload(e backend.Entry) (backend.Backend, error) {
	if err := b.alive(); err != nil {
		return nil, err
	}
	next, err := b.Backend.Reload(e)
	if err != nil {
		return nil, err
	}
	return &faultyBackend{Backend: next.(*fake.Backend), m: b.m, l: b.l, scaler: b.scaler}, nil
}

func (b *faultyBackend) alive() error {
	if b.l.dead.Load() {
		return errDead
	}
	return nil
}

// Create starts an agent, slowly or not at all, or does start it and says that it has not.
func (b *faultyBackend) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	h := b.m.call("create " + s.AgentID)
	time.Sleep(time.Millisecond + upTo(h, 20*time.Millisecond))
	if err := b.alive(); err != nil {
		return backend.Instance{}, err
	}
	kind := uint64(100)
	if b.m.w.faulty() {
		kind = h >> 32 % 100
	}
	if b.m.w.plan.out(b.m.w) {
		kind = h >> 32 % 4 // refused, or a hiccup
	}
	b.m.w.trace.add("create %s by %s fault %d", s.AgentID, b.l.actor, kind)
	if err := refusal(kind); err != nil {
		return backend.Instance{}, err
	}
	switch {
	case kind < 8: // hangs until nobody waits for it any more, and starts the agent then
		<-ctx.Done()
		if err := b.alive(); err != nil {
			return backend.Instance{}, err
		}
		return b.Backend.Create(context.WithoutCancel(ctx), s)
	case kind >= 20 && kind < 24: // gives up, and starts the agent later, when nobody asks for it any more
		b.m.belated(b.Backend, s, quick(3*time.Second)+upTo(h>>8, 40*time.Second))
		return backend.Instance{}, fmt.Errorf("the machine did not answer: %w", backend.ErrInfra)
	case kind >= 8 && kind < 14:
		if err := service.Sleep(ctx, upTo(h>>8, 25*time.Second)); err != nil {
			return backend.Instance{}, err
		}
		if err := b.alive(); err != nil {
			return backend.Instance{}, err
		}
	}
	inst, err := b.Backend.Create(ctx, s)
	if err == nil && kind >= 14 && kind < 17 {
		return backend.Instance{}, fmt.Errorf("started, but the answer was lost: %w", backend.ErrInfra)
	}
	if err == nil && kind >= 17 && kind < 20 {
		b.m.host.Kill(s.AgentID, "exited with 7")
	}
	return inst, err
}

// refusal is what a machine says that does not even try.
func refusal(kind uint64) error {
	switch {
	case kind < 2:
		return fmt.Errorf("the machine says no: %w", backend.ErrRefused)
	case kind < 4:
		return fmt.Errorf("the machine hiccups: %w", backend.ErrInfra)
	case kind < 6:
		return fmt.Errorf("full: %w", backend.ErrNoCapacity)
	}
	return nil
}

// belated starts an agent after a while, whatever has become of the server that wanted it.
func (m *machine) belated(b *fake.Backend, s backend.Spec, after time.Duration) {
	m.late.Add(1)
	m.w.others.Go(func() {
		defer m.late.Add(-1)
		time.Sleep(after)
		if m.w.ending.Load() {
			return
		}
		m.w.trace.add("belated %s", s.AgentID)
		if _, err := b.Create(context.Background(), s); err != nil {
			m.w.violate("harness", "start an agent late: %v", err)
		}
	})
}

// Delete ends an agent, sooner or later.
func (b *faultyBackend) Delete(ctx context.Context, r backend.Ref) error {
	h := b.m.call("delete " + r.AgentID)
	time.Sleep(time.Millisecond + upTo(h, 10*time.Millisecond))
	if err := b.alive(); err != nil {
		return err
	}
	if b.m.w.faulty() {
		switch h >> 32 % 100 {
		case 0, 1, 2, 3, 4:
			return fmt.Errorf("cannot delete just now: %w", backend.ErrInfra)
		case 5, 6:
			<-ctx.Done()
			return ctx.Err()
		case 7, 8, 9:
			if err := service.Sleep(ctx, upTo(h>>8, 15*time.Second)); err != nil {
				return err
			}
		case 10, 11: // done, but the answer is lost
			_ = b.Backend.Delete(ctx, r)
			return fmt.Errorf("the answer was lost: %w", backend.ErrInfra)
		}
	}
	if err := b.alive(); err != nil {
		return err
	}
	return b.Backend.Delete(ctx, r)
}

// List is sometimes not to be had.
func (b *faultyBackend) List(ctx context.Context) ([]backend.Instance, error) {
	h := b.m.call("list " + b.scaler)
	if err := b.alive(); err != nil {
		return nil, err
	}
	if b.m.w.faulty() && h%100 < 3 {
		return nil, backend.ErrInfra
	}
	return b.Backend.List(ctx)
}

// start is the machine's: it runs an agent and returns how to kill it. The host's lock is held.
func (m *machine) start(s backend.Spec) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls["boot "+s.AgentID]++
	a := &agentProcess{m: m, id: s.AgentID, actor: fmt.Sprintf("%s/%d", s.AgentID, m.calls["boot "+s.AgentID]), spec: s}
	m.agents[s.AgentID] = a
	m.w.agents.Go(a.run)
	return a.kill
}

// clear ends everything on the machine.
func (m *machine) clear() {
	for _, id := range m.host.Running() {
		m.host.Kill(id, "the world has ended")
	}
}
