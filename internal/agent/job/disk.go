package job

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/service"
)

// diskEvery is how often the disk of a running job is looked at.
const diskEvery = 10 * time.Second

// disk is the free space where a job works: whoever writes there should hear that it comes to its end, and why a step failed when it had.
type disk struct {
	floor  int64 // bytes; 0: it is not looked at
	folder string
	every  time.Duration
	free   func(folder string) (int64, error)

	mu    sync.Mutex
	low   bool  // it was below the floor, and has not recovered since
	least int64 // the least that was seen since a step began; unseen when nothing was
}

const unseen = -1

func newDisk(floor int64, folder string) disk {
	return disk{floor: floor, folder: folder, every: diskEvery, free: service.FreeDisk, least: unseen}
}

// begin forgets what was seen while other steps ran.
func (d *disk) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.least = unseen
}

// look measures, and returns what the job is to be told: once when its disk falls below the floor, and again when it has recovered and
// falls again. What cannot be measured is not told about. Nothing is told, and remembered as told, while tell is false.
func (d *disk) look(tell bool) string {
	if d.floor <= 0 {
		return ""
	}
	free, err := d.free(d.folder)
	if err != nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.least == unseen || free < d.least {
		d.least = free
	}
	was := d.low
	switch {
	case free >= d.floor+d.floor/10:
		d.low = false
	case free < d.floor && tell:
		d.low = true
	}
	if !d.low || was {
		return ""
	}
	return fmt.Sprintf("The disk of the workspace has %s free, less than the %s that should stay free: what is written from now on may fail.", size(free), size(d.floor))
}

// blame is what the disk has to do with a step that failed, ” for nothing that is known. said: the step's output speaks of a disk without
// space. It claims no more than was seen.
func (d *disk) blame(said bool) string {
	_ = d.look(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	return diskBlame(said, d.least, d.floor)
}

// diskBlame is pure; least is unseen when the disk was not looked at.
func diskBlame(said bool, least, floor int64) string {
	low := least != unseen && least < floor
	switch {
	case said && low:
		return fmt.Sprintf("no space left on device: the disk of the workspace had only %s free", size(least))
	case said && least != unseen: // it was another disk, a quota, or files that have gone since
		return fmt.Sprintf("its output says that no space was left on a device; the disk of the workspace had %s free", size(least))
	case said:
		return "its output says that no space was left on a device"
	case low:
		return fmt.Sprintf("it failed while the disk of the workspace had only %s free", size(least))
	}
	return ""
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// wordsFull is what programs say on a disk without space: C libraries, Go and Node in these words, Windows in others. A log is searched for
// it while it passes, so it is one text, whose beginning is rare.
var wordsFull = func() []byte {
	if runtime.GOOS == "windows" {
		return []byte("not enough space on the disk")
	}
	return []byte("space left on device")
}()

func saysFull(p []byte) bool { return bytes.Contains(p, wordsFull) }

// writing says in which log the job writes now; nil for none.
func (j *Job) writing(log *spool.Step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open = log
}

// warnOfDisk looks once and says in the log of what runs what there is to say. Between two steps it waits for the next.
func (j *Job) warnOfDisk() {
	j.mu.Lock()
	log := j.open
	j.mu.Unlock()
	if text := j.disk.look(log != nil); text != "" {
		log.Notice("%s", text)
	}
}

// watchDisk looks at the disk until stop is called.
func (j *Job) watchDisk() (stop func()) {
	if j.disk.floor <= 0 {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(j.disk.every)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				j.warnOfDisk()
			}
		}
	}()
	return func() { close(over); <-done }
}
