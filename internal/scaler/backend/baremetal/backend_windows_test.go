package baremetal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/backendtest"
)

// These tests run on Windows, or under Wine: GOOS=windows go test -exec scripts/wine.sh.

// TestMain is the agent, too: the backend starts this test binary with the argument "agent".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "agent":
			agent(os.Getenv("HELPER"))
			return
		case "parent":
			start("child")
			return
		case "child":
			_ = os.WriteFile(filepath.Join(os.Getenv("KICI_WORK_DIR"), "child"), []byte(strconv.Itoa(os.Getpid())), 0o600)
			time.Sleep(time.Hour)
			return
		}
	}
	os.Exit(m.Run())
}

// agent takes its token, does something and stays.
func agent(mode string) {
	handle, _ := strconv.Atoi(os.Getenv(tokenVariable))
	f := os.NewFile(uintptr(handle), "token")
	token, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		fmt.Println("no token:", err)
		os.Exit(41)
	}
	_ = f.Close()
	fmt.Println("token", strings.TrimSpace(token))
	switch mode {
	case "die":
		os.Exit(3)
	case "grandchild":
		start("parent")
	}
	_ = os.WriteFile(filepath.Join(os.Getenv("KICI_WORK_DIR"), "up"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	time.Sleep(time.Hour)
}

func start(what string) {
	if err := exec.Command(os.Args[0], what).Start(); err != nil {
		fmt.Println(err)
		os.Exit(42)
	}
}

type rig struct {
	t      *testing.T
	dir    string
	binary string
	env    map[string]string
}

func newRig(t *testing.T) *rig {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, dir: t.TempDir(), binary: self, env: map[string]string{}}
}

func (r *rig) open(scaler string) *Backend {
	r.t.Helper()
	e := backend.Entry{Name: scaler, Options: backend.Options{}, Sets: []backend.Set{{Key: "windows", Labels: []string{"windows"}, Env: r.env}}}
	node := "0000-" + filepath.Base(filepath.Dir(r.dir)) + filepath.Base(r.dir)
	b, err := open(e, backend.Host{NodeID: node, Dir: r.dir, Binary: r.binary, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Now: time.Now}, realFacts())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := b.Prepare(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (r *rig) spec(id string) backend.Spec {
	return backend.Spec{AgentID: id, LabelSet: "windows", Labels: []string{"windows"}, Token: "kat_secret", URL: "ws://127.0.0.1:1/ws", Limits: ci.Resources{CPUMilli: 1}}
}

func (r *rig) create(b *Backend, id string) record {
	r.t.Helper()
	inst, err := b.Create(r.t.Context(), r.spec(id))
	if err != nil {
		r.t.Fatal(err)
	}
	var rec record
	if err := json.Unmarshal(inst.Launch, &rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// pid waits until a process of the agent has written its number.
func (r *rig) pid(rec record, name string) (pid int) {
	r.t.Helper()
	r.eventually(name, func() bool {
		data, err := os.ReadFile(filepath.Join(rec.Work, name))
		pid, _ = strconv.Atoi(string(data))
		return err == nil && pid > 0
	})
	return pid
}

func (r *rig) eventually(what string, fn func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !fn(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

func (r *rig) delete(b *Backend, id string, rec record) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := b.Delete(ctx, backend.Ref{AgentID: id, Launch: rec.encode()}); err != nil && !errors.Is(err, backend.ErrNotFound) {
		r.t.Fatal(err)
	}
}

func alive(pid int) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return false
	}
	defer func() { _ = windows.CloseHandle(h) }()
	event, err := windows.WaitForSingleObject(h, 0)
	return err == nil && event != windows.WAIT_OBJECT_0
}

const testAgent = "scaler-bare-metal-00000001"

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		r := newRig(t)
		return backendtest.Subject{
			Open: func(t *testing.T, scaler string) backend.Backend { return r.open(scaler) },
			Spec: r.spec,
			Kill: func(t *testing.T, _ string, launch json.RawMessage) {
				var rec record
				if err := json.Unmarshal(launch, &rec); err != nil {
					t.Fatal(err)
				}
				if p, err := os.FindProcess(rec.Pid); err == nil {
					_ = p.Kill()
				}
			},
			Left: func(id string) (left []string) {
				if _, err := os.Stat(filepath.Join(r.dir, "agents", id)); err == nil {
					left = append(left, "directory")
				}
				return left
			},
		}
	})
}

