//go:build linux

package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.Command { // the boxes of these tests are this program
		os.Exit(sandbox.Main())
	}
	goleak.VerifyTestMain(m)
}

// buffer is safe to read while a pipe writes it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }

func (b *buffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

var jobNumber = time.Now().UnixNano()

func newTree(t *testing.T, o Options) *Tree {
	t.Helper()
	jobNumber++
	if o.JobID == "" {
		o.JobID = strings.ReplaceAll(t.Name(), "/", "-") + "-" + time.Unix(0, jobNumber).Format("150405.000000000")
	}
	o.Log = slog.New(slog.DiscardHandler)
	tree, err := NewTree(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree
}

func env() []string { return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")} }

func script(step int, out *buffer, text string) Spec {
	return Spec{Step: step, Argv: []string{"sh", "-c", text}, Dir: "/", Env: env(), Stdout: out, Stderr: out}
}

// methods runs a test under every way to hold a tree that works here.
func methods(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("cgroup", func(t *testing.T) {
		g, err := newGroup("kici-probe")
		if err != nil {
			t.Skipf("no cgroup v2 leaf can be made here: %v", err)
		}
		_ = g.remove(t.Context())
		f(t, Options{})
	})
	t.Run("walk", func(t *testing.T) { f(t, Options{NoCgroup: true}) })
}

func TestRun(t *testing.T) {
	methods(t, func(t *testing.T, o Options) {
		tree := newTree(t, o)
		var out buffer
		res, err := tree.Run(t.Context(), script(1, &out, `echo out; echo err >&2; exit 3`))
		if err != nil || res.ExitCode != 3 || res.Signal != "" {
			t.Fatal(res, err)
		}
		if s := out.String(); !strings.Contains(s, "out\n") || !strings.Contains(s, "err\n") {
			t.Errorf("output %q", s)
		}
		res, err = tree.Run(t.Context(), script(2, &out, `kill -TERM $$`))
		if err != nil || res.ExitCode != 143 || res.Signal != "SIGTERM" {
			t.Error(res, err)
		}
		if _, err := tree.Run(t.Context(), Spec{Argv: []string{"no-such-program"}, Env: env()}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestOwnSession(t *testing.T) {
	tree := newTree(t, Options{})
	var out buffer
	if _, err := tree.Run(t.Context(), script(1, &out, `echo $$ $(ps -o sid= -p $$)`)); err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(out.String()); len(f) == 2 && f[0] != f[1] {
		t.Errorf("pid and session: %v", f)
	}
}

func TestAllOutputOfALateWriterArrives(t *testing.T) {
	tree := newTree(t, Options{})
	var out buffer
	if _, err := tree.Run(t.Context(), script(1, &out, `( sleep 0.1; echo late ) & echo early`)); err != nil {
		t.Fatal(err)
	}
	if out.String() != "early\nlate\n" {
		t.Errorf("%q", out.String())
	}
}

func TestBackgroundProcessLivesUntilTheJobEnds(t *testing.T) {
	methods(t, func(t *testing.T, o Options) {
		tree := newTree(t, o)
		dir := t.TempDir()
		file := filepath.Join(dir, "beat")
		var out buffer
		start := time.Now()
		// It holds the step's output open and goes on writing to it.
		spec := script(1, &out, `while :; do sleep 0.05; echo x >>`+file+`; echo y; done & echo started`)
		if _, err := tree.Run(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > settleMax+20*time.Second {
			t.Errorf("the step took %s", d)
		}
		if !grows(file) {
			t.Fatal("the background process died with its step")
		}
		if err := tree.KillStep(t.Context(), 2); err != nil { // another step's end does not touch it
			t.Fatal(err)
		}
		if !grows(file) {
			t.Fatal("the background process died with another step")
		}
		tree.Close()
		if !stopped(file) {
			t.Fatal("the background process outlived the job")
		}
	})
}

// grows waits long for a file to grow, because the machine may be busy; stopped only as long as a writer would need.
func grows(file string) bool   { return growsWithin(file, 5*time.Second) }
func stopped(file string) bool { return !growsWithin(file, 400*time.Millisecond) }

func growsWithin(file string, d time.Duration) bool {
	size := func() int64 {
		if info, err := os.Stat(file); err == nil {
			return info.Size()
		}
		return 0
	}
	before := size()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if size() > before {
			return true
		}
	}
	return false
}

func TestTerminateThenKill(t *testing.T) {
	methods(t, func(t *testing.T, o Options) {
		tree := newTree(t, o)
		var out buffer
		done := make(chan Result, 1)
		go func() {
			res, _ := tree.Run(context.Background(), script(1, &out, `trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done`))
			done <- res
		}()
		await(t, func() bool { return strings.Contains(out.String(), "ready") })
		tree.Terminate(1)
		await(t, func() bool { return strings.Contains(out.String(), "asked") })
		select {
		case res := <-done:
			t.Fatalf("ended by TERM: %+v", res)
		case <-time.After(50 * time.Millisecond):
		}
		if err := tree.KillStep(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if res := <-done; res.Signal != "SIGKILL" || res.ExitCode != 137 {
			t.Errorf("%+v", res)
		}
	})
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to pass in a minute")
		}
	}
}

// A process that forks for ever, each child in a session of its own and every parent gone at once, and a breeder that keeps
// many alive. Both are bounded by a number of generations and by a file whose removal ends them.
const bomb = `
gen=$1 alive=$2
echo x >>"$alive" || exit
[ -e "$alive.go" ] || exit
[ "$gen" -gt 0 ] || exit
setsid sh "$0" $((gen-1)) "$alive" </dev/null >/dev/null 2>&1 &
sleep 0.002
`

const breeder = `
alive=$1
i=0
while [ -e "$alive.go" ] && [ $i -lt 3000 ]; do
  i=$((i+1))
  setsid sh -c 'trap "" TERM HUP INT; sleep 5' &
  echo x >>"$alive"
done
`

func TestKillsForkingTree(t *testing.T) {
	if _, err := osexec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	for name, text := range map[string]string{"chain": bomb, "breeder": breeder} {
		t.Run(name, func(t *testing.T) {
			methods(t, func(t *testing.T, o Options) {
				tree := newTree(t, o)
				dir := t.TempDir()
				file, alive := filepath.Join(dir, "bomb.sh"), filepath.Join(dir, "alive")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(alive+".go", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(alive + ".go")
				args := `"$0" ` + alive
				if name == "chain" {
					args = `"$0" 3000 ` + alive
				}
				spec := Spec{Step: 1, Argv: []string{"sh", "-c", "sh " + args + " & sleep 30", file}, Dir: dir, Env: env()}
				done := make(chan struct{})
				go func() { defer close(done); _, _ = tree.Run(context.Background(), spec) }()
				await(t, func() bool { info, err := os.Stat(alive); return err == nil && info.Size() > 20 })
				tree.Terminate(1)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if err := tree.Kill(ctx); err != nil {
					t.Fatal(err)
				}
				<-done
				if !stopped(alive) {
					t.Fatal("something still forks")
				}
				out, _ := osexec.Command("sh", "-c", "grep -l '"+alive+"' /proc/[0-9]*/cmdline 2>/dev/null | grep -v /self/").Output()
				for f := range strings.FieldsSeq(string(out)) {
					if p, ok := readProcess(pidOf(f)); ok && !p.dead() && p.pid != os.Getpid() {
						t.Errorf("%s is alive", f)
					}
				}
			})
		})
	}
}

func TestStepRunsAgainAfterItsKill(t *testing.T) {
	methods(t, func(t *testing.T, o Options) {
		tree := newTree(t, o)
		for range 3 {
			var out buffer
			res, err := tree.Run(t.Context(), script(1, &out, "sleep 100 >/dev/null 2>&1 & echo ok"))
			if err != nil || res.ExitCode != 0 || out.String() != "ok\n" {
				t.Fatal(res, err, out.String())
			}
			if err := tree.KillStep(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestStateFileAndCleanUp(t *testing.T) {
	methods(t, func(t *testing.T, o Options) {
		o.StateFile = filepath.Join(t.TempDir(), "exec.json")
		o.JobID = "cleanup-" + time.Now().Format("150405.000000000")
		tree := newTree(t, o)
		file := filepath.Join(t.TempDir(), "beat")
		var out buffer
		if _, err := tree.Run(t.Context(), script(1, &out, `setsid sh -c 'while :; do sleep 0.05; echo x >>`+file+`; done' >/dev/null 2>&1 &`)); err != nil {
			t.Fatal(err)
		}
		if err := CleanUp(t.Context(), o.StateFile); err == nil {
			t.Fatal("the processes of a living agent were ended")
		}
		// As if the agent had been killed and its pid given to another process.
		s, err := ReadState(o.StateFile)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(o.StateFile)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.Replace(data, fmt.Appendf(nil, `"startTime":%d`, s.StartTime), []byte(`"startTime":1`), 1)
		if err := os.WriteFile(o.StateFile, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if !grows(file) {
			t.Fatal("it does not run")
		}
		if err := CleanUp(t.Context(), o.StateFile); err != nil {
			t.Fatal(err)
		}
		if !stopped(file) {
			t.Error("it survived")
		}
		if _, err := os.Stat(o.StateFile); !errors.Is(err, os.ErrNotExist) {
			t.Error("the state file is left")
		}
		if s.Cgroup != "" {
			if _, err := os.Stat(s.Cgroup); !errors.Is(err, os.ErrNotExist) {
				t.Error("the cgroup is left")
			}
		}
	})
}

func TestCloseRemovesCgroup(t *testing.T) {
	tree := newTree(t, Options{})
	if tree.group == nil {
		t.Skip("no cgroup v2 leaf can be made here")
	}
	var out buffer
	if _, err := tree.Run(t.Context(), script(1, &out, "sleep 100 >/dev/null 2>&1 & true")); err != nil {
		t.Fatal(err)
	}
	tree.Close()
	if _, err := os.Stat(tree.group.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left", tree.group.path)
	}
}

func TestLookPathUsesTheStepsPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nonexistent", "PATH=.:" + dir}
	if p, err := LookPath("tool", env); err != nil || p != filepath.Join(dir, "tool") {
		t.Error(p, err)
	}
	if _, err := LookPath("data", env); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
