package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/agent"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store/storetest"
)

// These tests run whole servers in this process; the agents that they start are this test binary again, see TestMain.

const workflows = `
name: ci
on: [push, workflow_dispatch]
env: {GREETING: hello}
jobs:
  build:
    runs-on: linux
    outputs: {answer: "${{ steps.calc.outputs.answer }}"}
    steps:
      - run: echo "$GREETING from ${{ kici.repository }}"; cat README.md; echo "the secret is ${{ secrets.PASSWORD }}"
      - id: calc
        run: echo "answer=42" >> "$KICI_OUTPUT"
  test:
    needs: build
    runs-on: linux
    strategy: {matrix: {n: [1, 2]}}
    steps:
      - run: echo "n=${{ matrix.n }} answer=${{ needs.build.outputs.answer }}"
  broken:
    needs: build
    runs-on: linux
    continue-on-error: true
    steps:
      - run: exit 3
`

const waiting = `
name: waiting
on: workflow_dispatch
jobs:
  long:
    runs-on: linux
    steps:
      - run: |
          touch "$HOME_DIR/started"
          i=0
          until [ -e "$HOME_DIR/go" ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done
          echo "end $i"
        env: {HOME_DIR: "@dir@"}
`

// world is a server with one repository.
type world struct {
	t    *testing.T
	dir  string // data, repository, and the files by which tests talk to steps
	o    Options
	s    *Server
	stop func() error
	api  *client.Client
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	w := &world{t: t, dir: dir, o: Options{DataDir: filepath.Join(dir, "data"), Environ: os.Environ(), Tune: quick}}
	for _, c := range change {
		c(&w.o)
	}
	w.start()
	w.repository()
	if _, err := w.api.AddSource(t.Context(), client.NewSource{Kind: "local", Name: "shop", Path: w.file("repo")}); err != nil {
		t.Fatal(err)
	}
	return w
}

// quick makes waiting short where a test would sit it out.
func quick(t *Tuning) { t.Fleet.BeatEvery = time.Second }

func (w *world) file(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *world) start() {
	w.t.Helper()
	w.s, w.stop = boot(w.t, w.o)
	w.o.Port = w.s.listener.Addr().(*net.TCPAddr).Port // the next start is found by the agents of this one
	var err error
	if w.api, err = client.New(client.Config{URL: w.s.URL(), Token: w.s.AdminToken()}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) git(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "git", append([]string{"-C", w.file("repo"), "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (w *world) repository() {
	w.t.Helper()
	flows := w.file("repo", ".kici", "workflows")
	if err := os.MkdirAll(flows, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(flows, "ci.yaml"): workflows, filepath.Join(flows, "waiting.yaml"): strings.ReplaceAll(waiting, "@dir@", w.dir),
		w.file("repo", "README.md"): "read me\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	w.git("init", "-q", "-b", "main")
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "first commit")
}

func (w *world) startRun(workflow string) string {
	w.t.Helper()
	r, err := w.api.Start(w.t.Context(), client.StartRequest{Source: "shop", Workflow: workflow}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return r.RunID
}

// until polls a run until ok says so.
func (w *world) until(what, runID string, ok func(client.RunDetail) bool) client.RunDetail {
	w.t.Helper()
	var d client.RunDetail
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if d, err = w.api.Run(w.t.Context(), runID); err != nil {
			w.t.Fatal(err)
		}
		if ok(d) {
			return d
		}
	}
	b, _ := json.MarshalIndent(d, "", " ")
	w.t.Fatalf("never %s:\n%s", what, b)
	return d
}

func (w *world) ended(runID string) client.RunDetail {
	w.t.Helper()
	return w.until("ended", runID, func(d client.RunDetail) bool { return ci.RunStatus(d.Status).Terminal() })
}

// running starts the long job and returns when its step has begun.
func (w *world) running() (runID string) {
	w.t.Helper()
	runID = w.startRun("waiting")
	w.until("running", runID, func(client.RunDetail) bool {
		_, err := os.Stat(w.file("started"))
		return err == nil
	})
	return runID
}

func (w *world) release() {
	w.t.Helper()
	if err := os.WriteFile(w.file("go"), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// log is all that a step printed.
func (w *world) log(runID, job string, step int) string {
	w.t.Helper()
	r, err := w.api.RawLog(w.t.Context(), runID, job, step)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// noAgents waits until every managed agent is gone, from the ledger and from the machine.
func (w *world) noAgents() {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		list, err := w.api.Agents(w.t.Context(), false, "", "", 100)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list.Agents) == 0 {
			if left, _ := filepath.Glob(w.file("data", "agents", "*")); len(left) > 0 {
				w.t.Errorf("left on the disk: %v", left)
			}
			return
		}
	}
	w.t.Fatal("agents are left")
}

// agentPid is the process of the one agent that lives.
func (w *world) agentPid() int {
	w.t.Helper()
	rows, err := w.s.store.Read().NodeAgents(w.t.Context(), w.s.data.InstanceID())
	if err != nil || len(rows) != 1 {
		w.t.Fatalf("%d agents, %v", len(rows), err)
	}
	var launch struct{ Pid int }
	if err := json.Unmarshal([]byte(rows[0].Launch), &launch); err != nil || launch.Pid == 0 {
		w.t.Fatalf("launch %s: %v", rows[0].Launch, err)
	}
	return launch.Pid
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// A commit travels all the way: delivery, match, run, needs, matrix, agents, secrets, outputs, logs, result.
func TestE2EPush(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		push(t, newWorld(t, func(o *Options) { o.DatabaseURL = d.Config.URL }))
	})
}

func push(t *testing.T, w *world) {
	if err := w.api.SetSecret(t.Context(), "", "PASSWORD", "correct-horse"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.TriggerSource(t.Context(), "shop", "main"); err != nil {
		t.Fatal(err)
	}
	var runID string
	for end := time.Now().Add(20 * time.Second); runID == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, err := w.api.Runs(t.Context(), client.RunQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Runs) > 0 {
			runID = list.Runs[0].ID
		}
	}
	d := w.ended(runID)
	got := map[string]string{}
	ids := map[string]string{}
	for _, j := range d.Jobs {
		got[j.Name], ids[j.Name] = j.Status, j.ID
		if j.Attempt != 1 || j.AgentID == "" || j.LogBytes == 0 {
			t.Errorf("job %s: attempt %d, agent %q, %d bytes of log", j.Name, j.Attempt, j.AgentID, j.LogBytes)
		}
	}
	want := map[string]string{"build": "success", "test (1)": "success", "test (2)": "success", "broken": "failed"}
	if d.Status != "success" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("run %s, jobs %v", d.Status, got)
	}
	text := w.log(runID, ids["build"], 1)
	if !strings.Contains(text, "hello from ") || !strings.Contains(text, "read me") {
		t.Errorf("log of build:\n%s", text)
	}
	if strings.Contains(text, "correct-horse") || !strings.Contains(text, "the secret is ***") {
		t.Errorf("the secret is not masked:\n%s", text)
	}
	if text := w.log(runID, ids["test (2)"], 1); !strings.Contains(text, "n=2 answer=42") {
		t.Errorf("log of test (2):\n%s", text)
	}
	w.noAgents()
}

// DESIGN §9: a stop, and a stop without warning, leave a running job running; its log has every line once.
func TestE2ERestart(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		restart(t, newWorld(t, func(o *Options) { o.DatabaseURL = d.Config.URL }))
	})
}

