package job

import (
	"errors"
	"testing"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/wire"
)

// What a step's end says, and what of it becomes the job's reason.
func TestExitError(t *testing.T) {
	const oom = "killed: out of memory (limit 512 MiB)"
	for _, c := range []struct {
		res       exec.Result
		step, job string
	}{
		{exec.Result{}, "", ""},
		{exec.Result{Limit: oom}, "", ""}, // it went on without what was killed
		{exec.Result{ExitCode: 3}, "the step exited with code 3", ""},
		{exec.Result{ExitCode: 137, Signal: "SIGKILL"}, "the step was ended by SIGKILL", ""},
		{exec.Result{ExitCode: 137, Limit: oom}, oom + "; the step exited with code 137", "step 2 (build): " + oom},
		{exec.Result{ExitCode: 137, Signal: "SIGKILL", Limit: oom}, oom + "; the step was ended by SIGKILL", "step 2 (build): " + oom},
	} {
		r := &stepRun{index: 2, report: wire.StepStatus{Name: "build"}}
		err := r.exitError(c.res)
		step := ""
		if err != nil {
			step = err.Error()
		}
		if got := r.limitOf(err); step != c.step || got != c.job {
			t.Errorf("%+v: step %q, job %q", c.res, step, got)
		}
	}
	if got := (&stepRun{}).limitOf(errors.New("other")); got != "" {
		t.Errorf("another failure: %q", got)
	}
}
