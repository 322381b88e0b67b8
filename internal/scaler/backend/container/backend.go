package container

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Backend is one container scaler of this node, as it is configured. It shares the engine, and what is known of agents, with those that
// Reload makes of it.
type Backend struct {
	*engine
	entry backend.Entry
	sets  map[string]backend.Set
}

func open(e backend.Entry, h backend.Host, f facts) (*Backend, error) {
	if f.goos != "linux" {
		return nil, errNotHere
	}
	at, err := endpointOf(e, h, f)
	if err != nil {
		return nil, err
	}
	eng, err := newEngine(e, h, at)
	if err != nil {
		return nil, err
	}
	return eng.configured(e), nil
}

// endpointOf is where the agents of an entry are. One that is no longer configured has been remembered.
func endpointOf(e backend.Entry, h backend.Host, f facts) (endpoint, error) {
	if e.Retiring {
		if at, ok := recall(h.Dir, e.Name); ok {
			return at, nil
		}
	}
	at, err := choose(e.Options, f)
	if err != nil && (at.URL == "" || e.Options.String(keyHost) != "") {
		return at, err
	}
	if err != nil { // the engine of a configured socket may come back
		h.Log.Warn("the container engine is not there", "scaler", e.Name, "socket", at.socket(), "err", err)
	}
	if !e.Retiring {
		err = remember(h.Dir, e.Name, at)
	}
	return at, err
}

func (g *engine) configured(e backend.Entry) *Backend {
	b := &Backend{engine: g, entry: e, sets: map[string]backend.Set{}}
	for _, s := range e.Sets {
		if _, twice := b.sets[s.Key]; !twice { // the first of equals wins (CF-7)
			b.sets[s.Key] = s
		}
	}
	return b
}

// Reload implements backend.Reloader: label sets may change, which engine it is may not (CF-21).
func (b *Backend) Reload(e backend.Entry) (backend.Backend, error) { return b.configured(e), nil }

// Capabilities implements backend.Backend.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Type: Type, SpawnsOnHost: b.at.local(), SurvivesRestart: true, JobImages: true, Volume: b.volume(), Protections: b.protections(),
	}
}

// protections says plainly what is not protected.
func (b *Backend) protections() []string {
	if b.entry.Retiring {
		return nil
	}
	var out []string
	if !isolated(b.entry) {
		out = append(out, "networkIsolation is off: jobs reach every network that the engine's default network reaches, private ones and this machine among them")
	}
	for _, s := range b.entry.Sets {
		if s.Options.Bool(keyOwnSocket) {
			out = append(out, fmt.Sprintf("containerSocket of label set [%s]: a job can start any container, and so do anything on the machine of the engine", s.Key))
		}
		if v := s.Options.Strings(keyVolumes); len(v) > 0 {
			out = append(out, fmt.Sprintf("label set [%s] shares %d volumes: jobs that follow each other, and the machine, see what a job writes there", s.Key, len(v)))
		}
	}
	if !b.at.local() && b.certificates == "" {
		out = append(out, b.at.String()+" is spoken to without TLS: whoever can listen in between sees agents' tokens")
	}
	return append(out, "containers share the machine's kernel, and jobs run with the engine's default capabilities, as the image's user")
}

// record is what is known of an agent, and what the ledger keeps in agents.launch.
type record struct {
	Container string `json:"container"`    // name
	ID        string `json:"id,omitempty"` // the engine's, once it is made
}

// encode never fails: the fields are plain.
func (r record) encode() json.RawMessage {
	data, _ := json.Marshal(r)
	return data
}

// agentID is what an agent's id looks like; it becomes a name and a label, so nothing else passes.
var agentID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,127}$`) })

// Plan implements backend.Backend.
func (b *Backend) Plan(s backend.Spec) (json.RawMessage, error) {
	if !agentID().MatchString(s.AgentID) {
		return nil, fmt.Errorf("%w: agent id %q", backend.ErrRefused, s.AgentID)
	}
	return record{Container: containerName(s.AgentID)}.encode(), nil
}

// Prepare implements backend.Preparer: the engine answers, the agent's program is where containers can have it, and the network is fenced.
func (b *Backend) Prepare(ctx context.Context) error {
	if err := b.meet(ctx); err != nil {
		return err
	}
	if err := b.program(); err != nil {
		return err
	}
	if !isolated(b.entry) {
		return nil
	}
	return b.fence(ctx)
}

// Exits implements backend.Watcher.
func (b *Backend) Exits() <-chan string { return b.exits }

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Preparer = (*Backend)(nil)
	_ backend.Watcher  = (*Backend)(nil)
	_ backend.Closer   = (*Backend)(nil)
	_ backend.Reloader = (*Backend)(nil)
	_ backend.Sweeper  = (*Backend)(nil)
)