func restart(t *testing.T, w *world) {
	runID := w.running()
	pid := w.agentPid()
	for range 2 {
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		if !alive(pid) {
			t.Fatal("the agent did not survive the stop")
		}
		w.start()
		w.until("running again", runID, func(d client.RunDetail) bool { return w.s.fleet.Connected() == 1 && d.Jobs[0].Status == "running" })
	}
	w.release()
	d := w.ended(runID)
	if d.Status != "success" || d.Jobs[0].Attempt != 1 {
		t.Errorf("run %s, attempt %d, %s", d.Status, d.Jobs[0].Attempt, d.Jobs[0].Error)
	}
	wantWholeLog(t, w.log(runID, d.Jobs[0].ID, 1))
	w.noAgents()
}

// wantWholeLog checks that the long job's lines are there, once each and in order.
func wantWholeLog(t *testing.T, text string) {
	t.Helper()
	next := 0
	for _, l := range strings.Split(text, "\n") {
		if i := strings.Index(l, "line "); i >= 0 {
			if !strings.HasPrefix(l[i:], fmt.Sprintf("line %d", next)) {
				t.Fatalf("line %d is %q", next, l)
			}
			next++
		}
	}
	if next == 0 || !strings.Contains(text, fmt.Sprintf("end %d", next)) {
		t.Errorf("%d lines and no matching end:\n%s", next, text[max(0, len(text)-300):])
	}
}

// --on-stop end leaves no process, and the next start says why the job failed.
func TestE2EOnStopEnd(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OnStop = OnStopEnd })
	runID := w.running()
	pid := w.agentPid()
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the agent lives on")
	}
	w.start()
	if d := w.ended(runID); d.Status != "failed" || d.Jobs[0].Error == "" {
		t.Errorf("run %s, job error %q", d.Status, d.Jobs[0].Error)
	}
	w.noAgents()
}

func TestE2ECancel(t *testing.T) {
	w := newWorld(t)
	runID := w.running()
	pid := w.agentPid()
	if _, err := w.api.Cancel(t.Context(), runID, false, "enough"); err != nil {
		t.Fatal(err)
	}
	if d := w.ended(runID); d.Status != "cancelled" || d.Jobs[0].Status != "cancelled" {
		t.Errorf("run %s, job %s", d.Status, d.Jobs[0].Status)
	}
	w.noAgents()
	if alive(pid) {
		t.Error("the agent lives on")
	}
}

