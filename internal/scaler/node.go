package scaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/machinepool"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// Deps is what a Node needs; every field is required.
type Deps struct {
	Store     *store.Store
	Config    *Config
	Load      func() (*Config, []Problem) // reads scalers.yaml again, for Reload
	Kinds     []backend.Kind
	Host      backend.Host
	URL       func() string                       // where agents connect unless their scaler says otherwise (AG-2)
	MintToken func() (token, hash, prefix string) // access.NewAgentToken
	// RegistryLogin is what a job gives for the registry of its image; the zero value when it gives nothing. An error is tried again.
	RegistryLogin func(ctx context.Context, jobID string) (Login, error)
	Pools         *machinepool.Pools // of this machine
	FreeDisk      func(folder string) (bytes int64, err error)
	Settings      Settings
	Limits        func(orgID string) Limits // what may change while the server runs; nil is what Settings say. It answers at once
	Env           service.Env
	Log           *slog.Logger
	Metrics       prometheus.Registerer
}

// Login opens a registry.
type Login struct{ Username, Password string }

// Node owns this process's scalers.
type Node struct {
	d       Deps
	id      string
	log     *slog.Logger
	wake    *service.Wake
	metrics *metrics
	ops     *operations
	chores  *operations // what is collected, by scaler
	orphans *orphanage

	turn    turn // of a tick or reload; guards what follows
	config  *Config
	scalers map[ScalerID]*managed
	order   []ScalerID // configured ones in file order, then retiring ones
	dead    map[string]int64
	closed  bool                       // EndAll was called
	ready   bool                       // rows are published
	adopted bool                       // what was retiring before has been taken up
	settled bool                       // the machine pools have been looked at
	pools   map[string]machinepool.Use // of the configured machine pools
	// unsettled are pools that could not be looked at just now.
	unsettled map[string]bool
	timer     *time.Timer
	// watchNew listens to a backend that came with a reload; nil while Run does not run.
	watchNew func(backend.Backend)

	retryMu sync.Mutex
	retryAt map[string]int64 // after a failed Delete: not before, by agent
}

// managed is one scaler of this node: configured, or retiring because only its agents are left. A reload replaces it, so that what has
// begun ends with the entry that it began with.
type managed struct {
	id       ScalerID
	entry    *Entry // nil when retiring
	backend  backend.Backend
	offers   []placement.LabelSet
	position int
	notReady string // why it is not ready, '' when it is
	prepared bool
	retryAt  int64  // next attempt to prepare
	full     string // why its disk takes no more agents, '' when it does
	quiet    int64  // since when one that retires has had no agent; 0 when it has

	collecting collecting
}

// has reports whether the scaler offers the label set of this key.
func (m *managed) has(key string) bool {
	return slices.ContainsFunc(m.entry.LabelSets, func(s LabelSet) bool { return ci.LabelKey(s.Labels) == key })
}

// warmTargets are the sizes of the warm pools, by scaler and label set.
func (n *Node) warmTargets() map[[2]string]int64 {
	out := map[[2]string]int64{}
	for _, m := range n.scalers {
		if m.entry == nil || !m.entry.WarmPool.Enabled {
			continue
		}
		for _, s := range m.entry.LabelSets {
			out[[2]string{m.id.Name, ci.LabelKey(s.Labels)}] = m.entry.WarmPool.Size
		}
	}
	return out
}

func (m *managed) refuses() string {
	switch {
	case m.entry == nil:
		return "the scaler is retiring"
	case m.notReady != "":
		return m.notReady
	case m.full != "":
		return m.full
	}
	return ""
}

// New builds the backends of the configuration. An error ends start-up (CF-6).
func New(d Deps) (*Node, error) {
	if d.Host.Leaks == nil {
		d.Host.Leaks = new(backend.Leaks)
	}
	n := &Node{
		d: d, config: d.Config, id: d.Host.NodeID, log: d.Log.With("component", "scaler"), wake: service.NewWake(),
		scalers: map[ScalerID]*managed{}, dead: map[string]int64{}, retryAt: map[string]int64{}, turn: newTurn(),
		orphans: newOrphanage(d.Host.Leaks),
	}
	// A look that comes before an agent has left the busy ones skips it: the next is asked for when it has.
	n.ops, n.chores = newOperations(n.wake.Signal), newOperations(n.wake.Signal)
	var err error
	if n.metrics, err = newMetrics(d.Metrics, d.Host.Leaks); err != nil {
		return nil, fmt.Errorf("register scaler metrics: %w", err)
	}
	for i := range d.Config.Scalers {
		e := &d.Config.Scalers[i]
		kind, ok := n.kind(e.Type)
		if !ok {
			return nil, fmt.Errorf("scaler %s: there is no backend %q", e.Name, e.Type)
		}
		b, err := kind.New(e.Backend(), d.Host)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("scaler %s: %w", e.Name, err), n.Close())
		}
		m := &managed{id: ScalerID{e.Name, e.Type}, entry: e, backend: b, position: i, offers: e.offers(kind, Platform{runtime.GOOS, runtime.GOARCH})}
		n.add(m)
	}
	return n, nil
}

