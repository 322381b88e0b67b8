package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// process is an agent in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out bytes.Buffer
}

func startProcess(t *testing.T, c *coordinator, work string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append([]string{
		"TEST_AS_AGENT=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "KICI_WORK_DIR=" + work,
		"KICI_ORCHESTRATOR_URL=" + c.url(), "KICI_AGENT_ID=proc-agent",
	}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("the agent said:\n%s", p.out.String())
		}
	})
	return p
}

func (p *process) proc(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// kb reads a line of /proc/<pid>/status.
func (p *process) kb(name string) int {
	for line := range strings.Lines(p.proc("status")) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(v)[0])
			return n
		}
	}
	return 0
}

func TestTokenAndSecretsAreNotInProc(t *testing.T) {
	c := newCoordinator(t)
	p := startProcess(t, c, t.TempDir(), "KICI_AGENT_TOKEN="+testToken)
	c.mu.Lock()
	spec := wire.JobSpec{RunID: "run", JobID: "j", Attempt: 1, GraceMs: 200, Secrets: map[string]string{"S": "top-secret-value"}}
	spec.Job = []byte(`{"name":"j","steps":[{"run":"env; (cat /proc/$PPID/environ /proc/$PPID/cmdline /proc/$PPID/maps; ls -l /proc/$PPID/fd) 2>&1 | tr '\\0' '\\n' || true"}]}`)
	c.specs["j"] = spec
	c.mu.Unlock()
	c.send(wire.TypeJobDispatch, wire.JobDispatch{RunID: "run", JobID: "j", Attempt: 1})
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	seen := c.text("j", 1) + p.proc("cmdline")
	if os.Getuid() == 0 {
		seen += p.proc("environ")
	} else if !strings.Contains(seen, "environ: Permission denied") || !strings.Contains(seen, "fd'") && !strings.Contains(seen, "fd: ") {
		t.Errorf("a step of the same user can look into the agent:\n%s", seen)
	}
	// The step's own token for asking the server is masked in its log, and good only while the job runs.
	seen = strings.ReplaceAll(seen, stepcall.TokenVariable+"=***", "")
	for _, bad := range []string{testToken, "top-secret-value", "***"} {
		if strings.Contains(seen, bad) {
			t.Errorf("%q can be read:\n%s", bad, seen)
		}
	}
	if os.Getuid() == 0 && !strings.Contains(p.proc("environ"), "KICI_AGENT_TOKEN_FD=") {
		t.Error("the agent did not start itself again")
	}
}

func TestTokenByInheritedDescriptor(t *testing.T) {
	c := newCoordinator(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString(testToken)
	_ = w.Close()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.ExtraFiles = []*os.File{r}
	p.cmd.Env = []string{"TEST_AS_AGENT=1", "KICI_ORCHESTRATOR_URL=" + c.url(), "KICI_AGENT_TOKEN_FD=3", "KICI_WORK_DIR=" + t.TempDir()}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	await(t, "it registers", func() bool { return len(c.registrations()) == 1 })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM when idle: %v", err)
	}
}

// An agent in a container has neither a network nor a descriptor of its own: it waits for its token on the standard input, and does
// everything by a socket of the file system.
func TestSocketAndStandardInputAreEnough(t *testing.T) {
	c := newCoordinator(t)
	path := filepath.Join(t.TempDir(), "kici.sock")
	c.alsoAt(path)
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = []string{
		"TEST_AS_AGENT=1", "PATH=" + os.Getenv("PATH"), "KICI_ORCHESTRATOR_URL=unix://" + path, "KICI_AGENT_TOKEN_FD=0", "KICI_WORK_DIR=" + t.TempDir(),
		"HTTP_PROXY=http://127.0.0.1:1",
	}
	token, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	if _, err := token.Write([]byte(testToken + "\n")); err != nil { // and it stays open, as the pipe of a container may
		t.Fatal(err)
	}
	c.give("j", lock.Step{Run: "echo by the socket; read x || echo nothing to read"})
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v\n%s", f, &p.out)
	}
	if text := c.text("j", 1); text != "by the socket\nnothing to read\n" {
		t.Errorf("the log is %q", text)
	}
}

