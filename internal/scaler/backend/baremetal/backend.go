//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/wire"
)

// Backend is one bare-metal scaler on this host, as it is configured. It shares what is known of its agents with those that Reload
// makes of it.
type Backend struct {
	*agents
	entry   backend.Entry
	user    *account // nil: the server's own
	work    string   // folder of agents' workspaces; '' = inside their directories
	sets    map[string]backend.Set
	program string // the default executable, reachable for user; set by Prepare, guarded by mu
}

// agents is what is known of a scaler's agents.
type agents struct {
	host   backend.Host
	log    *slog.Logger
	root   string // folder of agents' directories
	boot   string
	exits  chan string
	system // what holds agents together on this operating system

	mu      sync.Mutex
	boxed   *wire.SandboxReport // what a sandbox enforces here; nil until it was tried
	watched map[string]*process // identified processes
	locks   map[string]*agentLock
}

// agentLock serialises Create and Delete of one agent.
type agentLock struct {
	mu    sync.Mutex
	users int
}

// privateWork is where workspaces of another user are: the data directory is closed to that user.
const privateWork = "/var/tmp"

// privateRoot is the folder there that is this node's alone.
func privateRoot(node string) string { return filepath.Join(privateWork, "kici-agents-"+short(node)) }

// programFolder of the folder of workspaces holds a copy of the agents' program.
const programFolder = ".bin"

func open(e backend.Entry, h backend.Host, f facts) (*Backend, error) {
	a := &agents{
		host: h, log: h.Log.With("component", "baremetal", "scaler", e.Name), root: filepath.Join(h.Dir, "agents"),
		exits: make(chan string, 256), watched: map[string]*process{}, locks: map[string]*agentLock{},
	}
	b, err := a.configured(e, f)
	if err != nil {
		return nil, err
	}
	if a.boot, err = bootID(); err != nil {
		return nil, err
	}
	a.openSystem()
	if err := os.MkdirAll(a.root, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of agents: %w", err)
	}
	return b, nil
}

// configured is the backend as an entry says.
func (a *agents) configured(e backend.Entry, f facts) (*Backend, error) {
	user, err := identity(e, f)
	if err != nil {
		return nil, err
	}
	b := &Backend{agents: a, entry: e, user: user, work: e.Options.String(keyWorkDir), sets: map[string]backend.Set{}, program: a.host.Binary}
	if b.work == "" && user != nil {
		b.work = privateRoot(a.host.NodeID)
	}
	for _, s := range e.Sets {
		if _, twice := b.sets[s.Key]; !twice { // the first of equals wins (CF-7)
			b.sets[s.Key] = s
		}
	}
	return b, nil
}

// Reload implements backend.Reloader. Every key can change: an agent's record says where its things are.
func (b *Backend) Reload(e backend.Entry) (backend.Backend, error) {
	return b.configured(e, realFacts())
}

// Capabilities implements backend.Backend.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{Type: Type, SpawnsOnHost: true, SurvivesRestart: true, Volume: b.volume(), Protections: b.protections()}
}

// volume is where workspaces are, as far as the folder is there.
func (b *Backend) volume() string {
	for dir := b.work; dir != "" && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return b.root
}

// protections says plainly what is not protected (BM-3, DESIGN §9).
func (b *Backend) protections() []string {
	if b.entry.Retiring {
		return nil
	}
	return append(b.openings(), b.systemSentences()...)
}

// openings are what jobs reach of the machine beyond their own.
func (b *Backend) openings() []string {
	if confines(b.entry) {
		return b.boxOpenings()
	}
	out := []string{"agents are processes of this machine: jobs see its files and its network"}
	switch {
	case b.user != nil:
		out = append(out, "agents run as "+b.user.name+": jobs can reach each other's files and processes, and whatever else that user may")
	case os.Geteuid() == 0:
		out = append(out, "agents run as root (allowRoot): a job can do anything on this machine")
	default:
		out = append(out, "agents run as the server's own user: a job can read and change the data directory "+b.host.Dir+", its master key and database included")
	}
	return out
}

