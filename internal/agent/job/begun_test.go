//go:build unix

package job

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Until the orchestrator knows that the job runs here, the job may be given to another agent: no step runs.
func TestNoStepBeforeTheJobIsKnownToRun(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	b := newBench(t, lock.Step{Run: "echo >> " + mark})
	known := make(chan struct{})
	j := b.prepare()
	j.cfg.Begun = known
	done := make(chan Outcome, 1)
	go func() { done <- b.run() }()
	for end := time.Now().Add(time.Minute); !b.setUpEnded(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the set-up did not end within a minute")
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a step ran before the orchestrator knew of it")
	}
	close(known)
	if out := <-done; out.Status != ci.JobSuccess {
		t.Errorf("%+v", out)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
}

func TestCancelWhileNotKnownToRun(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	b := newBench(t, lock.Step{Run: "echo >> " + mark})
	j := b.prepare()
	j.cfg.Begun = make(chan struct{})
	j.Cancel(false, 0)
	if out := b.run(); out.Status != ci.JobCancelled {
		t.Errorf("%+v", out)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a step of a cancelled job ran")
	}
}

func (b *bench) setUpEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.reports {
		if r.StepIndex == 0 && ci.StepStatus(r.Status).Terminal() {
			return true
		}
	}
	return false
}
