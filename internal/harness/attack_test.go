package harness

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/kici-go/kici/client"
)

func allRuns() client.RunQuery { return client.RunQuery{Limit: 100} }

// TestSixteenSendersOneRun: the same delivery, sixteen times at once, gives one run (XC-3).
func TestXC3SixteenSendersOneRun(t *testing.T) {
	engines(t, func(t *testing.T, databaseURL func(*testing.T) string) {
		w := newWorld(t, databaseURL(t), crashWorkflow)
		w.start(0)
		answers := make([]int, 16)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = w.push("the-same") })
		}
		wg.Wait()
		slices.Sort(answers)
		if answers[0] != http.StatusOK || answers[14] != http.StatusOK || answers[15] != http.StatusAccepted {
			t.Errorf("answers %v, want fifteen times 200 (duplicate) and 202 once", answers)
		}
		w.expectOneCleanRun()
		w.stop()
	})
}
