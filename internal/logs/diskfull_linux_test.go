package logs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// XC-134 on a disk that is really full: nothing is torn, the gap is marked when there is room again.
func TestXC134DiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("SKIPPED: a file system of its own needs root: %v", err)
	}
	r := newRig(t, 0)
	_ = r.Close()
	r.dir = dir
	r.reopen(t, 0)
	t.Cleanup(func() { // before the folder is removed, after the store is closed
		_ = r.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a := text(0, 10)
	r.must(t, 0, a, int64(len(a)))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	big := text(10, 3000)
	at := int64(len(a))
	if ack, err := r.add(t, at, big); !errors.Is(err, ErrUnavailable) || ack.Offset != at {
		t.Fatalf("full: %+v, %v", ack, err)
	}
	if got := r.messages(t, 0); len(got) != 10 {
		t.Errorf("%d lines are readable, want the 10 that were stored", len(got))
	}
	r.clock = r.clock.Add(patience)
	at += int64(len(big))
	r.must(t, at-int64(len(big)), big, at)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r.must(t, at, line(3000), at+int64(len(line(3000))))
	msgs := r.messages(t, 0)
	if len(msgs) != 12 || !strings.Contains(msgs[10], "missing here") || msgs[11] != "line 3000" {
		t.Errorf("%d lines: %q", len(msgs), msgs[max(0, len(msgs)-4):])
	}
}