func TestXS27DeathIsSeenOnWindows(t *testing.T) {
	r := newRig(t)
	r.env["HELPER"] = "die"
	b := r.open("one")
	rec := r.create(b, testAgent)
	r.eventually("it is dead", func() bool {
		all, err := b.List(t.Context())
		return err == nil && len(all) == 1 && !all[0].Running && all[0].Detail == "exited with 3" && len(all[0].Tail) == 1 && all[0].Tail[0] == "token kat_secret"
	})
	r.delete(b, testAgent, rec)
}

// A process whose parent has gone ends with its agent, also when another server finds that agent again (BM-16).
func TestReparentedGrandchildDies(t *testing.T) {
	for _, again := range []bool{false, true} {
		r := newRig(t)
		r.env["HELPER"] = "grandchild"
		b := r.open("one")
		rec := r.create(b, testAgent)
		self, child := r.pid(rec, "up"), r.pid(rec, "child")
		if again {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = r.open("one")
			all, err := b.List(t.Context())
			if err != nil || len(all) != 1 || !all[0].Running {
				t.Fatalf("found %+v: %v", all, err)
			}
		}
		if !alive(self) || !alive(child) {
			t.Fatal("they do not run: the test shows nothing")
		}
		r.delete(b, testAgent, rec)
		r.eventually("both are dead", func() bool { return !alive(self) && !alive(child) })
	}
}

// Batch files of every name that is not refused run the agent, with their output in its log.
func TestBatchFilesRun(t *testing.T) {
	for _, name := range []string{"plain", "two words", "a & b", "x!y", "(x 86)", "a, b;c =d"} {
		r := newRig(t)
		dir := filepath.Join(r.dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r.env["REAL"], r.binary = r.binary, filepath.Join(dir, "agent.CMD")
		if err := batchFault(r.binary); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := os.WriteFile(r.binary, []byte("@echo off\r\necho batch of %~n0\r\n\"%REAL%\" %*\r\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		b := r.open("one")
		rec := r.create(b, testAgent)
		inner := r.pid(rec, "up")
		if lines := tail(filepath.Join(b.dir(testAgent), logFile)); len(lines) != 2 || strings.TrimSpace(lines[0]) != "batch of agent" || lines[1] != "token kat_secret" {
			t.Errorf("%s: it said %q", name, lines)
		}
		r.delete(b, testAgent, rec)
		r.eventually("the agent behind the batch file is dead", func() bool { return !alive(inner) })
	}
}

// XS-83, with the real program: what there is ends, and what there is not is already gone.
func TestXS83RealTaskkill(t *testing.T) {
	cmd := exec.Command(os.Args[0], "child")
	cmd.Env = append(os.Environ(), "KICI_WORK_DIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	for _, want := range []bool{true, false} {
		var said strings.Builder
		kill := exec.Command(system32(os.Environ(), "taskkill.exe"), "/T", "/F", "/PID", pid)
		kill.Stdout, kill.Stderr = &said, &said
		_ = kill.Run()
		if ended, err := taskkillResult(kill.ProcessState.ExitCode(), said.String()); err != nil || ended != want {
			t.Errorf("ended %t: %v (exit %d, %s)", ended, err, kill.ProcessState.ExitCode(), said.String())
		}
		_ = cmd.Wait()
	}
}

// XS-84: a pid that belongs to another process now is left alone.
func TestXS84RecycledPidOnWindows(t *testing.T) {
	r := newRig(t)
	b := r.open("one")
	rec := r.create(b, testAgent)
	pid := r.pid(rec, "up")
	const other = "scaler-bare-metal-00000002"
	forged := record{Scaler: "one", Work: filepath.Join(b.dir(other), workFolder), Pid: rec.Pid, Start: rec.Start - 1, Boot: rec.Boot, Ready: true}
	if err := forged.create(b.dir(other)); err != nil {
		t.Fatal(err)
	}
	r.delete(b, other, forged)
	if !alive(pid) {
		t.Error("the stranger was killed")
	}
	r.delete(b, testAgent, rec)
}
