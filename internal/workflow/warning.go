package workflow

import "github.com/kici-go/kici/internal/workflow/lock"

// What is understood and not yet done says so (D9).
const (
	warnConcurrency = "concurrency is not enforced yet: runs of one group may run at the same time"
	warnFailFast    = "fail-fast is not enforced yet: the other jobs of the matrix go on after a failure"
	warnMaxParallel = "max-parallel is not enforced yet: all jobs of the matrix may run at the same time"
	warnContainer   = "container is not supported yet: the job will fail before its first step instead of running without it"
)

// Warnings are the sentences that a run of w should show: what it asks for and does not get.
func Warnings(w *lock.Workflow) []string {
	concurrency, failFast, maxParallel := w.Concurrency != nil, false, false
	for _, j := range w.Jobs {
		concurrency = concurrency || j.Concurrency != nil
		failFast = failFast || j.FailFast
		maxParallel = maxParallel || j.MaxParallel > 0
	}
	var out []string
	for _, c := range []struct {
		on   bool
		text string
	}{{concurrency, warnConcurrency}, {failFast, warnFailFast}, {maxParallel, warnMaxParallel}} {
		if c.on {
			out = append(out, c.text)
		}
	}
	return out
}
