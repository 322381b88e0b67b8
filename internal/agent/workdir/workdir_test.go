package workdir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestOwned(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Owned(open); err != nil {
		t.Error(err)
	}
	_ = os.Chmod(open, 0o777)
	if Owned(open) == nil {
		t.Error("a directory that all can write was accepted")
	}
	link := filepath.Join(dir, "link")
	_ = os.Symlink(dir, link)
	if Owned(link) == nil {
		t.Error("a symbolic link was accepted")
	}
}

func TestSweepOfADeadOwner(t *testing.T) {
	root := t.TempDir()
	dead := filepath.Join(root, "dead-agent")
	if err := os.MkdirAll(filepath.Join(dead, "job-1", "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filepath.Join(dead, ownerFile), []byte("1 7\n"), 0o600) // pid 1 did not start then
	_ = os.WriteFile(filepath.Join(dead, "job-1", stateFile), []byte(`{"jobId":"job-1","pid":1,"startTime":7,"marker":"KICI_JOB_ID=no-such-job"}`), 0o600)
	w, err := Open(root, "new", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Error("the dead owner's directory is left")
	}
	again, err := Open(root, "other", slog.New(slog.DiscardHandler)) // a living owner's directory is left alone
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.path); err != nil {
		t.Error("the living owner's directory is gone")
	}
	w.Close()
	again.Close()
}

// What could not be removed is tried again before the next job.
func TestRemoveIsTriedAgain(t *testing.T) {
	w, err := Open(t.TempDir(), "a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stuck := filepath.Join(w.path, "stuck")
	if err := os.Mkdir(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	w.left = map[string]bool{stuck: true, filepath.Join(w.path, "gone"): true}
	if _, err := w.Job("job", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stuck); !errors.Is(err, os.ErrNotExist) || len(w.left) != 0 {
		t.Errorf("it is left: %v %v", err, w.left)
	}
}
