package engines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m, func(m *testing.M) int { return m.Run() }) }

// program is the real one.
var program = built("kici", "github.com/kici-go/kici/cmd/kici")

// built builds a program once for the whole run.
func built(name, source string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(enginetest.Dir(), name)
		cmd := exec.Command("go", "build", "-o", path, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return path, nil
	})
}

const workflow = `name: ci
on: workflow_dispatch
jobs:
  short:
    runs-on: linux
    checkout: false
    outputs: {who: "${{ steps.me.outputs.who }}"}
    steps:
      - run: |
          echo "hello from $(hostname)"; test ! -e /bin/git
          busybox nc -w 1 172.30.0.1 9 </dev/null || true
      - id: me
        run: echo "who=$(id -u)" >> "$KICI_OUTPUT"
`

const longWorkflow = `name: long
on: workflow_dispatch
jobs:
  long:
    runs-on: linux
    checkout: false
    steps:
      - run: |
          echo begun
          until [ -e /shared/go ]; do sleep 0.1; done
          echo went on
`

const greedyWorkflow = `name: greedy
on: workflow_dispatch
jobs:
  greedy:
    runs-on: linux
    checkout: false
    steps:
      - run: |
          x=y
          while :; do x="$x$x$x$x"; done
`

const ownImageWorkflow = `name: own
on: workflow_dispatch
jobs:
  own:
    runs-on: linux
    checkout: false
    container: {image: localhost/kici-own:1, env: {OF_JOB: two}}
    steps:
      - run: echo "$OF_IMAGE and $OF_JOB as $(id -u)"
`

const scalers = `version: 1
scalers:
  - name: box
    type: container
    maxAgents: 4
    socketPath: %s
    networkIsolation: %v
    minFreeDisk: %s
    labelSets:
      - labels: [linux]
        image: %s
        imagePullPolicy: %s
        volumes: [%q]
        resources: {limits: {cpus: 1, memory: 256m}}
`

// world is a server, as a process, on an engine.
type world struct {
	mu      sync.Mutex // guards cmd and exited
	t       *testing.T
	e       *enginetest.Engine
	dir     string
	port    string
	program func() (string, error)
	cmd     *exec.Cmd
	exited  chan struct{}
	log     logBuffer
	api     *client.Client
}

// setup is what differs between worlds; the zero value is Docker's or Podman's socket and the busybox image.
type setup struct {
	isolated bool
	socket   string
	image    string
	pull     string                 // imagePullPolicy
	floor    string                 // minFreeDisk
	program  func() (string, error) // nil is the real one
}

func newWorld(t *testing.T, e *enginetest.Engine, isolated bool) *world {
	t.Helper()
	w := makeWorld(t, e, setup{isolated: isolated})
	w.open()
	return w
}

