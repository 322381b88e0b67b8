package sim

import (
	"context"
	"fmt"
	"testing"
)

// regressions are seeds that have found something, in whatever world they make today. CI plays them beside the others.
var regressions = []struct {
	seed         uint64
	coordinators int
	found        string
}{
	{5, 1, "the sampler compared an answer with the database of a dead life of the server (a fault of the harness)"},
	{20, 1, "an agent that had fetched a job and lost its link went on with it while the job was given to another"},
	{33, 1, "the same"},
	{9, 1, "a run that waited too long for its concurrency group has failed although none of its jobs has (a check that was too strict)"},
	{7006, 1, "a rerun kept a job that was allowed to fail without saying why it had"},
	{8, 3, "a server that started while it could not reach the database gave up after the faults had ended (a fault of the harness)"},
	{13, 3, "a rerun takes over the result of a job whose failure is allowed, and not its error (the check looks in the earlier run)"},
	{11, 3, "a server died although the faults had ended (a fault of the harness)"},
	{148, 1, "agents of a warm pool that were decided on before a reload lowered a cap were started after it"},
	{225, 3, "the same"},
	{265, 1, "a launch that was given up started its agent when its scaler had been taken out of the file, and nobody looked any more"},
	{15, 3, "a rerun kept what a liar had said of the job of the earlier run (a check that was too strict)"},
}

// TestRegressions plays them.
func TestRegressions(t *testing.T) {
	if IsWorker() || testing.Short() && *seeds == 0 || raceEnabled || *first != 1 {
		t.Skip("not in a process of a campaign, nor in a hurry, nor with the race detector, nor when a seed is asked for")
	}
	for _, r := range regressions {
		if *coordinators > 0 && *coordinators != r.coordinators {
			continue
		}
		t.Run(fmt.Sprintf("%d with %d", r.seed, r.coordinators), func(t *testing.T) {
			t.Parallel()
			c := campaign(t, []uint64{r.seed}, r.coordinators)
			_, failed := c.Run(context.Background())
			for _, f := range failed {
				t.Errorf("%v; once it found: %s; play it again: %s", f.Violations, r.found, replay(r.seed, r.coordinators))
			}
		})
	}
}
