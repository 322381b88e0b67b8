// Package fake is a backend whose agents are entries of a map, or goroutines if somebody supplies them: for tests, benches and
// simulation. The Host outlives the backends that a node makes on it, as a machine outlives the orchestrator's process.
package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Type is the backend's type in scalers.yaml.
const Type = "fake"

// Host is a machine. The hooks may be nil; they are called without a lock held and may block. Set them before use.
type Host struct {
	OnCreate  func(context.Context, backend.Spec) error // before anything is made; an error is Create's
	OnDelete  func(context.Context, backend.Ref) error  // before anything is removed
	OnList    func(scaler string) error                 // an error is List's
	OnPrepare func(scaler string) error
	OnReload  func(backend.Entry) error        // an error is Reload's
	Start     func(backend.Spec) (stop func()) // runs an agent in this process until stop
	Volume    string                           // Capabilities.Volume
	// OnCollect makes the backends backend.Collectors.
	OnCollect func(context.Context, backend.Collect) ([]backend.Collected, error)

	mu     sync.Mutex
	things map[string]*thing
}

type thing struct {
	scaler string
	inst   backend.Instance
	spec   backend.Spec
	stop   func()
}

// NewHost returns an empty machine.
func NewHost() *Host { return &Host{things: map[string]*thing{}} }

// Kind plugs the host in.
func (h *Host) Kind() backend.Kind {
	return backend.Kind{
		Type: Type, HostPlatform: true,
		New: func(e backend.Entry, _ backend.Host) (backend.Backend, error) {
			return h.dressed(&Backend{host: h, scaler: e.Name, exits: make(chan string, 64)}), nil
		},
	}
}

// Backend is one scaler on a Host.
type Backend struct {
	host   *Host
	scaler string
	exits  chan string
}

// Reload implements backend.Reloader.
func (b *Backend) Reload(e backend.Entry) (backend.Backend, error) {
	if b.host.OnReload != nil {
		if err := b.host.OnReload(e); err != nil {
			return nil, err
		}
	}
	return b.host.dressed(&Backend{host: b.host, scaler: b.scaler, exits: b.exits}), nil
}

// collector is a Backend of a host that collects.
type collector struct{ *Backend }

func (h *Host) dressed(b *Backend) backend.Backend {
	if h.OnCollect == nil {
		return b
	}
	return collector{b}
}

// Collect implements backend.Collector.
func (c collector) Collect(ctx context.Context, why backend.Collect) ([]backend.Collected, error) {
	return c.host.OnCollect(ctx, why)
}

type launch struct {
	Scaler string `json:"scaler"`
	Made   bool   `json:"made"`
}

// Plan implements backend.Backend.
func (b *Backend) Plan(backend.Spec) (json.RawMessage, error) {
	return json.Marshal(launch{Scaler: b.scaler})
}

// Create implements backend.Backend.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if b.host.OnCreate != nil {
		if err := b.host.OnCreate(ctx, s); err != nil {
			return backend.Instance{}, err
		}
	}
	made, err := json.Marshal(launch{Scaler: b.scaler, Made: true})
	if err != nil {
		return backend.Instance{}, err
	}
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	if t, ok := b.host.things[s.AgentID]; ok && t.inst.Running {
		return t.inst, nil
	}
	t := &thing{scaler: b.scaler, spec: s, inst: backend.Instance{AgentID: s.AgentID, Launch: made, Running: true, Detail: "fake"}}
	if b.host.Start != nil {
		t.stop = b.host.Start(s)
	}
	b.host.things[s.AgentID] = t
	return t.inst, nil
}

// Delete implements backend.Backend.
func (b *Backend) Delete(ctx context.Context, r backend.Ref) error {
	if b.host.OnDelete != nil {
		if err := b.host.OnDelete(ctx, r); err != nil {
			return err
		}
	}
	b.host.mu.Lock()
	t, ok := b.host.things[r.AgentID]
	if ok && t.scaler == b.scaler {
		delete(b.host.things, r.AgentID)
	}
	b.host.mu.Unlock()
	if !ok || t.scaler != b.scaler {
		return fmt.Errorf("agent %s: %w", r.AgentID, backend.ErrNotFound)
	}
	if t.stop != nil {
		t.stop()
	}
	return nil
}

// List implements backend.Backend.
func (b *Backend) List(context.Context) ([]backend.Instance, error) {
	if b.host.OnList != nil {
		if err := b.host.OnList(b.scaler); err != nil {
			return nil, err
		}
	}
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	var out []backend.Instance
	for _, id := range slices.Sorted(maps.Keys(b.host.things)) {
		if t := b.host.things[id]; t.scaler == b.scaler {
			out = append(out, t.inst)
		}
	}
	return out, nil
}

// Capabilities implements backend.Backend.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{Type: Type, SpawnsOnHost: true, SurvivesRestart: true, Volume: b.host.Volume}
}

// Prepare implements backend.Preparer.
func (b *Backend) Prepare(context.Context) error {
	if b.host.OnPrepare == nil {
		return nil
	}
	return b.host.OnPrepare(b.scaler)
}

// Exits implements backend.Watcher. Nothing is reported: tests drive the loop themselves.
func (b *Backend) Exits() <-chan string { return b.exits }

// Kill makes an agent die by itself, with what List will say about it.
func (h *Host) Kill(id, detail string, tail ...string) {
	h.mu.Lock()
	t := h.things[id]
	var stop func()
	if t != nil {
		t.inst.Running, t.inst.Detail, t.inst.Tail = false, detail, tail
		stop, t.stop = t.stop, nil
	}
	h.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Put places a thing on the host, as an earlier process would have left it.
func (h *Host) Put(scaler string, inst backend.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.things[inst.AgentID] = &thing{scaler: scaler, inst: inst}
}

// Running lists the agents that run, by id.
func (h *Host) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, id := range slices.Sorted(maps.Keys(h.things)) {
		if h.things[id].inst.Running {
			out = append(out, id)
		}
	}
	return out
}

// Things lists everything on the host, running or not, by id.
func (h *Host) Things() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.things))
}

// Spec returns what an agent was created with.
func (h *Host) Spec(id string) (backend.Spec, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.things[id]
	if !ok {
		return backend.Spec{}, false
	}
	return t.spec, true
}
