package job

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// A job on a disk that really fills up is warned while it runs, and its reason says why it failed.
func TestJobOnAFullDisk(t *testing.T) {
	b := newBench(t,
		lock.Step{Name: "fill", Run: `dd if=/dev/zero of=big bs=1M count=12 2>/dev/null; for i in $(seq 300); do [ -e seen ] && break; sleep 0.1; done`},
		lock.Step{Name: "write", Run: `dd if=/dev/zero of=more bs=1M count=100`},
	)
	j := b.prepare()
	if err := syscall.Mount("tmpfs", b.dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("SKIPPED: cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(b.dir, syscall.MNT_DETACH) })
	j.disk.floor, j.disk.every = 8<<20, 20*time.Millisecond
	warned := make(chan struct{})
	go func() { // the first step ends when its warning has come
		defer close(warned)
		for range 300 {
			if strings.Contains(b.text(1, "kici"), "that should stay free") {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		_ = syscall.Mknod(b.dir+"/workspace/seen", syscall.S_IFREG|0o600, 0)
	}()
	out := b.run()
	<-warned
	if got := b.text(1, "kici"); !regexp.MustCompile(`^The disk of the workspace has [\d.]+ MiB free, less than the 8.0 MiB that should stay free: [^\n]+\n$`).MatchString(got) {
		t.Errorf("step 1 was told %q", got)
	}
	if got := b.text(2, "kici"); strings.Contains(got, "should stay free") || !strings.Contains(got, "no space left on device: the disk of the workspace had only 0 B free; the step exited with code 1") {
		t.Errorf("step 2 was told %q", got)
	}
	if out.Status != ci.JobFailed || out.Error != "step 2 (write): no space left on device: the disk of the workspace had only 0 B free" {
		t.Errorf("%+v", out)
	}
}
