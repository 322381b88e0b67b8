package exec

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
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

func TestOwnCgroup(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const v1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	for _, c := range []struct{ name, mounts, self, want string }{
		{"hybrid", v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "1:cpu:/x\n0::/\n", "/sys/fs/cgroup/unified"},
		{"unified", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n", "0::/user.slice/a b\n", "/sys/fs/cgroup/user.slice/a b"},
		{"namespace", "30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/1/x\n", "/sys/fs/cgroup/x"},
		{"elsewhere", "30 23 0:26 /other /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/1\n", ""},
		{"none", v1, "1:cpu:/x\n", ""},
	} {
		got, err := ownCgroup(write("mounts", c.mounts), write("self", c.self))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q %v", c.name, got, err)
		}
	}
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
