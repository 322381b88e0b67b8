//go:build unix

package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// TestJobOverhead shows where the time of a trivial job goes; it fails only when something waits for no reason.
func TestJobOverhead(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, nil)
	var toRunning, toStep, toEnd []time.Duration
	for i := range 20 {
		id := fmt.Sprintf("j%d", i)
		start := time.Now()
		c.give(id, lock.Step{Run: "true"})
		poll(t, func() bool { _, jobs := c.reports(id); return len(jobs) > 0 })
		toRunning = append(toRunning, time.Since(start))
		poll(t, func() bool {
			steps, _ := c.reports(id)
			return len(steps) > 0 && steps[len(steps)-1].StepIndex == 1 && steps[len(steps)-1].Status != "pending"
		})
		toStep = append(toStep, time.Since(start))
		c.final(id)
		toEnd = append(toEnd, time.Since(start))
		c.awaitFrame("agent.status", i+1)
	}
	t.Logf("median: running after %s, first step after %s, end after %s", median(toRunning), median(toStep), median(toEnd))
	if m := median(toEnd); m > 250*time.Millisecond {
		t.Errorf("a trivial job takes %s", m)
	}
}

func poll(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("too late")
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
