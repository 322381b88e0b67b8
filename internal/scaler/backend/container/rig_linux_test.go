package container

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/backendtest"
	"github.com/kici-go/kici/internal/scaler/backend/container/engineapi"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, func(m *testing.M) int {
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
				goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait")); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	})
}

// fakeAgent builds the agent of these tests: one static file, as the real one is.
var fakeAgent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(enginetest.Dir(), "fakeagent")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/fakeagent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// rig is one node on an engine.
type rig struct {
	t       *testing.T
	e       *enginetest.Engine
	dir     string
	node    string
	program string
	socket  string
	options backend.Options
	set     backend.Options
	env     map[string]string
	environ []string
	log     *slog.Logger
	ahead   atomic.Int64 // by which the node's clock is
	onNow   func()       // called when the node asks for the time; may be nil
}

func newRig(t *testing.T, e *enginetest.Engine) *rig {
	t.Helper()
	program, err := fakeAgent()
	if err != nil {
		t.Fatal(err)
	}
	e.Import(t, enginetest.Busybox)
	dir := t.TempDir()
	folder := filepath.Join(dir, "agent")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return &rig{
		t: t, e: e, dir: dir, node: "node-" + ci.RandomHex(4), program: program, socket: filepath.Join(folder, "kici.sock"),
		options: backend.Options{keySocket: e.Socket, keyIsolation: false}, set: backend.Options{keyImage: enginetest.Busybox, keyPull: pullNever},
		env: map[string]string{}, log: slog.New(slog.DiscardHandler),
	}
}

func (r *rig) entry(scaler string) backend.Entry {
	return backend.Entry{Name: scaler, Options: r.options, Sets: []backend.Set{{Key: "linux", Labels: []string{"linux"}, Env: r.env, Options: r.set}}}
}

func (r *rig) host() backend.Host {
	return backend.Host{
		NodeID: r.node, Cluster: "test", Dir: r.dir, Binary: r.program, Environ: r.environ, AgentSocket: r.socket, Log: r.log, Now: r.now,
	}
}

func (r *rig) now() time.Time {
	if r.onNow != nil {
		r.onNow()
	}
	return time.Now().Add(time.Duration(r.ahead.Load()))
}

// open makes a backend that its user closes, as the suite does.
func (r *rig) open(t *testing.T, scaler string) *Backend {
	t.Helper()
	b, err := open(r.entry(scaler), r.host(), realFacts())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(r.ctx()); err != nil {
		_ = b.Close()
		t.Fatal(err)
	}
	return b
}

// backend is open, and closed with the test; nothing of its agents is left then.
func (r *rig) backend(scaler string) *Backend {
	b := r.open(r.t, scaler)
	r.t.Cleanup(func() {
		r.t.Helper()
		all, err := b.List(context.Background())
		if err != nil {
			r.t.Errorf("list: %v", err)
		}
		for _, inst := range all {
			if err := b.Delete(context.Background(), backend.Ref{AgentID: inst.AgentID, Grace: time.Second}); err != nil {
				r.t.Errorf("delete: %v", err)
			}
		}
		if err := b.Close(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return b
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

const testToken = "kat_secret"

func (r *rig) spec(id string) backend.Spec {
	return backend.Spec{AgentID: id, LabelSet: "linux", Labels: []string{"linux"}, Token: testToken, URL: "ws://127.0.0.1:1/ws", Socket: r.socket}
}

func (r *rig) create(b *Backend, s backend.Spec) backend.Instance {
	r.t.Helper()
	inst, err := b.Create(r.ctx(), s)
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return inst
}

func (r *rig) list(b *Backend, id string) (backend.Instance, bool) {
	r.t.Helper()
	all, err := b.List(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(x backend.Instance) bool { return x.AgentID == id })
	if i < 0 {
		return backend.Instance{}, false
	}
	return all[i], true
}

// dead waits until an agent is no longer running.
func (r *rig) dead(b *Backend, id string) backend.Instance {
	r.t.Helper()
	var inst backend.Instance
	r.eventually("the agent is dead", func() bool {
		var found bool
		inst, found = r.list(b, id)
		return found && !inst.Running
	})
	return inst
}

func (r *rig) eventually(what string, fn func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !fn(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

func (r *rig) inspect(id string) container.InspectResponse {
	r.t.Helper()
	in, err := r.e.API.ContainerInspect(r.ctx(), containerName(id), client.ContainerInspectOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return in.Container
}

func (r *rig) output(id string) string {
	r.t.Helper()
	api, err := engineapi.New("unix://"+r.e.Socket, "")
	if err != nil {
		r.t.Fatal(err)
	}
	defer api.Close()
	return strings.Join((&engine{api: api, log: r.log}).tail(r.ctx(), containerName(id)), "\n")
}

func (r *rig) kill(t *testing.T, id string) {
	t.Helper()
	if _, err := r.e.API.ContainerKill(r.ctx(), containerName(id), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
}

// left names what the engine has of an agent.
func (r *rig) left(id string) (out []string) {
	list, err := r.e.API.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelAgent+"="+id)})
	if err != nil {
		return []string{err.Error()}
	}
	for _, c := range list.Items {
		out = append(out, fmt.Sprintf("container %s (%s)", c.Names[0], c.State))
	}
	return out
}

func TestConformance(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
			r := newRig(t, e)
			return backendtest.Subject{
				Open: func(t *testing.T, scaler string) backend.Backend { return r.open(t, scaler) },
				Spec: r.spec,
				Kill: func(t *testing.T, id string, _ json.RawMessage) { r.kill(t, id) },
				Left: r.left,
			}
		})
	})
}
