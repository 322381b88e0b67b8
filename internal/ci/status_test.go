package ci

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var allJobStatuses = append([]JobStatus{
	JobPending, JobQueued, JobRunning, JobRecovering, JobCancelling, JobHeld, JobWaiting,
}, TerminalJobStatuses...)

var allJobEvents = []JobEvent{
	EventEnqueue, EventHold, EventWait, EventSkip, EventCancel, EventStart, EventFail, EventSucceed, EventRecover, EventCancelGraceful,
	EventComplete, EventCancelForce, EventApprove, EventReject, EventExpire, EventTimerDone, EventRequeue, EventStale, EventUnroutable, EventDrift,
}

// The moves of STM-1, and that nothing moves what has ended (STM-5).
func TestNextJob(t *testing.T) {
	for _, c := range []struct {
		from  JobStatus
		event JobEvent
		to    JobStatus
	}{
		{JobPending, EventEnqueue, JobQueued},
		{JobPending, EventSkip, JobSkipped},
		{JobQueued, EventStart, JobRunning},
		{JobQueued, EventUnroutable, JobUnroutable},
		{JobRunning, EventSucceed, JobSuccess},
		{JobRunning, EventRecover, JobRecovering},
		{JobRecovering, EventStart, JobRunning},
		{JobRunning, EventCancelGraceful, JobCancelling},
		{JobCancelling, EventComplete, JobCancelled},
		{JobCancelling, EventSucceed, JobSuccess}, // STM-6
		{JobHeld, EventApprove, JobQueued},
		{JobHeld, EventExpire, JobFailed}, // STM-2
		{JobWaiting, EventTimerDone, JobQueued},
	} {
		if got, err := NextJob(c.from, c.event); err != nil || got != c.to {
			t.Errorf("%s on %s: %s %v, want %s", c.from, c.event, got, err, c.to)
		}
	}
	for _, from := range TerminalJobStatuses {
		for _, event := range allJobEvents {
			if to, err := NextJob(from, event); err == nil {
				t.Errorf("%s on %s became %s", from, event, to)
			}
		}
	}
	if _, err := NextJob(JobPending, EventSucceed); err == nil {
		t.Error("a job that never ran succeeded")
	}
}

func TestStatusesAreShown(t *testing.T) {
	for _, s := range allJobStatuses {
		if d := s.Display(false); d.Word == "" || d.Class == "" {
			t.Errorf("%s has no display", s)
		}
		if s.Terminal() != slices.Contains(TerminalJobStatuses, s) {
			t.Errorf("%s: terminal is %t", s, s.Terminal())
		}
		if (s.Result(false) == "") != !s.Terminal() {
			t.Errorf("%s: result %q", s, s.Result(false))
		}
	}
	if d := JobFailed.Display(true); d.Word != "failed, allowed" { // D6
		t.Errorf("allowed failure is shown as %q", d.Word)
	}
	if got := JobFailed.Result(true); got != "success" {
		t.Errorf("needs see an allowed failure as %q", got)
	}
}

// The verdict does not depend on the order of the jobs, and each rule of PIPE-19 holds.
func TestVerdict(t *testing.T) {
	if _, ok := Verdict([]JobOutcome{{Status: JobSuccess}, {Status: JobRunning}}); ok {
		t.Error("a verdict while a job runs")
	}
	if s, ok := Verdict(nil); !ok || s != RunSuccess {
		t.Errorf("no jobs: %s %t", s, ok)
	}
	rapid.Check(t, func(t *rapid.T) {
		jobs := rapid.SliceOf(rapid.Custom(func(t *rapid.T) JobOutcome {
			return JobOutcome{rapid.SampledFrom(TerminalJobStatuses).Draw(t, "status"), rapid.Bool().Draw(t, "allowed")}
		})).Draw(t, "jobs")
		want := RunSuccess
		if slices.ContainsFunc(jobs, func(j JobOutcome) bool { return j.Status == JobCancelled }) {
			want = RunCancelled
		}
		if slices.ContainsFunc(jobs, func(j JobOutcome) bool { return j.Status.Failure() && !j.AllowedFailure }) {
			want = RunFailed
		}
		got, ok := Verdict(rapid.Permutation(jobs).Draw(t, "order"))
		if !ok || got != want {
			t.Fatalf("%v: %s, want %s", jobs, got, want)
		}
	})
}
