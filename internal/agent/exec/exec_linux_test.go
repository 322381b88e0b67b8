package exec

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pidOf(path string) int {
	pid, _ := strconv.Atoi(strings.Split(strings.TrimPrefix(path, "/proc/"), "/")[0])
	return pid
}

func TestParseStat(t *testing.T) {
	p, err := parseStat([]byte("17 (a) b) (c) S 4 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3 4\n"))
	if err != nil || p != (process{pid: 17, ppid: 4, state: 'S', start: 987654}) {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range []string{"", "(", ")(", "1 (x) S 2", "x (y) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if StartTime(os.Getpid()) == 0 {
		t.Error("this process has no start time")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("17 (a b) S 4 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseStat(data) })
}

// A step that is root leaves its cgroup; the walk finds it all the same.
func TestKillsWhatLeftTheCgroup(t *testing.T) {
	tree := newTree(t, Options{})
	if tree.group == nil || os.Getuid() != 0 {
		t.Skip("needs root and a cgroup v2 leaf")
	}
	file := filepath.Join(t.TempDir(), "beat")
	var out buffer
	parent := filepath.Dir(tree.group.path)
	text := `setsid sh -c 'echo $$ >` + parent + `/cgroup.procs; while :; do sleep 0.05; echo x >>` + file + `; done' >/dev/null 2>&1 & sleep 0.2`
	if _, err := tree.Run(t.Context(), script(1, &out, text)); err != nil {
		t.Fatal(err)
	}
	if !grows(file) {
		t.Fatal("it does not run")
	}
	if err := tree.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !stopped(file) {
		t.Error("it survived outside the cgroup")
	}
}

// The test binary plays the agent: it runs a step and is killed.
func TestStepDiesWithTheAgent(t *testing.T) {
	if file := os.Getenv("KICI_TEST_BEAT"); file != "" {
		tree := newTree(t, Options{NoCgroup: true})
		var out buffer
		_, _ = tree.Run(t.Context(), script(1, &out, `while :; do sleep 0.05; echo x >>`+file+`; done`))
		return
	}
	file := filepath.Join(t.TempDir(), "beat")
	cmd := osexec.Command(os.Args[0], "-test.run=^TestStepDiesWithTheAgent$")
	cmd.Env = append(os.Environ(), "KICI_TEST_BEAT="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { _, err := os.Stat(file); return err == nil })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	time.Sleep(100 * time.Millisecond)
	if !stopped(file) {
		t.Error("the step survived its agent")
	}
}

// Threads that were made for bad times are there afterwards.
func TestReserveThreads(t *testing.T) {
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	reserveThreads(spareThreads)
	if n := threads(); n < spareThreads {
		t.Errorf("%d threads", n)
	}
}

// A number that belongs to another process now gets no signal.
func TestSignalsKnowTheirProcess(t *testing.T) {
	cmd := osexec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok := readProcess(cmd.Process.Pid)
	if !ok {
		t.Fatal("it is not there")
	}
	process{pid: p.pid, start: p.start - 1}.signal(unix.SIGKILL)
	if now, ok := readProcess(p.pid); !ok || now.dead() {
		t.Error("a stranger was killed")
	}
	p.signal(unix.SIGKILL)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}