// boxOpenings are what a sandbox leaves open here.
func (b *Backend) boxOpenings() []string {
	out := []string{"a sandbox shares this machine's kernel, and the system in it can be read, most of /etc included"}
	for _, set := range b.entry.Sets {
		switch c := confinementOf(b.entry, set, b.host.Dir); {
		case c == nil:
			out = append(out, "agents of ["+set.Key+"] run jobs without a sandbox: they see this machine's files and its network")
		case c.network == ci.NetworkHost:
			out = append(out, "the sandbox of ["+set.Key+"] has this machine's network")
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxed != nil {
		out = append(out, b.boxed.Missing...)
	}
	return out
}

// Plan implements backend.Backend.
func (b *Backend) Plan(s backend.Spec) (json.RawMessage, error) {
	if !agentID().MatchString(s.AgentID) {
		return nil, fmt.Errorf("%w: agent id %q", backend.ErrRefused, s.AgentID)
	}
	if err := b.unready(); err != nil {
		return nil, err
	}
	return b.plan(s.AgentID).encode(), nil
}

func (b *Backend) plan(id string) record {
	r := record{Scaler: b.entry.Name, Work: filepath.Join(b.dir(id), workFolder), Boot: b.boot}
	if b.work != "" {
		r.Work = filepath.Join(b.work, id)
	}
	b.planSystem(id, &r)
	return r
}

func (b *Backend) dir(id string) string { return filepath.Join(b.root, id) }

// List implements backend.Backend.
func (b *Backend) List(ctx context.Context) ([]backend.Instance, error) {
	entries, err := os.ReadDir(b.root)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	var out []backend.Instance
	known := map[string]bool{}
	for _, e := range entries {
		id := strings.TrimPrefix(e.Name(), newPrefix)
		if !agentID().MatchString(id) || known[id] {
			continue
		}
		known[id] = true
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, ok, err := readRecord(b.dir(id))
		switch {
		case errors.Is(err, errNoRecord), err == nil && !ok:
			out = append(out, b.remnant(id, "a folder without a record", backend.Workspace))
		case err != nil:
			return nil, err
		case r.Scaler == b.entry.Name:
			out = append(out, b.instance(ctx, id, r))
		}
	}
	out = append(out, b.orphanUnits(ctx, known)...)
	return append(out, b.remnants(known)...), nil
}

// remnant is what is left of an agent whose record was lost: nobody knows whose it was, but that it was this node's. Whatever it is, its
// agent cannot go on: it is ended.
func (b *Backend) remnant(id, what string, holds ...backend.Resource) backend.Instance {
	return backend.Instance{AgentID: id, Launch: b.plan(id).encode(), Unstarted: true, Detail: what, Holds: holds}
}

// remnants finds what is in this node's own folders and belongs to no record: an agent's record is made first and removed last.
func (b *Backend) remnants(known map[string]bool) (out []backend.Instance) {
	found := b.strayLeaves(known)
	for id := range found {
		known[id] = true
	}
	out = slices.Collect(maps.Values(found))
	if b.work != privateRoot(b.host.NodeID) { // another folder may be shared with other nodes
		return out
	}
	entries, err := os.ReadDir(b.work)
	if err != nil {
		return out
	}
	for _, e := range entries {
		if id := e.Name(); agentID().MatchString(id) && !known[id] {
			out = append(out, b.remnant(id, "a workspace without a record", backend.Workspace))
		}
	}
	return out
}

// holds names what a recorded agent is made of.
func holds(r record, running bool) []backend.Resource {
	out := []backend.Resource{backend.Workspace} // its folder at least
	if running {
		out = append(out, backend.Process)
	}
	switch _, err := os.Stat(r.Cgroup); {
	case r.Unit != "" && running:
		out = append(out, backend.Scope)
	case r.Unit == "" && r.Cgroup != "" && err == nil:
		out = append(out, backend.Cgroup)
	}
	return out
}

// instance says what is with one agent now.
func (b *Backend) instance(ctx context.Context, id string, r record) backend.Instance {
	inst := backend.Instance{AgentID: id, Launch: r.encode()}
	output := filepath.Join(b.dir(id), logFile)
	p := b.find(id, r)
	if p != nil && !p.gone() {
		inst.Running, inst.Detail, inst.Holds = true, fmt.Sprintf("pid %d", r.Pid), holds(r, true)
		if err := trimLog(output); err != nil {
			b.log.Warn("trim agent output", "agent_id", id, "err", err)
		}
		return inst
	}
	inst.Unstarted, inst.Holds = !r.Ready, holds(r, false)
	if p != nil {
		inst.Detail = p.exit()
	}
	if !strings.HasPrefix(inst.Detail, exitedWith) { // killed, or by a process that was not our child
		if why := b.blame(ctx, r); why != "" {
			inst.Detail = strings.TrimPrefix(inst.Detail+": "+why, ": ")
		}
	}
	inst.Tail = tail(output)
	return inst
}

// find returns the identified process of a record, nil when it is dead or another has its pid.
func (b *Backend) find(id string, r record) *process {
	if r.Pid == 0 || r.Boot != b.boot {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.watched[id]; p != nil && p.pid == r.Pid && p.start == r.Start {
		return p
	}
	p, err := openProcess(r.Pid, r.Start, func() { b.exited(id) })
	if err != nil {
		if !errors.Is(err, errNoProcess) {
			b.log.Warn("identify agent process", "agent_id", id, "err", err)
		}
		return nil
	}
	b.keep(id, p)
	return p
}

// keep remembers a process; mu is held.
func (b *Backend) keep(id string, p *process) {
	if old := b.watched[id]; old != nil {
		old.close()
	}
	b.watched[id] = p
}

// exited hints that an agent is dead.
func (b *Backend) exited(id string) {
	select {
	case b.exits <- id:
	default: // only a hint, and the reader is behind anyway
	}
}

// Exits implements backend.Watcher.
func (b *Backend) Exits() <-chan string { return b.exits }

// Close implements backend.Closer.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, p := range b.watched {
		p.close()
		delete(b.watched, id)
	}
	b.closeSystem()
	return nil
}

// lock takes an agent for Create or Delete.
func (b *Backend) lock(id string) (unlock func()) {
	b.mu.Lock()
	l := b.locks[id]
	if l == nil {
		l = &agentLock{}
		b.locks[id] = l
	}
	l.users++
	b.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(b.locks, id)
		}
	}
}