func TestTokenFileOfAManagedAgentIsRemoved(t *testing.T) {
	c := newCoordinator(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(testToken), 0o600); err != nil {
		t.Fatal(err)
	}
	startProcess(t, c, t.TempDir(), "KICI_AGENT_TOKEN_FILE="+file, "KICI_SCALER_MANAGED=1")
	await(t, "the file is gone", func() bool { _, err := os.Stat(file); return errors.Is(err, os.ErrNotExist) })
}

// kill -9 of the agent in a step: the step ends with it, and what it forked ends with the next agent of the work directory.
func TestKilledAgentLeavesNothingForLong(t *testing.T) {
	c := newCoordinator(t)
	work, beats := t.TempDir(), t.TempDir()
	first := startProcess(t, c, work, "KICI_AGENT_TOKEN="+testToken)
	direct, forked := filepath.Join(beats, "direct"), filepath.Join(beats, "forked")
	c.give("j", lock.Step{Run: `setsid sh -c 'while :; do sleep 0.05; echo x >>` + forked + `; done' >/dev/null 2>&1 & while :; do sleep 0.05; echo x >>` + direct + `; done`})
	size := func(f string) int64 {
		if info, err := os.Stat(f); err == nil {
			return info.Size()
		}
		return 0
	}
	await(t, "the step runs", func() bool { return size(direct) > 0 && size(forked) > 0 })
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	time.Sleep(100 * time.Millisecond)
	n := size(direct)
	time.Sleep(200 * time.Millisecond)
	if size(direct) != n {
		t.Error("the step's own process survived")
	}
	c.drop()
	startProcess(t, c, work, "KICI_AGENT_TOKEN="+testToken, "KICI_AGENT_ID=second")
	await(t, "the next agent registers", func() bool { return len(c.registrations()) == 2 })
	n = size(forked)
	time.Sleep(200 * time.Millisecond)
	if size(forked) != n {
		t.Error("what the step forked survived the next agent's start")
	}
	if _, err := os.Stat(filepath.Join(work, "proc-agent")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the dead agent's directory is left")
	}
}

// The burst of DESIGN §11: every line arrives once, in order, and the agent stays small.
func TestBurstIsCompleteAndMemoryBounded(t *testing.T) {
	c := newCoordinator(t)
	p := startProcess(t, c, t.TempDir(), "KICI_AGENT_TOKEN="+testToken)
	await(t, "it registers", func() bool { return len(c.registrations()) == 1 })
	before := p.kb("VmHWM")
	c.give("j", lock.Step{Run: `seq -f 'line %.0f' 1 100000; seq -f 'and some more text so that it is a real line of output, number %.0f' 1 100000`})
	start := time.Now()
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	took := time.Since(start)
	lines := strings.Split(strings.TrimSuffix(c.text("j", 1), "\n"), "\n")
	if len(lines) != 200_000 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, l := range lines[:100_000] {
		if l != "line "+strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, l)
		}
	}
	grew := p.kb("VmHWM") - before
	t.Logf("%d bytes stored in %s; memory grew by %d KiB", len(c.logs["j/1/1"]), took, grew)
	if grew > 20<<10 {
		t.Errorf("memory grew by %d KiB", grew)
	}
}

func TestIdleAgentGivesMemoryBack(t *testing.T) {
	c := newCoordinator(t)
	p := startProcess(t, c, t.TempDir(), "KICI_AGENT_TOKEN="+testToken)
	await(t, "it registers", func() bool { return len(c.registrations()) == 1 })
	await(t, "it shrinks", func() bool { return p.kb("VmRSS") < p.kb("VmHWM")*3/4 })
	t.Logf("resident %d KiB at most, now %d KiB", p.kb("VmHWM"), p.kb("VmRSS"))
	c.give("j", lock.Step{Run: "echo it still works"})
	if f := c.final("j"); f.Status != "success" {
		t.Errorf("%+v", f)
	}
}
