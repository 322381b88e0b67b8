package engines

import (
	"strings"
	"syscall"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

const (
	smallDisk = "160m"
	bigImage  = 96 << 20 // once as it is sent and once unpacked it is more than the disk has
	grownDisk = "640m"
)

// The engine's disk fills during a pull: the job waits and says so, the server goes on, and when there is room the job runs.
func TestE2EDiskFillsDuringAPull(t *testing.T) {
	e := enginetest.OnSmallDisk(t, "docker", smallDisk)
	registry := enginetest.NewBigRegistry(t, bigImage)
	w := makeWorld(t, e, setup{image: registry.Ref("big"), pull: "IfNotPresent"})
	w.open()
	id := w.startRun("counted")
	w.until("the job says that the disk is full", func() bool {
		return strings.Contains(w.why(id), "no space left on device (the engine's disk is that of "+e.Root())
	})
	t.Log(w.why(id))
	pulls := registry.Pulls()
	w.until("it is tried again", func() bool { return registry.Pulls() > pulls })
	if d := w.run(id); d.FinishedAt != nil || w.dead() || !w.ready() {
		t.Fatalf("the server is dead (%v) or the run has ended:\n%s", w.dead(), show(d))
	}
	grow(t, e)
	if d := w.ended(id); d.Status != "success" {
		t.Fatalf("%s", show(d))
	}
	w.expectNothingLeft()
}

// A disk with too little room from the start: nothing is pulled, and the job names the disk.
func TestE2EDiskIsFull(t *testing.T) {
	e := enginetest.OnSmallDisk(t, "docker", smallDisk)
	w := makeWorld(t, e, setup{floor: "256m"})
	w.open()
	id := w.startRun("counted")
	w.until("the job names the disk", func() bool {
		why := w.why(id)
		return strings.Contains(why, "the disk of "+e.Root()) && strings.Contains(why, "minFreeDisk is 256 MiB")
	})
	t.Log(w.why(id))
	grow(t, e)
	if d := w.ended(id); d.Status != "success" {
		t.Fatalf("%s", show(d))
	}
	w.expectNothingLeft()
}

// grow makes room, as somebody would who deletes what is not needed.
func grow(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	if err := syscall.Mount("tmpfs", e.Root(), "tmpfs", syscall.MS_REMOUNT, "size="+grownDisk); err != nil {
		t.Fatal(err)
	}
}

// why is all that is said of a run's only job, which may not be there yet.
func (w *world) why(run string) string {
	w.t.Helper()
	d := w.run(run)
	if len(d.Jobs) == 0 {
		return ""
	}
	why, err := w.api.Why(w.t.Context(), d.Jobs[0].ID)
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{why.Headline}
	for _, r := range why.Reasons {
		out = append(out, r.Text)
	}
	return strings.Join(out, "\n")
}
