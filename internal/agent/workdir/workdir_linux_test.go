package workdir

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A directory that something holds, here a mount, is remembered, and goes when nothing holds it any more.
func TestHeldDirectoryGoesLater(t *testing.T) {
	w, err := Open(t.TempDir(), "a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	dir, err := w.Job("one", 1)
	if err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	if err := os.Mkdir(held, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", held, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("SKIPPED: cannot mount a tmpfs here: %v", err)
	}
	defer func() { _ = syscall.Unmount(held, syscall.MNT_DETACH) }()
	if err := w.Remove(dir); err == nil {
		t.Fatal("a mount was removed")
	}
	if _, err := w.Job("two", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("it went although it is held: %v", err)
	}
	if err := syscall.Unmount(held, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Job("three", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
