package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestOwn(t *testing.T) {
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
		got, err := own(write("mounts", c.mounts), write("self", c.self))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q %v", c.name, got, err)
		}
	}
}

func TestMakeKillRemove(t *testing.T) {
	parent, err := Own()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	dir := filepath.Join(parent, "kici-test-"+filepath.Base(t.TempDir()))
	if err := Make(dir); err != nil {
		t.Skipf("SKIPPED: no cgroup can be made here: %v", err)
	}
	below := filepath.Join(dir, "below")
	if err := errors.Join(Make(below), Make(dir)); err != nil { // making is idempotent
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if got := Pids(dir); !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("pids %v, want %d", got, cmd.Process.Pid)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	if err := Kill(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if err == nil {
			t.Error("the process ended by itself")
		}
	case <-time.After(time.Minute):
		t.Fatal("the process lives")
	}
	if err := errors.Join(Remove(t.Context(), dir), Remove(t.Context(), dir)); err != nil {
		t.Error(err)
	}
	if err := Kill(context.Background(), dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("killing what is gone: %v", err)
	}
}
