//go:build unix

package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// BenchmarkTrivialJob shows where the time of a job that does nothing goes, from its dispatch on.
func BenchmarkTrivialJob(b *testing.B) {
	c := newCoordinator(b)
	startAgent(b, c, nil)
	var toRunning, toStep time.Duration
	for i := range b.N {
		id := fmt.Sprintf("j%d", i)
		start := time.Now()
		c.give(id, lock.Step{Run: "true"})
		poll(b, func() bool { _, jobs := c.reports(id); return len(jobs) > 0 })
		toRunning += time.Since(start)
		poll(b, func() bool {
			steps, _ := c.reports(id)
			return len(steps) > 0 && steps[len(steps)-1].StepIndex == 1 && steps[len(steps)-1].Status != "pending"
		})
		toStep += time.Since(start)
		c.final(id)
		c.awaitFrame("agent.status", i+1)
	}
	b.ReportMetric(float64(toRunning.Microseconds())/float64(b.N), "µs-to-running/op")
	b.ReportMetric(float64(toStep.Microseconds())/float64(b.N), "µs-to-step/op")
}

func poll(b *testing.B, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			b.Fatal("too late")
		}
	}
}