// makeWorld makes everything but the server.
func makeWorld(t *testing.T, e *enginetest.Engine, s setup) *world {
	t.Helper()
	e.Import(t, enginetest.Busybox)
	w := &world{t: t, e: e, dir: t.TempDir(), program: s.program}
	if w.program == nil {
		w.program = program
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, w.port, _ = net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	w.write("data/scalers.yaml", fmt.Sprintf(scalers, cmp.Or(s.socket, e.Socket), s.isolated, cmp.Or(s.floor, "1m"),
		cmp.Or(s.image, enginetest.Busybox), cmp.Or(s.pull, "Never"), w.file("shared")+":/shared"))
	w.write("shared/kept", "")
	for name, text := range map[string]string{"ci": workflow, "long": longWorkflow, "greedy": greedyWorkflow, "own": ownImageWorkflow, "counted": countedWorkflow, "storm": stormWorkflow, "filling": fillingWorkflow} {
		w.write("repo/.kici/workflows/"+name+".yaml", text)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		cmd := exec.Command("git", append([]string{"-C", w.file("repo"), "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	t.Cleanup(w.cleanUp)
	return w
}

// open starts the server for the first time.
func (w *world) open() {
	w.t.Helper()
	w.start()
	if _, err := w.api.AddSource(w.t.Context(), client.NewSource{Kind: "local", Name: "shop", Path: w.file("repo")}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.file(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.file(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// start starts the server and waits until it is ready.
func (w *world) start() {
	w.t.Helper()
	w.launch()
	w.until("the server is ready", w.ready)
	w.connect()
}

// launch starts the server.
func (w *world) launch() {
	w.t.Helper()
	path, err := w.program()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, "server", "--data-dir", w.file("data"), "--port", w.port, "--log-format", "text")
	cmd.Stdout, cmd.Stderr = &w.log, &w.log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	exited := make(chan struct{})
	w.cmd, w.exited = cmd, exited
	go func() { _ = cmd.Wait(); close(exited) }()
}

func (w *world) url() string { return "http://127.0.0.1:" + w.port }

func (w *world) ready() bool {
	resp, err := http.Get(w.url() + "/ready")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (w *world) connect() {
	w.t.Helper()
	token, err := os.ReadFile(w.file("data/admin.token"))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.api, err = client.New(client.Config{URL: w.url(), Token: strings.TrimSpace(string(token))}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) dead() bool {
	w.mu.Lock()
	exited := w.exited
	w.mu.Unlock()
	select {
	case <-exited:
		return true
	default:
		return false
	}
}

// kill is kill -9. The server may be dead already.
func (w *world) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.cmd.Process.Kill()
	<-w.exited
}

func (w *world) cleanUp() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
	// The engine may still be at what the server has asked it for, so one look is not enough.
	var err error
	for deadline := time.Now().Add(30 * time.Second); len(w.containers()) > 0; time.Sleep(50 * time.Millisecond) {
		for _, c := range w.containers() {
			_, err = w.e.API.ContainerRemove(context.Background(), c, moby.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
		if time.Now().After(deadline) {
			w.t.Errorf("containers are left: %v", err)
			break
		}
	}
	_, _ = w.e.API.NetworkRemove(context.Background(), "kici-agent-net", moby.NetworkRemoveOptions{})
	if w.t.Failed() {
		w.t.Logf("the server said:\n%s", &w.log)
	}
}

// containers are the agents on the engine.
func (w *world) containers() (ids []string) {
	list, err := w.e.API.ContainerList(context.Background(), moby.ContainerListOptions{All: true, Filters: moby.Filters{}.Add("label", "kici-managed=true")})
	if err != nil {
		w.t.Error(err)
	}
	for _, c := range list.Items {
		ids = append(ids, c.ID)
	}
	return ids
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

func (w *world) startRun(workflow string) string {
	w.t.Helper()
	r, err := w.api.Start(w.t.Context(), client.StartRequest{Source: "shop", Workflow: workflow}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return r.RunID
}

func (w *world) run(id string) client.RunDetail {
	w.t.Helper()
	d, err := w.api.Run(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// ended waits for the end of a run.
func (w *world) ended(id string) client.RunDetail {
	w.t.Helper()
	var d client.RunDetail
	w.until("the run ends", func() bool { d = w.run(id); return ci.RunStatus(d.Status).Terminal() })
	return d
}

func (w *world) stepLog(run, job string) string {
	r, err := w.api.RawLog(w.t.Context(), run, job, 1)
	if err != nil {
		return ""
	}
	defer r.Close()
	text, _ := io.ReadAll(r)
	return string(text)
}

// begun starts the long job and waits until its step runs.
func (w *world) begun() string {
	w.t.Helper()
	id := w.startRun("long")
	w.until("the step runs", func() bool {
		d := w.run(id)
		return len(d.Jobs) > 0 && strings.Contains(w.stepLog(id, "long"), "begun")
	})
	return id
}

func show(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

// record is what happened to a run, as its time line says it.
func (w *world) record(id string) string {
	w.t.Helper()
	line, err := w.api.Timeline(w.t.Context(), id, client.TimelineQuery{Limit: 200})
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range line.Entries {
		b.WriteString(e.Text + "\n")
	}
	return b.String()
}

// logBuffer is what servers print; it can be read while they write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
