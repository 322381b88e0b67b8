package job

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

const setUpName = "Set up job"

// setUp is step 0: everything up to the job's own first step. An error is an init failure of the returned kind.
func (j *Job) setUp() (kind string, err error) {
	started := j.now()
	log, err := j.cfg.Spool.Open(0)
	if err != nil {
		return InitWorkspace, err
	}
	defer log.Close()
	j.writing(log)
	defer j.writing(nil)
	j.report(wire.StepStatus{Name: setUpName, Status: string(ci.StepRunning), StartedAt: started})
	kind, err = j.prepare(log)
	end := wire.StepStatus{Name: setUpName, Status: string(ci.StepSuccess), StartedAt: started, FinishedAt: j.now()}
	if err != nil {
		log.Notice("%s", j.mask.String(err.Error()))
		end.Status, end.Error = string(ci.StepFailed), err.Error()
		if j.soft.Err() != nil {
			end.Status, end.Error = string(ci.StepCancelled), ""
		}
	}
	log.Close()
	j.report(end)
	return kind, err
}

func (j *Job) prepare(log *spool.Step) (kind string, err error) {
	if err := j.decode(); err != nil {
		return InitSpec, err
	}
	if c := j.def.Container; c != nil && !j.cfg.JobImage {
		return InitSpec, fmt.Errorf("the job asks for the image %s, and this agent was not started in it", c.Image)
	}
	if err := j.directories(); err != nil {
		return InitWorkspace, err
	}
	j.tree, err = exec.NewTree(exec.Options{
		JobID: j.cfg.Spec.JobID, StateFile: j.path("exec.json"), Exclusive: j.cfg.Exclusive, NoCgroup: j.cfg.NoCgroup, Log: j.cfg.Log,
	})
	if err != nil {
		return InitWorkspace, err
	}
	j.listen(log)
	j.announceSteps()
	j.describe(log)
	if err := j.confine(log); err != nil {
		return InitSandbox, err
	}
	if err := j.writeEvent(); err != nil {
		return InitWorkspace, err
	}
	if err := j.jobEnv(); err != nil {
		return InitSpec, err
	}
	if j.checksOutItself() {
		if err := j.checkout(j.soft, log); err != nil {
			return InitCheckout, err
		}
	}
	if err := j.soft.Err(); err != nil {
		return InitWorkspace, context.Cause(j.soft)
	}
	return "", nil
}

// maxAnnounced bounds the reports of pending steps, so that a job of many steps is not a flood.
const maxAnnounced = 60

// announceSteps reports what is to come, so that it is seen before it runs.
func (j *Job) announceSteps() {
	for i, s := range j.def.Steps[:min(len(j.def.Steps), maxAnnounced)] {
		j.report(wire.StepStatus{StepIndex: i + 1, Name: s.Label(), Status: string(ci.StepPending)})
	}
}

func (j *Job) describe(log *spool.Step) {
	log.Notice("Agent %s on %s (%s/%s), kici %s", j.cfg.AgentID, j.cfg.Hostname, runtime.GOOS, runtime.GOARCH, j.cfg.Version)
	log.Notice("Job %s, attempt %d, of run %s", j.cfg.Spec.JobID, j.cfg.Spec.Attempt, j.cfg.Spec.RunID)
	log.Notice("Workspace %s; processes are ended by %s", j.workspace(), j.tree.Method())
}

// checksOutItself: the repository comes before the first step unless the job says no, or does it in a step of its own.
func (j *Job) checksOutItself() bool {
	if j.cfg.Spec.Checkout == nil || (j.def.Checkout != nil && !*j.def.Checkout) {
		return false
	}
	for _, s := range j.def.Steps {
		if s.Uses != "" {
			return false
		}
	}
	return true
}

// writeEvent puts the event's payload where KICI_EVENT_PATH points.
func (j *Job) writeEvent() error {
	payload, err := json.Marshal(j.kici("event"))
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	if err := os.WriteFile(j.eventPath(), payload, 0o600); err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	return nil
}

// skipAll reports every step as skipped after a failure of the set-up.
func (j *Job) skipAll() {
	for i, s := range j.def.Steps {
		j.report(wire.StepStatus{StepIndex: i + 1, Name: s.Label(), Status: string(ci.StepSkipped), FinishedAt: j.now()})
	}
}
