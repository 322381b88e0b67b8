//go:build linux

package app

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
)

const limitedScaler = `
version: 1
scalers:
  - name: local
    type: bare-metal
    allowRoot: true
    enforceCgroups: true
    maxTasks: 150
    maxAgents: 4
    labelSets:
      - {labels: [linux], resources: {cpus: 1, memory: 192m}}
      - {labels: [steady]}
`

// hostile does at once what takes a machine down; its writers end, because all of a log is kept and sent. The neighbour does a little
// every 20 ms and notes the longest time in between. The bomb forks from one place: where the limits do not hold, one that doubles would
// stop the machine of whoever runs the test.
const hostile = `
name: hostile
on: workflow_dispatch
jobs:
  bad:
    runs-on: linux
    steps:
      - name: memory
        run: |
          until [ -e "@dir@/begun" ]; do sleep 0.02; done
          yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 64M &
          head -c 2G /dev/zero | tail >/dev/null
      - name: all at once
        if: always()
        run: |
          mkfifo "$KICI_TEMP/never"; exec 9<>"$KICI_TEMP/never"
          yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 64M &
          (head -c 2G /dev/zero | tail >/dev/null) &
          (for i in $(seq 6000); do sleep 300 & done) 2>/dev/null &
          read -r -t 2 -u 9 || true # nothing can be forked any more
  neighbour:
    runs-on: steady
    steps:
      - run: |
          worst=0; last=$(date +%s%3N); touch "@dir@/begun"
          until [ -e "@dir@/go" ]; do
            sleep 0.02; now=$(date +%s%3N)
            if [ $((now - last)) -gt $worst ]; then worst=$((now - last)); fi
            last=$now
          done
          echo "worst=$worst"
`

// A fork bomb, a memory hog and a writer without end in one job, with limits on: the neighbour and the server go on as before, and the
// job says what ended it.
func TestE2ELimitsKeepAJobToItself(t *testing.T) {
	var file string
	w := newWorld(t, func(o *Options) {
		file = t.TempDir() + "/scalers.yaml"
		o.ScalerConfig = file
		if err := os.WriteFile(file, []byte(limitedScaler), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	w.enforces()
	if err := os.WriteFile(w.file("repo", ".kici", "workflows", "hostile.yaml"), []byte(strings.ReplaceAll(hostile, "@dir@", w.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "hostile")
	runID := w.startRun("hostile")
	defer func() { // its processes must not outlive a test that fails
		_, _ = w.api.Cancel(context.Background(), runID, true, "the test is over")
		w.noAgents()
	}()
	var slowest time.Duration
	begin := time.Now()
	bad := w.until("bad has failed", runID, func(d client.RunDetail) bool {
		slowest = max(slowest, time.Since(begin)-pollPause)
		begin = time.Now()
		return job(d, "bad").Status == "failed"
	})
	w.release()
	if j := job(bad, "bad"); j.Error != "step 1 (memory): killed: out of memory (limit 192 MiB)" {
		t.Errorf("the job's reason: %q", j.Error)
	}
	d := w.ended(runID)
	neighbour := job(d, "neighbour")
	_, text, _ := strings.Cut(w.log(runID, neighbour.ID, 1), "worst=")
	worst, err := strconv.Atoi(strings.TrimSpace(text))
	t.Logf("the neighbour waited at most %d ms, the server answered within %s", worst, slowest)
	const stoodStill = 20 * time.Second // other tests have this machine too; without limits it is minutes
	if neighbour.Status != "success" || err != nil || time.Duration(worst)*time.Millisecond > stoodStill || slowest > stoodStill {
		t.Errorf("the neighbour ended %s and waited %d ms, the server answered within %s: %v", neighbour.Status, worst, slowest, err)
	}
	if end := w.log(runID, job(d, "bad").ID, 1); !strings.Contains(end, "killed: out of memory (limit 192 MiB)") {
		t.Errorf("its log ends %q", end[max(0, len(end)-300):])
	}
}

// pollPause is between two looks of until.
const pollPause = 20 * time.Millisecond

// enforces waits until the scaler is ready, or skips where this machine can enforce nothing.
func (w *world) enforces() {
	w.t.Helper()
	w.eventually("the scaler is prepared", func() bool {
		list, err := w.api.Scalers(context.Background())
		if err != nil || len(list.Scalers) == 0 {
			return false
		}
		s := list.Scalers[0]
		if s.State == "not ready" {
			if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "limits") {
				w.t.Fatalf("%s, and KICI_TEST_REQUIRE names limits", s.StateText)
			}
			w.t.Skipf("SKIPPED: %s", s.StateText)
		}
		return s.State == "ready"
	})
}

func job(d client.RunDetail, name string) client.Job {
	for _, j := range d.Jobs {
		if j.Name == name {
			return j
		}
	}
	return client.Job{}
}
