package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/hostnet"
)

// engine is a container engine as one scaler uses it, and what is known of the scaler's agents.
type engine struct {
	at           endpoint
	certificates string // folder of the engine's TLS files, "" for none
	api          *engineapi.Client
	host         backend.Host
	scaler       string
	log          *slog.Logger
	exits        chan string
	rules        rules // of networks on this machine; nil for an engine elsewhere
	stop         context.CancelFunc
	stopped      chan struct{}

	ruling    sync.Mutex // held from a listing to the rules that follow from it
	unguarded sync.Once  // said that ports cannot be found out here

	mu      sync.Mutex
	podman  bool                       // what the engine says it is
	binary  string                     // the agent's program on this host
	copied  bool                       // the engine has other files than this process: what an agent needs is copied into it
	root    string                     // folder of the engine's images and containers on this host; '' when it is elsewhere, or not known
	network bridge                     // of isolated agents; zero until it is fenced
	ports   map[string]string          // of the bridge, by agent; '' where it cannot be found out
	refused map[string]hostnet.Refused // by agents that have ended
	locks   map[string]*agentLock
	pulls   map[string]*agentLock // by image
	pulled  map[string]*ongoing   // under way, by image
}

func newEngine(e backend.Entry, h backend.Host, at endpoint) (*engine, error) {
	g := &engine{
		at: at, host: h, scaler: e.Name, log: h.Log.With("component", "container", "scaler", e.Name), exits: make(chan string, 256),
		podman: at.Podman, binary: h.Binary, copied: !at.local(), locks: map[string]*agentLock{}, pulls: map[string]*agentLock{}, pulled: map[string]*ongoing{},
		ports: map[string]string{}, refused: map[string]hostnet.Refused{}, stopped: make(chan struct{}),
	}
	if !at.local() {
		g.certificates = variable(h.Environ, "DOCKER_CERT_PATH")
	}
	var err error
	if g.api, err = engineapi.New(at.URL, g.certificates); err != nil {
		return nil, fmt.Errorf("use the container engine at %s: %w", at.URL, err)
	}
	if at.local() {
		if g.rules, err = openRules(g.owner()); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go g.watch(ctx)
	return g, nil
}

func variable(environ []string, name string) string {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// meet asks the engine who it is.
func (g *engine) meet(ctx context.Context) error {
	v, err := g.api.Version(ctx)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", g.at, err)
	}
	podman := false
	for _, c := range v.Components {
		podman = podman || strings.Contains(c.Name, "Podman")
	}
	root := g.findRoot(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.podman, g.root = podman, root
	return nil
}

// findRoot asks where the engine keeps what it has. Only a folder that is here can be measured; an engine that does not say, or that sees
// other files, has none.
func (g *engine) findRoot(ctx context.Context) string {
	if !g.at.local() {
		return ""
	}
	info, err := g.api.Info(ctx)
	if err != nil {
		g.log.Debug("ask the engine for its folder", "err", err)
		return ""
	}
	if st, err := os.Stat(info.Root); err != nil || !st.IsDir() || !filepath.IsAbs(info.Root) {
		g.log.Debug("the engine's folder is not on this machine: its disk is not looked at", "folder", info.Root, "err", err)
		return ""
	}
	return info.Root
}

// volume is the engine's folder, as long as nothing shows that the engine has other files than this process.
func (g *engine) volume() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.copied {
		return ""
	}
	return g.root
}

// programFolder of the data directory has a copy of the agent's program, where one is needed.
const programFolder = "agent-program"

// program sees to it that every user can execute the agent's program: containers have other users than this machine.
func (g *engine) program() error {
	info, err := os.Stat(g.host.Binary)
	if err != nil {
		return fmt.Errorf("the agent's program: %w", err)
	}
	if info.Mode().Perm()&0o005 == 0o005 {
		return nil
	}
	to := filepath.Join(g.host.Dir, programFolder, "kici")
	if err := backend.CopyProgram(g.host.Binary, to, 0o700); err != nil {
		return fmt.Errorf("copy the agent's program to where containers may execute it: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.binary = to
	return nil
}

// Close implements backend.Closer.
func (g *engine) Close() error {
	g.stop()
	<-g.stopped
	g.api.Close()
	if g.rules == nil {
		return nil
	}
	return g.rules.Close()
}

// agentLock lets one in at a time; users is how many want it.
type agentLock struct {
	free  chan struct{} // holds one element while nobody is in
	users int
}

// lock takes a name for oneself. The lock is gone when nobody wants it any more.
func (g *engine) lock(ctx context.Context, locks map[string]*agentLock, name string) (unlock func(), err error) {
	g.mu.Lock()
	l := locks[name]
	if l == nil {
		l = &agentLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		locks[name] = l
	}
	l.users++
	g.mu.Unlock()
	leave := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(locks, name)
		}
	}
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// busy reports whether somebody has an agent's lock or waits for it.
func (g *engine) busy(agent string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locks[agent] != nil
}

// enginesFolder of the data directory remembers where scalers' engines are, for those that are no longer configured.
const enginesFolder = "engines"

func remember(dir, scaler string, at endpoint) error {
	if have, ok := recall(dir, scaler); ok && have == at {
		return nil
	}
	folder := filepath.Join(dir, enginesFolder)
	data, err := json.Marshal(at)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	path := filepath.Join(folder, scaler+".json")
	if err == nil {
		err = os.WriteFile(path+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return fmt.Errorf("remember the container engine of scaler %s: %w", scaler, err)
	}
	return nil
}

func recall(dir, scaler string) (at endpoint, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, enginesFolder, scaler+".json"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && json.Unmarshal(data, &at) != nil {
		return endpoint{}, false
	}
	return at, err == nil && at.URL != ""
}
