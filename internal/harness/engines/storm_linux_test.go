package engines

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// The storm: so many jobs against a cap of four containers.
const (
	stormRuns = 4
	stormJobs = 8 // of a run
	stormCap  = 4 // of the scaler
	stormSeed = "KICI_TEST_SEED"
)

const stormWorkflow = `name: storm
on: workflow_dispatch
jobs:
  j:
    runs-on: linux
    checkout: false
    strategy:
      fail-fast: false
      matrix:
        n: [0, 1, 2, 3, 4, 5, 6, 7]
    steps:
      - run: |
          echo "${{ kici.run_id }} ${{ matrix.n }}" >> /shared/ran
          sleep 300 &
          sleep 0.${{ matrix.n }}
          test ${{ matrix.n }} -ne 3
`

// TestE2ECapWithRandomFailures is the storm on a real engine: containers are killed and removed while they start and in their jobs, jobs fail,
// a run is cancelled, and the server is killed and started again. In the end nothing is used.
func TestE2ECapWithRandomFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for half a minute")
	}
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		if e.Name == "podman" && os.Getenv("KICI_TEST_CRASH_POINTS") != "all" {
			t.Skip("with Podman by KICI_TEST_CRASH_POINTS=all (make crash) only: the code is the same, and takes as long again")
		}
		seed := uint64(time.Now().UnixNano())
		if n, err := strconv.ParseUint(os.Getenv(stormSeed), 10, 64); err == nil {
			seed = n
		}
		t.Logf("%s=%d", stormSeed, seed)
		began := time.Now()
		w := makeWorld(t, e, setup{isolated: true, program: slow})
		w.open()
		quiet := make(chan struct{})
		killed := 0
		var chaos sync.WaitGroup
		chaos.Go(func() { killed = w.killContainers(rand.New(rand.NewPCG(seed, 1)), quiet) })
		var runs []string
		for range stormRuns {
			runs = append(runs, w.startRun("storm"))
		}
		if _, err := w.api.Cancel(t.Context(), runs[seed%stormRuns], false, "a test"); err != nil {
			t.Fatal(err)
		}
		w.until("runs end", func() bool { return w.endedOf(runs) >= stormRuns/2 })
		w.kill()
		w.start()
		w.until("all runs end", func() bool { return w.endedOf(runs) == stormRuns })
		close(quiet)
		chaos.Wait()
		w.judge(runs)
		w.expectNothingLeft()
		t.Logf("%d jobs in %s; %d containers killed", stormRuns*stormJobs, time.Since(began).Round(time.Second), killed)
	})
}

// killContainers decides over each container when it appears: it lives, is killed or removed while it starts, or later.
func (w *world) killContainers(rng *rand.Rand, quiet <-chan struct{}) (killed int) {
	var deaths sync.WaitGroup
	defer deaths.Wait()
	known := map[string]bool{}
	for {
		select {
		case <-quiet:
			return killed
		case <-time.After(10 * time.Millisecond):
		}
		all := w.containers()
		if len(all) > stormCap {
			w.t.Errorf("there are %d containers", len(all))
		}
		for _, id := range all {
			if known[id] {
				continue
			}
			known[id] = true
			after := time.Duration(rng.IntN(200)) * time.Millisecond
			if rng.IntN(2) == 0 {
				after += 500 * time.Millisecond
			}
			if fate := rng.IntN(3); fate < 2 {
				continue
			}
			killed++
			remove := rng.IntN(2) == 0
			deaths.Go(func() {
				time.Sleep(after)
				if remove { // it may be gone already
					_, _ = w.e.API.ContainerRemove(context.Background(), id, moby.ContainerRemoveOptions{Force: true})
				} else {
					_, _ = w.e.API.ContainerKill(context.Background(), id, moby.ContainerKillOptions{Signal: "KILL"})
				}
			})
		}
	}
}

func (w *world) endedOf(runs []string) (n int) {
	for _, id := range runs {
		if d, err := w.api.Run(w.t.Context(), id); err == nil && d.FinishedAt != nil {
			n++
		}
	}
	return n
}

// judge looks at every job: it has ended, and ran at most once.
func (w *world) judge(runs []string) {
	w.t.Helper()
	text, _ := os.ReadFile(w.file("shared/ran"))
	lines, how := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(text)) {
		if lines[line]++; lines[line] > 1 {
			w.t.Errorf("job %q ran again", line)
		}
	}
	for _, id := range runs {
		d := w.run(id)
		if len(d.Jobs) != stormJobs {
			w.t.Errorf("run %s has %d jobs", id, len(d.Jobs))
		}
		for _, j := range d.Jobs {
			how[j.Status]++
			if ran := lines[fmt.Sprintf("%s %s\n", id, strings.Trim(strings.TrimPrefix(j.Name, "j "), "()"))]; !ci.JobStatus(j.Status).Terminal() || j.Status == "success" && ran != 1 {
				w.t.Errorf("job %s is %s, and ran %d times", j.Name, j.Status, ran)
			}
		}
	}
	if how["success"] == 0 || how["failed"] == 0 {
		w.t.Errorf("the storm was none: %v", how)
	}
	w.t.Logf("jobs: %v", how)
}
