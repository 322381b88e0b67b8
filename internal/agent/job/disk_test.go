package job

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// One sentence for one fall below the floor; a tenth more than the floor is a recovery.
func TestDiskSaysSoOnce(t *testing.T) {
	const mib = 1 << 20
	free, failed := int64(0), error(nil)
	d := newDisk(100*mib, "/w")
	d.free = func(folder string) (int64, error) {
		if folder != "/w" {
			t.Errorf("looked at %s", folder)
		}
		return free, failed
	}
	for i, c := range []struct {
		free int64
		err  error
		tell bool
		says bool
	}{
		{200 * mib, nil, true, false},
		{99 * mib, nil, false, false}, // nobody to tell: it is told later
		{98 * mib, nil, true, true},
		{97 * mib, nil, true, false},
		{105 * mib, nil, true, false}, // no recovery yet
		{90 * mib, nil, true, false},
		{0, errors.New("gone"), true, false},
		{110 * mib, nil, true, false},
		{50 * mib, nil, true, true},
	} {
		free, failed = c.free, c.err
		if got := d.look(c.tell); (got != "") != c.says {
			t.Errorf("%d: %q", i, got)
		}
	}
	if got := d.blame(false); got != "it failed while the disk of the workspace had only 50 MiB free" {
		t.Error(got)
	}
	free = 500 * mib
	d.begin() // what others did before is not this step's
	if got := d.blame(true); got != "its output says that no space was left on a device; the disk of the workspace had 500 MiB free" {
		t.Error(got)
	}
	off := newDisk(0, "/w")
	off.free = func(string) (int64, error) { t.Error("looked"); return 0, nil }
	if got := off.look(true) + off.blame(false); got != "" {
		t.Error(got)
	}
}

// What is claimed of a disk is what was seen of it.
func TestDiskBlame(t *testing.T) {
	for _, c := range []struct {
		said         bool
		least, floor int64
		want         string
	}{
		{false, unseen, 100, ""},
		{false, 100, 100, ""},
		{false, 99, 100, "it failed while the disk of the workspace had only 99 B free"},
		{true, 0, 100, "no space left on device: the disk of the workspace had only 0 B free"},
		{true, 100, 100, "its output says that no space was left on a device; the disk of the workspace had 100 B free"},
		{true, unseen, 0, "its output says that no space was left on a device"},
	} {
		if got := diskBlame(c.said, c.least, c.floor); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestSaysFull(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has other words")
	}
	for text, want := range map[string]bool{
		"cp: error writing 'x': No space left on device\n": true, "write x: no space left on device": true, "ENOSPC: no space left on device, write": true,
		"plenty of space left": false, "": false,
	} {
		if saysFull([]byte(text)) != want {
			t.Errorf("%q", text)
		}
	}
	if b := []byte(strings.Repeat("an ordinary line of a build's output, of no device\n", 2000)); saysFull(b) {
		t.Error("an ordinary log")
	}
}

func BenchmarkSaysFull(b *testing.B) {
	p := []byte(strings.Repeat("ok  \tgithub.com/example/project/internal/module\t0.123s\n", 600))
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if saysFull(p) {
			b.Fatal("found")
		}
	}
}
