package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
)

// onSmallDisk gives a test a data directory on a file system of its own.
func onSmallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Skipf("SKIPPED: cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fillDisk leaves no room.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{256 << 10, 4 << 10} {
		block := make([]byte, size)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

// agentLeft puts what an agent leaves whose process is this one.
func agentLeft(t *testing.T, dir, id string, pid int, start uint64) (work string) {
	t.Helper()
	folder := filepath.Join(dir, "agents", id)
	work = filepath.Join(folder, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"scaler": "local", "work": work, "pid": pid, "start": start, "boot": strings.TrimSpace(string(boot)), "ready": true})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "agent.json"), record, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return work
}

// A start on a full disk first removes what dead agents left there, and nothing of living ones; when that is not enough it says so, with
// what to do. What was accepted before is whole.
func TestXS102DiskFullAtStart(t *testing.T) {
	dir := onSmallDisk(t, "12m")
	start := func() (*Server, error) {
		return NewServer(t.Context(), Options{DataDir: dir, AllowRoot: true})
	}
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	alive := agentLeft(t, dir, "scaler-bare-metal-00000001", sleeper.Process.Pid, startOf(t, sleeper.Process.Pid))
	dead := agentLeft(t, dir, "scaler-bare-metal-00000002", sleeper.Process.Pid, 1) // somebody else's number
	if err := os.WriteFile(filepath.Join(alive, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, filepath.Join(dead, "module", "cache"))
	if s, err = start(); err != nil {
		t.Fatalf("it does not start: %v", err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the workspace of a dead agent is left: %v", err)
	}
	for _, path := range []string{filepath.Join(alive, "precious"), filepath.Join(filepath.Dir(dead), "agent.json")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	mirror := filepath.Join(dir, mirrorsFolder, "old.git")
	fillDisk(t, filepath.Join(mirror, "objects", "pack", "x.pack"))
	if err := os.Chtimes(mirror, time.Now(), time.Now().Add(-3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if s, err = start(); err != nil {
		t.Fatalf("it does not start with a mirror that could go: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	fillDisk(t, filepath.Join(dir, "ballast"))
	s, err = start()
	if err == nil {
		_ = s.Close()
		t.Fatal("it starts on a full disk")
	}
	if !errors.Is(err, store.ErrFull) || !isFull(err) {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"The disk of the data directory " + dir + " has", "make room there", "kici scaler reap-orphans"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	if s, err = start(); err != nil {
		t.Fatalf("there is room again, and it does not start: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// startOf is field 22 of a process's stat.
func startOf(t *testing.T, pid int) (start uint64) {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat))
	if err := json.Unmarshal([]byte(fields[21]), &start); err != nil {
		t.Fatal(err)
	}
	return start
}