func (n *Node) kind(name string) (backend.Kind, bool) {
	for _, k := range n.d.Kinds {
		if k.Type == name {
			return k, true
		}
	}
	return backend.Kind{}, false
}

func (n *Node) add(m *managed) {
	n.scalers[m.id] = m
	n.order = append(n.order, m.id)
}

// Run publishes the scalers, prepares the host and makes the ledger true until ctx ends. Work in progress is given a moment to
// end; agents go on.
func (n *Node) Run(ctx context.Context) error {
	n.announce()
	sub := n.d.Store.Subscribe(store.TopicAgents, n.id)
	defer sub.Close()
	var group sync.WaitGroup
	defer group.Wait()
	forward := func(c <-chan struct{}) {
		group.Go(func() { n.forward(ctx, c) })
	}
	forward(sub.C())
	if err := n.turn.take(ctx); err != nil {
		return nil //nolint:nilerr // stopped before it began
	}
	n.watchNew = func(b backend.Backend) {
		if w, ok := b.(backend.Watcher); ok {
			group.Go(func() { n.watch(ctx, w.Exits()) })
		}
	}
	for _, id := range n.order {
		n.watchNew(n.scalers[id].backend)
	}
	n.turn.give()
	defer n.forget()
	loop := service.Loop{Name: "node", Interval: n.d.Settings.Interval, Wake: n.wake, Log: n.log, Tick: n.tick}
	err := loop.Run(ctx)
	if !n.ops.drain(stopGrace) {
		n.log.Warn("stopped with work in progress") // the next start goes on from what it finds
	}
	return err
}

// stopGrace is how long Run waits for work in progress at its end.
const stopGrace = 5 * time.Second

func (n *Node) forward(ctx context.Context, c <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			n.wake.Signal()
		}
	}
}

func (n *Node) watch(ctx context.Context, exits <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-exits:
			if !ok {
				return
			}
			n.wake.Signal()
		}
	}
}

// announce says in the log what is offered and what is not protected (BM-3, DESIGN §9).
func (n *Node) announce() {
	for _, id := range n.order {
		m := n.scalers[id]
		if m.entry == nil {
			continue
		}
		n.log.Info("scaler", "scaler", m.id.Name, "type", m.id.Type, "max_agents", m.entry.MaxAgents, "label_sets", len(m.offers))
		for _, text := range m.backend.Capabilities().Protections {
			n.log.Warn("not protected", "scaler", m.id.Name, "what", text)
		}
	}
}

// EndAll ends every agent of this node and returns when nothing of them is left, or ctx ends. Nothing new is started any more.
// It works beside Run and after it (--on-stop end).
func (n *Node) EndAll(ctx context.Context) error {
	if err := n.turn.take(ctx); err != nil {
		return n.unfinished(ctx, -1)
	}
	n.closed = true
	n.turn.give()
	if err := n.recordEndAll(ctx); err != nil {
		return fmt.Errorf("end all agents: %w", err)
	}
	left := -1
	for {
		err := n.tick(ctx)
		if err == nil {
			left, err = n.left(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return n.unfinished(ctx, left)
		case err != nil:
			return fmt.Errorf("end all agents: %w", err)
		case left == 0:
			return nil
		}
		pause := time.NewTimer(endAllPoll)
		select {
		case <-ctx.Done():
			pause.Stop()
			return n.unfinished(ctx, left)
		case <-n.wake.C():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// unfinished says that EndAll ran out of time; left is -1 when it never came to count.
func (n *Node) unfinished(ctx context.Context, left int) error {
	if left < 0 {
		return fmt.Errorf("end all agents: %w", context.Cause(ctx))
	}
	return fmt.Errorf("end all agents: %d are left: %w", left, context.Cause(ctx))
}

func (n *Node) setRetry(agent string, at int64) {
	n.retryMu.Lock()
	defer n.retryMu.Unlock()
	n.retryAt[agent] = at
}

// retries returns when failed deletes may be tried again, without those that are over.
func (n *Node) retries(now int64) map[string]int64 {
	n.retryMu.Lock()
	defer n.retryMu.Unlock()
	maps.DeleteFunc(n.retryAt, func(_ string, at int64) bool { return at <= now })
	return maps.Clone(n.retryAt)
}

const endAllPoll = 100 * time.Millisecond

// release closes one backend.
func (n *Node) release(m *managed) {
	if c, ok := m.backend.(backend.Closer); ok {
		if err := c.Close(); err != nil {
			n.log.Warn("close backend", "scaler", m.id.Name, "err", err)
		}
	}
}

// Close releases what the backends hold in this process. Agents go on. Call it once, last.
func (n *Node) Close() error {
	if err := n.turn.take(context.Background()); err != nil {
		return err
	}
	defer n.turn.give()
	n.ops.drain(stopGrace)
	n.chores.cancelAll() // what is not collected now will be
	n.chores.drain(stopGrace)
	for _, m := range n.scalers {
		n.release(m)
	}
	return nil
}