// XS-55: the agent is killed in a step; the job fails with a reason, nothing is left, and the next job runs.
func TestE2EAgentKilled(t *testing.T) {
	w := newWorld(t)
	runID := w.running()
	if err := syscall.Kill(w.agentPid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d := w.ended(runID)
	if d.Status != "failed" || d.Jobs[0].Error == "" {
		t.Errorf("run %s, job error %q", d.Status, d.Jobs[0].Error)
	}
	t.Logf("reason: %s", d.Jobs[0].Error)
	w.noAgents()
	w.release()
	if d := w.ended(w.startRun("waiting")); d.Status != "success" {
		t.Errorf("the next run: %s", d.Status)
	}
}

// A static agent takes a job that no scaler could, and stays.
func TestE2EStaticAgent(t *testing.T) {
	w := newWorld(t)
	token, err := w.api.CreateAgentToken(t.Context(), client.NewAgentToken{Labels: []string{"special"}})
	if err != nil {
		t.Fatal(err)
	}
	flow := strings.ReplaceAll(workflows, "runs-on: linux", "runs-on: special")
	if err := os.WriteFile(w.file("repo", ".kici", "workflows", "ci.yaml"), []byte(flow), 0o600); err != nil {
		t.Fatal(err)
	}
	w.git("commit", "-q", "-am", "special")
	runID := w.startRun("ci")
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Main(ctx, agent.Config{
			URL: w.s.URL(), Token: token.Token, AgentID: "box", Labels: []string{"special"}, WorkDir: w.file("work"), Version: "test",
			Environ: []string{"PATH=" + os.Getenv("PATH")}, Log: obs.Discard(),
		})
	}()
	if d := w.ended(runID); d.Status != "success" {
		t.Errorf("run %s: %s", d.Status, d.FailureReason)
	}
	list, err := w.api.Agents(t.Context(), false, "", "", 100)
	if err != nil || !slices.ContainsFunc(list.Agents, func(a client.Agent) bool { return a.ID == "box" }) {
		t.Errorf("the static agent is not there: %+v, %v", list.Agents, err)
	}
	leave()
	if err := <-done; err != nil {
		t.Errorf("agent: %v", err)
	}
	w.noAgents()
}

// An agent whose link is cut for a moment goes on.
func TestE2ELinkLost(t *testing.T) {
	p := newProxy(t)
	w := newWorld(t, func(o *Options) { o.AgentURL = "ws://" + p.l.Addr().String() + "/ws" })
	p.target.Store(w.s.listener.Addr().String())
	runID := w.running()
	p.cut()
	w.until("recovering", runID, func(d client.RunDetail) bool { return d.Jobs[0].Status == "recovering" })
	w.until("back", runID, func(d client.RunDetail) bool { return w.s.fleet.Connected() == 1 && d.Jobs[0].Status == "running" })
	w.release()
	d := w.ended(runID)
	if d.Status != "success" || d.Jobs[0].Attempt != 1 {
		t.Errorf("run %s, attempt %d", d.Status, d.Jobs[0].Attempt)
	}
	wantWholeLog(t, w.log(runID, d.Jobs[0].ID, 1))
}

// proxy is a network between agents and server that can be cut.
type proxy struct {
	l      net.Listener
	target atomic.Value // string
	mu     sync.Mutex
	conns  []net.Conn
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // local
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target.Load().(string)) //nolint:noctx // local
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(c[0], c[1])
					_ = c[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// 100,000 lines in a burst all arrive, once each, in order.
func TestE2ELogBurst(t *testing.T) {
	if testing.Short() {
		t.Skip("a large log")
	}
	w := newWorld(t)
	const lines = 100_000
	flow := fmt.Sprintf("name: burst\non: workflow_dispatch\njobs:\n  j:\n    runs-on: linux\n    steps:\n      - run: seq -f 'number %%.0f' %d\n", lines)
	if err := os.WriteFile(w.file("repo", ".kici", "workflows", "burst.yaml"), []byte(flow), 0o600); err != nil {
		t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "burst")
	runID := w.startRun("burst")
	d := w.ended(runID)
	text := w.log(runID, d.Jobs[0].ID, 1)
	next := 1
	for l := range strings.SplitSeq(text, "\n") {
		if i := strings.Index(l, "number "); i >= 0 && !strings.Contains(l, "seq") {
			if !strings.HasSuffix(strings.TrimRight(l, "\"}"), fmt.Sprintf("number %d", next)) {
				t.Fatalf("line %d is %q", next, l)
			}
			next++
		}
	}
	if next != lines+1 || d.Status != "success" {
		t.Errorf("%d lines, run %s", next-1, d.Status)
	}
}

// An agent that has no git gets the files from the server (CT-11).
func TestE2EWithoutGit(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"bash", "cat", "ls"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("SKIPPED: no %s", name)
		}
		if err := os.Symlink(program, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, func(o *Options) { o.Environ = append(os.Environ(), "PATH="+path) })
	d := w.ended(w.startRun("ci"))
	for _, j := range d.Jobs {
		if j.Name != "build" {
			continue
		}
		if text := w.log(d.ID, j.ID, 0); j.Status != "success" || !strings.Contains(text, "there is no git here") {
			t.Errorf("%s: %s\n%s", j.Status, j.Error, text)
		}
		if text := w.log(d.ID, j.ID, 1); !strings.Contains(text, "read me") {
			t.Errorf("%s", text)
		}
	}
	if left, err := os.ReadDir(w.file("data", archivesFolder)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
