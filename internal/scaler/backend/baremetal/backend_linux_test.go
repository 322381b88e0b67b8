package baremetal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/backendtest"
)

// rig is one host under test.
type rig struct {
	t       *testing.T
	dir     string
	options backend.Options
	env     map[string]string
	groups  bool // false: as on a host without cgroups
}

func newRig(t *testing.T, groups bool) *rig {
	if groups {
		base, held, err := cgroupBase("0000-" + t.Name()[:4] + "test")
		if err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		_ = held.Close()
		_ = os.Remove(base)
	}
	return &rig{t: t, dir: t.TempDir(), options: backend.Options{keyAllowRoot: true}, env: map[string]string{}, groups: groups}
}

func (r *rig) open(scaler string) *Backend {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	e := backend.Entry{Name: scaler, Options: r.options, Sets: []backend.Set{{Key: "linux", Labels: []string{"linux"}, Env: r.env}}}
	node := "0000-" + filepath.Base(r.dir) + filepath.Base(filepath.Dir(r.dir))
	b, err := open(e, backend.Host{NodeID: node, Dir: r.dir, Binary: self, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Now: time.Now}, realFacts())
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.groups {
		if b.cgroups != "" {
			_ = os.Remove(b.cgroups)
		}
		b.cgroups, b.noGroup = "", "test"
	}
	r.t.Cleanup(func() {
		if b.cgroups != "" {
			_ = os.Remove(b.cgroups)
		}
		_ = b.Close()
	})
	return b
}

func (r *rig) spec(id string) backend.Spec {
	return backend.Spec{AgentID: id, LabelSet: "linux", Labels: []string{"linux"}, Token: "kat_secret", URL: "ws://127.0.0.1:1/ws"}
}

func (r *rig) create(b *Backend, id string) (backend.Instance, record) {
	r.t.Helper()
	inst, err := b.Create(r.t.Context(), r.spec(id))
	if err != nil {
		r.t.Fatal(err)
	}
	var rec record
	if err := json.Unmarshal(inst.Launch, &rec); err != nil {
		r.t.Fatal(err)
	}
	return inst, rec
}

// up waits until the agent has said that it is there.
func (r *rig) up(rec record) string {
	r.t.Helper()
	var text []byte
	r.eventually("the agent is up", func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(rec.Work, "up"))
		_, done := os.Stat(filepath.Join(rec.Work, "cache/readonly"))
		return err == nil && len(text) > 0 && done == nil
	})
	return strings.TrimSpace(string(text))
}

func (r *rig) eventually(what string, fn func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

func (r *rig) list(b *Backend, id string) (backend.Instance, bool) {
	r.t.Helper()
	all, err := b.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(x backend.Instance) bool { return x.AgentID == id })
	if i < 0 {
		return backend.Instance{}, false
	}
	return all[i], true
}

func (r *rig) delete(b *Backend, ref backend.Ref) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	return b.Delete(ctx, ref)
}

// marked lists running processes that carry the agent's mark.
func marked(id string) []int {
	var out []int
	eachMarked([]byte(markName+"="+id), func(pid, fd int) bool {
		if !exited(fd) {
			out = append(out, pid)
		}
		return false
	})
	return out
}

func TestConformance(t *testing.T) {
	for _, groups := range []bool{true, false} {
		name := "without cgroups"
		if groups {
			name = "with cgroups"
		}
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				r := newRig(t, groups)
				return backendtest.Subject{
					Open: func(t *testing.T, scaler string) backend.Backend { return r.open(scaler) },
					Spec: r.spec,
					Kill: func(t *testing.T, id string, launch json.RawMessage) {
						var rec record
						if err := json.Unmarshal(launch, &rec); err != nil {
							t.Fatal(err)
						}
						_ = unix.Kill(rec.Pid, unix.SIGKILL)
					},
					Left: func(id string) (left []string) {
						if _, err := os.Stat(filepath.Join(r.dir, "agents", id)); err == nil {
							left = append(left, "directory")
						}
						for range marked(id) {
							left = append(left, "process")
						}
						return left
					},
				}
			})
		})
	}
}

