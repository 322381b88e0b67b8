package engines

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
	"github.com/kici-go/kici/internal/service"
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

// A disk that falls below its floor, with an image on it that the server pulled long ago: the image goes, and the job runs.
func TestE2EFullDiskIsClearedOfImages(t *testing.T) {
	e := enginetest.OnSmallDisk(t, "docker", "300m")
	w := makeWorld(t, e, setup{floor: "128m"})
	w.open()
	instance, err := os.ReadFile(w.file("data/instance_id"))
	if err != nil {
		t.Fatal(err)
	}
	noise, err := enginetest.Noise(120 << 20)
	if err != nil {
		t.Fatal(err)
	}
	e.ImportTar(t, "localhost/old:1", noise)
	id := strings.ReplaceAll(strings.TrimSpace(string(instance)), "-", "")
	mark := "localhost/kici-image-" + id[len(id)-12:] + ":used-" + time.Now().Add(-26*time.Hour).UTC().Format("20060102-1504") + "-kept"
	if _, err := e.API.ImageTag(t.Context(), moby.ImageTagOptions{Source: "localhost/old:1", Target: mark}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.API.ImageRemove(t.Context(), "localhost/old:1", moby.ImageRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	free, err := service.FreeDisk(e.Root())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.Root(), "ballast"), make([]byte, free-64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := w.ended(w.startRun("counted")); d.Status != "success" {
		t.Fatalf("%s", show(d))
	}
	if log := w.log.String(); !strings.Contains(log, "removed what nobody needs") || !strings.Contains(log, "unused for 26 hours, and the disk is full") || strings.Contains(log, "minFreeDisk is") {
		t.Errorf("the server said:\n%s", log)
	}
	w.expectNothingLeft()
}

const fillingWorkflow = `name: filling
on: workflow_dispatch
jobs:
  filling:
    runs-on: linux
    checkout: false
    steps:
      - run: dd if=/dev/zero of=big bs=1048576 count=80 2>/dev/null; sleep 13
      - run: dd if=/dev/zero of=more bs=1048576 count=200
`

// A job in a container that fills the engine's disk is warned while it runs, and its reason says why it failed.
func TestE2EJobFillsTheDisk(t *testing.T) {
	e := enginetest.OnSmallDisk(t, "docker", smallDisk) // what is written there counts as the container's memory, too
	w := makeWorld(t, e, setup{floor: "128m"})
	w.open()
	d := w.ended(w.startRun("filling"))
	text := show(d)
	if want := "no space left on device: the disk of the workspace had only"; d.Status != "failed" || !strings.Contains(text, want) {
		t.Errorf("it does not say %q:\n%s", want, text)
	}
	if log := w.stepLog(d.ID, d.Jobs[0].ID); !strings.Contains(log, "less than the 128 MiB that should stay free") {
		t.Errorf("the log has no warning:\n%s", log)
	}
	if record := w.record(d.ID); !strings.Contains(record, "minFreeDisk is 128 MiB: what the job writes may fail") {
		t.Errorf("the record has none:\n%s", record)
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
