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