func TestAgentGetsTokenByDescriptorOnly(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	inst, rec := r.create(b, "scaler-bare-metal-00000001")
	r.up(rec)
	for _, file := range []string{"environ", "cmdline"} {
		data, err := os.ReadFile("/proc/" + strings.TrimPrefix(inst.Detail, "pid ") + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "kat_") {
			t.Errorf("%s shows the token", file)
		}
	}
	if lines := tail(filepath.Join(b.dir(inst.AgentID), logFile)); len(lines) == 0 || lines[0] != "token kat_secret" {
		t.Errorf("the agent said %q", lines)
	}
	if err := r.delete(b, backend.Ref{AgentID: inst.AgentID}); err != nil {
		t.Fatal(err)
	}
}

// XS-27: a dead agent tells how it died and what it said last.
func TestXS27DeathIsSeenWithItsTail(t *testing.T) {
	r := newRig(t, false)
	r.env["HELPER"] = "die"
	b := r.open("one")
	inst, _ := r.create(b, "scaler-bare-metal-00000001")
	select {
	case id := <-b.Exits():
		if id != inst.AgentID {
			t.Errorf("exit of %s", id)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the exit was not reported")
	}
	got, ok := r.list(b, inst.AgentID)
	if !ok || got.Running || got.Unstarted || got.Detail != "exited with 3" {
		t.Errorf("listed as %+v", got)
	}
	if len(got.Tail) != maxTailLines || got.Tail[maxTailLines-1] != "line 99" {
		t.Errorf("tail of %d lines ends %q", len(got.Tail), got.Tail[len(got.Tail)-1])
	}
	if err := r.delete(b, backend.Ref{AgentID: inst.AgentID}); err != nil {
		t.Fatal(err)
	}
}

// An agent that never reads its token tells how it died, not that a pipe broke. Whether it dies before the token comes is chance, so
// the test gives it the time.
func TestDeathBeforeTheTokenTellsHow(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	token, give, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer give.Close()
	shell := launch{path: "/bin/sh", args: []string{"sh", "-c", "exec 3<&-; echo bad interpreter; sleep 0.1; exit 7"}, dir: r.dir}
	p, err := b.run(&record{}, shell, filepath.Join(r.dir, logFile), token)
	_ = token.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r.eventually("the output, by when the pipe is closed", func() bool { return len(tail(filepath.Join(r.dir, logFile))) > 0 })
	err = handOver(t.Context(), give, "kat_secret", p)
	var died *backend.Died
	if !errors.As(err, &died) || !errors.Is(err, backend.ErrGuest) || died.Detail != "exited with 7" {
		t.Fatalf("got %v", err)
	}
}

// Whatever the race, an agent that dies at once is never reported as a broken pipe, and its last words are kept.
func TestAgentThatIsNone(t *testing.T) {
	r := newRig(t, false)
	program := filepath.Join(r.dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho not an agent\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := r.open("one")
	b.program = program
	for i := range 20 {
		id := "scaler-bare-metal-000000" + strconv.Itoa(10+i)
		_, err := b.Create(r.t.Context(), r.spec(id))
		var died *backend.Died
		if errors.As(err, &died) {
			if died.Detail != "exited with 7" || !slices.Equal(died.Tail, []string{"not an agent"}) {
				t.Errorf("it says %q and ended with %q", died, died.Tail)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r.eventually("it is dead", func() bool { inst, _ := r.list(b, id); return !inst.Running })
		if inst, _ := r.list(b, id); inst.Detail != "exited with 7" || !slices.Equal(inst.Tail, []string{"not an agent"}) {
			t.Errorf("listed as %+v", inst)
		}
		if err := r.delete(b, backend.Ref{AgentID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// The agent is killed and leaves children in sessions of their own: they end with it (D19).
func TestLeftoversOfAKilledAgentEnd(t *testing.T) {
	for _, groups := range []bool{true, false} {
		r := newRig(t, groups)
		r.env["HELPER"] = "children"
		b := r.open("one")
		inst, rec := r.create(b, "scaler-bare-metal-0000000c")
		r.up(rec)
		if n := len(marked(inst.AgentID)); n != 4 {
			t.Fatalf("%d processes, want the agent and 3 children", n)
		}
		_ = unix.Kill(rec.Pid, unix.SIGKILL)
		r.eventually("the agent is dead", func() bool { got, _ := r.list(b, inst.AgentID); return !got.Running })
		if n := len(marked(inst.AgentID)); n != 3 {
			t.Errorf("%d children survive the agent, want 3: the test shows nothing", n)
		}
		if err := r.delete(b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch}); err != nil {
			t.Fatal(err)
		}
		r.eventually("the children are dead", func() bool { return len(marked(inst.AgentID)) == 0 })
		if rec.Cgroup != "" {
			if _, err := os.Stat(rec.Cgroup); err == nil {
				t.Error("the cgroup is left")
			}
		}
	}
}

func TestStubbornAgentIsKilledAfterItsGrace(t *testing.T) {
	r := newRig(t, false)
	r.env["HELPER"] = "stubborn"
	b := r.open("one")
	inst, rec := r.create(b, "scaler-bare-metal-00000001")
	r.up(rec)
	begin := time.Now()
	if err := r.delete(b, backend.Ref{AgentID: inst.AgentID, Grace: 150 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 150*time.Millisecond || took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	if left := marked(inst.AgentID); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// XS-84, XS-91: the pid in the record belongs to a stranger now.
func TestXS84RecycledPidIsNotKilled(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	other := r.open("two")
	stranger, rec := r.create(other, "scaler-bare-metal-0000000a")
	for name, change := range map[string]func(*record){
		"other start time": func(x *record) { x.Start-- },
		"other boot":       func(x *record) { x.Boot = "before" },
	} {
		id := "scaler-bare-metal-0000000b"
		forged := record{Scaler: "one", Work: filepath.Join(b.dir(id), workFolder), Pid: rec.Pid, Start: rec.Start, Boot: rec.Boot, Ready: true}
		change(&forged)
		if err := forged.create(b.dir(id)); err != nil {
			t.Fatal(err)
		}
		if got, ok := r.list(b, id); !ok || got.Running {
			t.Errorf("%s: listed as %+v", name, got)
		}
		if err := r.delete(b, backend.Ref{AgentID: id, Launch: forged.encode()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := r.list(other, stranger.AgentID); !got.Running {
			t.Fatalf("%s: the stranger was killed", name)
		}
	}
	if err := r.delete(other, backend.Ref{AgentID: stranger.AgentID}); err != nil {
		t.Fatal(err)
	}
}

// What nodes left that were killed goes at the next start on the machine; what a living node or a living agent has stays.
func TestCgroupsOfDeadNodesAreRemoved(t *testing.T) {
	newRig(t, true)
	node := func(n int) string { return fmt.Sprintf("01970000-0000-7000-8000-%012x", 0xc1c100000000+n) }
	folder := func(n int) (string, *os.File) {
		dir, held, err := cgroupBase(node(n))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = held.Close()
			_ = cgroup.Kill(context.Background(), dir)
			_ = cgroup.Remove(context.Background(), dir)
		})
		return dir, held
	}
	dead, held := folder(1)
	_ = held.Close()
	if err := makeLeaf(filepath.Join(dead, "scaler-bare-metal-00000001"), nil); err != nil {
		t.Fatal(err)
	}
	alive, _ := folder(2)
	busy, held := folder(3)
	_ = held.Close()
	leaf := filepath.Join(busy, "scaler-bare-metal-00000002")
	if err := makeLeaf(leaf, nil); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command("sleep", "60")
	f, err := os.Open(leaf)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	agent.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	job := filepath.Join(filepath.Dir(dead), "kici-job-c1c1c1c1c1c1-1")
	if err := cgroup.Make(job); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(job) }()

	own, _ := folder(4)
	if n := removeDeadFolders(t.Context(), own); n < 1 {
		t.Errorf("removed %d", n)
	}
	for dir, want := range map[string]bool{dead: false, alive: true, busy: true, own: true, job: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A clean stop leaves no folder behind.
func TestStopRemovesItsCgroup(t *testing.T) {
	r := newRig(t, true)
	b := r.open("one")
	inst, _ := r.create(b, "scaler-bare-metal-00000001")
	dir := b.cgroups
	if err := r.delete(b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// A server that died after the fork but before it gave the token away: the agent leaves by itself, and the start can be repeated.
func TestInterruptedStartCanBeRepeated(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	id := "scaler-bare-metal-00000001"
	rec := b.plan(id)
	if err := rec.create(b.dir(id)); err != nil {
		t.Fatal(err)
	}
	if err := b.makeWork(rec.Work); err != nil {
		t.Fatal(err)
	}
	token, give, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.run(&rec, b.launch(r.spec(id), b.sets["linux"], rec.Work), filepath.Join(b.dir(id), logFile), token)
	if err != nil {
		t.Fatal(err)
	}
	_ = token.Close()
	rec.Pid, rec.Start = p.pid, p.start
	if err := rec.write(b.dir(id)); err != nil {
		t.Fatal(err)
	}
	_ = give.Close() // the server dies
	if !p.wait(20*time.Second, nil) || p.exit() != "exited with 41" {
		t.Fatalf("an agent without a token stays: %q", p.exit())
	}
	p.close()
	if got, ok := r.list(b, id); !ok || got.Running || !got.Unstarted {
		t.Errorf("listed as %+v", got)
	}
	inst, again := r.create(b, id)
	r.up(again)
	if got, _ := r.list(b, id); !got.Running || got.Unstarted {
		t.Errorf("the second start is listed as %+v", got)
	}
	if err := r.delete(b, backend.Ref{AgentID: id, Launch: inst.Launch}); err != nil {
		t.Fatal(err)
	}
}

// A server that died while it made the agent's directory: whoever creates or deletes the agent next takes what is left away.
func TestHalfMadeDirectoryIsMet(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	id := "scaler-bare-metal-00000001"
	half := halfMade(b.dir(id))
	for name, next := range map[string]func(){
		"create": func() {
			inst, again := r.create(b, id)
			r.up(again)
			if err := r.delete(b, backend.Ref{AgentID: id, Launch: inst.Launch}); err != nil {
				t.Fatal(err)
			}
		},
		"delete": func() {
			if err := r.delete(b, backend.Ref{AgentID: id, Launch: b.plan(id).encode()}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if err := os.MkdirAll(filepath.Join(half, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		next()
		if _, err := os.Lstat(half); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s left %s: %v", name, half, err)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	r := newRig(t, false)
	r.env["HELPER"] = "chatty"
	b := r.open("one")
	inst, rec := r.create(b, "scaler-bare-metal-00000001")
	r.up(rec)
	path := filepath.Join(b.dir(inst.AgentID), logFile)
	if info, err := os.Stat(path); err != nil || info.Size() <= maxLogBytes {
		t.Fatalf("the agent wrote %v: the test shows nothing", info.Size())
	}
	r.list(b, inst.AgentID)
	info, err := os.Stat(path)
	if err != nil || info.Size() > 2*keepLogBytes {
		t.Errorf("the file has %d bytes", info.Size())
	}
	if lines := tail(path); lines[len(lines)-1] != "the end" {
		t.Errorf("the end was lost: %q", lines[len(lines)-1])
	}
	if err := r.delete(b, backend.Ref{AgentID: inst.AgentID}); err != nil {
		t.Fatal(err)
	}
}

func TestRefusalsAreDeterministic(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	for name, change := range map[string]func(*backend.Spec){
		"unknown set": func(s *backend.Spec) { s.LabelSet = "gpu" },
		"bad id":      func(s *backend.Spec) { s.AgentID = "../x" },
	} {
		s := r.spec("scaler-bare-metal-00000001")
		change(&s)
		if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.program = filepath.Join(r.dir, "missing")
	if _, err := b.Create(t.Context(), r.spec("scaler-bare-metal-00000001")); !errors.Is(err, backend.ErrRefused) {
		t.Errorf("missing executable: %v", err)
	}
	if left, _ := os.ReadDir(b.root); len(left) > 0 {
		t.Errorf("failed starts left %v", left)
	}
}

// D14: as another user, with a workspace of that user's and no way into the data directory.
func TestRunsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, groups := range []bool{true, false} {
		r := newRig(t, groups)
		r.options = backend.Options{keyRunAs: "nobody"}
		b := r.open("one")
		t.Cleanup(func() { _ = os.RemoveAll(b.work) })
		if err := b.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		inst, rec := r.create(b, "scaler-bare-metal-00000001")
		up := r.up(rec)
		if !strings.HasSuffix(up, " 65534") {
			t.Errorf("the agent runs as %q", up)
		}
		info, err := os.Stat(rec.Work)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("work directory: %v %v", info.Mode(), err)
		}
		if groups != (rec.Cgroup != "") {
			t.Errorf("cgroup %q", rec.Cgroup)
		}
		if err := r.delete(b, backend.Ref{AgentID: inst.AgentID, Launch: inst.Launch}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(rec.Work); err == nil {
			t.Error("the work directory is left")
		}
	}
}

// XS-56: the server is killed with SIGKILL. Its agent goes on; the next server finds it by evidence, sees its exit although it is
// not its child, and ends it.
func TestAgentOutlivesAKilledServer(t *testing.T) {
	for _, groups := range []bool{true, false} {
		r := newRig(t, groups)
		old := exec.Command(os.Args[0], "server", r.dir)
		out, err := old.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
			t.Fatalf("the server says %q: %v", line, err)
		}
		_ = old.Process.Kill()
		_ = old.Wait()

		b := r.open("one")
		var rec record
		inst, ok := r.list(b, killedAgent)
		if !ok || !inst.Running || json.Unmarshal(inst.Launch, &rec) != nil {
			t.Fatalf("listed as %+v", inst)
		}
		r.up(rec)
		if groups { // killed by somebody else: the exit is seen
			_ = unix.Kill(rec.Pid, unix.SIGKILL)
			select {
			case <-b.Exits():
			case <-time.After(20 * time.Second):
				t.Fatal("the exit was not reported")
			}
			if dead, _ := r.list(b, killedAgent); dead.Running || dead.Unstarted {
				t.Errorf("listed as %+v", dead)
			}
		}
		if err := r.delete(b, backend.Ref{AgentID: killedAgent, Launch: inst.Launch}); err != nil {
			t.Fatal(err)
		}
		if left := marked(killedAgent); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if rec.Cgroup != "" {
			_ = os.Remove(filepath.Dir(rec.Cgroup))
		}
	}
}

// TestReload: agents of before and after a change are found and ended by what replaces the backend, wherever their things are.
func TestReload(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	_, old := r.create(b, "scaler-bare-metal-00000001")
	r.up(old)
	work := filepath.Join(t.TempDir(), "work")
	options := backend.Options{keyAllowRoot: true, keyWorkDir: work}
	set := backend.Set{Key: "linux", Labels: []string{"linux"}, Env: map[string]string{}}
	next, err := b.Reload(backend.Entry{Name: "one", Options: options, Sets: []backend.Set{set}})
	if err != nil {
		t.Fatal(err)
	}
	after := next.(*Backend)
	if err := after.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, young := r.create(after, "scaler-bare-metal-00000002")
	r.up(young)
	if filepath.Dir(young.Work) != work || filepath.Dir(old.Work) == work {
		t.Errorf("workspaces %s and %s", old.Work, young.Work)
	}
	for _, id := range []string{"scaler-bare-metal-00000001", "scaler-bare-metal-00000002"} {
		if inst, ok := r.list(after, id); !ok || !inst.Running {
			t.Errorf("%s: %+v", id, inst)
		}
		if err := r.delete(after, backend.Ref{AgentID: id}); err != nil && !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
		if _, ok := r.list(b, id); ok || len(marked(id)) > 0 {
			t.Errorf("%s is left", id)
		}
	}
	if left, _ := os.ReadDir(work); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
