package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func (j *Job) runSteps() {
	for i, s := range j.def.Steps {
		r := &stepRun{job: j, step: s, index: i + 1}
		r.run()
	}
}

// stepRun is one step on its way.
type stepRun struct {
	job   *Job
	step  lock.Step
	index int
	log   *spool.Step

	report  wire.StepStatus
	outputs map[string]any
}

var errStepTimeout = errors.New("the step exceeded its timeout")

func (r *stepRun) run() {
	j := r.job
	r.report = wire.StepStatus{StepIndex: r.index, Name: r.name()}
	if j.base.Err() != nil {
		j.status = "cancelled"
		r.skip()
		return
	}
	if j.soft.Err() != nil {
		j.status = "cancelled"
	}
	runs, err := expr.Condition(r.step.If, j.scope(j.env))
	if err == nil && !runs {
		r.skip()
		return
	}
	r.log, _ = j.cfg.Spool.Open(r.index)
	if r.log == nil { // the disk refuses: the step runs all the same, unseen
		r.log = j.cfg.Spool.Discard()
	}
	defer r.log.Close()
	j.writing(r.log)
	defer j.writing(nil)
	r.report.StartedAt, r.report.Status = j.now(), string(ci.StepRunning)
	j.report(r.report)
	if err != nil {
		err = fmt.Errorf("if: %w", err)
	} else {
		err = r.attempts()
	}
	r.finish(err)
}

func (r *stepRun) skip() {
	r.report.Status, r.report.FinishedAt = string(ci.StepSkipped), r.job.now()
	r.remember("skipped", "skipped")
	r.job.report(r.report)
}

// finish decides what the step's end means for the job.
func (r *stepRun) finish(err error) {
	j := r.job
	outcome, conclusion := "success", "success"
	switch {
	case err == nil:
		r.report.Status = string(ci.StepSuccess)
	case j.interrupted(err):
		r.report.Status, outcome, conclusion = string(ci.StepCancelled), "cancelled", "cancelled"
		j.status = "cancelled"
		r.log.Notice("%s", j.mask.String(err.Error()))
	default:
		r.report.Status, outcome, conclusion = string(ci.StepFailed), "failure", "failure"
		r.report.Error = err.Error()
		r.log.Notice("%s", j.mask.String(err.Error()))
		if r.continues() {
			r.report.Allowed, conclusion = true, "success"
		} else if j.status == "success" {
			j.status = "failure"
			j.limit = r.limitOf(err)
		}
	}
	r.log.Close()
	r.remember(outcome, conclusion)
	r.report.FinishedAt = j.now()
	j.report(r.report)
}

// limitOf is a job's reason when a step has failed because of a limit, ” for any other failure: the step tells that.
func (r *stepRun) limitOf(err error) string {
	var l *limitError
	if !errors.As(err, &l) {
		return ""
	}
	return fmt.Sprintf("step %d (%s): %s", r.index, r.report.Name, l.limit)
}

// interrupted reports whether a step ended because the whole job was stopped.
func (j *Job) interrupted(err error) bool {
	for _, why := range []error{errCancelled, errForced, errTimeout, ErrAborted, ErrGone} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// remember puts the step into the steps context.
func (r *stepRun) remember(outcome, conclusion string) {
	if r.step.ID == "" {
		return
	}
	if r.outputs == nil {
		r.outputs = map[string]any{}
	}
	r.job.steps[r.step.ID] = map[string]any{"outputs": r.outputs, "outcome": outcome, "conclusion": conclusion}
}

func (r *stepRun) continues() bool {
	switch r.step.ContinueOnError {
	case "", "false":
		return false
	case "true":
		return true
	}
	text := r.step.ContinueOnError
	v, err := expr.Eval(text, r.job.scope(r.job.env))
	if err != nil {
		r.log.Notice("continue-on-error: %s", r.job.mask.String(err.Error()))
		return false
	}
	return expr.Truthy(v) && v != "false"
}

// name is the step's label with its expressions evaluated; where that fails, as written.
func (r *stepRun) name() string {
	name, err := expr.Interpolate(r.step.Label(), r.job.scope(r.job.env))
	if err != nil || strings.TrimSpace(name) == "" {
		return r.step.Label()
	}
	return name
}

// attempts runs the step until it succeeds or its retries are used up.
func (r *stepRun) attempts() error {
	retry := r.step.Retry
	for n := 1; ; n++ {
		err := r.attempt()
		if err == nil || r.job.interrupted(err) || retry == nil || n >= retry.MaxAttempts {
			return err
		}
		delay := retryDelay(*retry, n)
		r.report.Retries = n
		r.log.Notice("%s", r.job.mask.String(err.Error()))
		r.log.Notice("Attempt %d of %d failed; trying again in %s", n, retry.MaxAttempts, delay)
		r.killLeftovers()
		ctx := r.job.stepContext()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}

// retryDelay is the pause after failure n.
func retryDelay(p lock.Retry, n int) time.Duration {
	delay, most := time.Duration(p.DelayMs)*time.Millisecond, time.Duration(p.MaxDelayMs)*time.Millisecond
	if delay <= 0 {
		delay = time.Second
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	for ; p.Backoff != "fixed" && n > 1 && delay < most; n-- {
		delay *= 2
	}
	return min(delay, most)
}

// killLeftovers ends what a failed attempt left running, so that the next one finds its ports and files free.
func (r *stepRun) killLeftovers() {
	ctx, cancel := context.WithTimeout(context.Background(), killWithin)
	defer cancel()
	if err := r.job.tree.KillStep(ctx, r.index); err != nil {
		r.job.cfg.Log.Warn("end the processes of a failed attempt", "err", err)
	}
}

const killWithin = 10 * time.Second

// stepContext ends when a step that starts now must stop: at the job's cancel, or, once that has happened, when the time
// for cleaning up is over.
func (j *Job) stepContext() context.Context {
	if j.soft.Err() != nil {
		return j.base
	}
	return j.soft
}

func (r *stepRun) attempt() error {
	j := r.job
	ctx := j.stepContext()
	if r.step.Uses != "" {
		if r.step.Uses != "checkout" {
			return fmt.Errorf("uses: %s is not supported", r.step.Uses)
		}
		err := j.checkout(ctx, r.log)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	env, err := j.stepEnv(r.step)
	if err != nil {
		return err
	}
	files, err := j.newCommandFiles(r.index)
	if err != nil {
		return err
	}
	defer files.remove()
	spec, script, err := r.command(env, files)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(script) }()
	err = r.execute(ctx, spec)
	outputs, ferr := j.collect(files, r.log)
	r.outputs = outputs
	if err == nil {
		err = ferr
	}
	return err
}

// command evaluates the step's fields and writes its script.
func (r *stepRun) command(env map[string]string, files commandFiles) (exec.Spec, string, error) {
	j := r.job
	scope := j.scope(env)
	text, err := expr.Interpolate(r.step.Run, scope)
	if err != nil {
		return exec.Spec{}, "", fmt.Errorf("run: %w", err)
	}
	dir, err := j.directory(r.step, scope)
	if err != nil {
		return exec.Spec{}, "", err
	}
	environ := j.processEnv(env, files)
	sh, err := j.shellOf(r.step, scope, environ)
	if err != nil {
		return exec.Spec{}, "", err
	}
	argv, script, err := j.writeScript(sh, r.index, text)
	return exec.Spec{Step: r.index, Argv: argv, Dir: dir, Env: environ}, script, err
}

// execute runs the step's process; when ctx ends first, or its time, the step's processes are asked to go, then killed.
func (r *stepRun) execute(ctx context.Context, spec exec.Spec) error {
	j := r.job
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout(), errStepTimeout)
	defer cancel()
	shared := &commands{}
	j.disk.begin()
	stdout, stderr := j.newSharedOutput(r.log, "stdout", shared), j.newSharedOutput(r.log, "stderr", shared)
	spec.Stdout, spec.Stderr = stdout, stderr
	exited, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		r.stopWhenTold(ctx, exited)
	}()
	res, err := j.tree.Run(ctx, spec)
	close(exited)
	<-watched
	stdout.Close()
	stderr.Close()
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errStepTimeout):
		return fmt.Errorf("%w of %s", errStepTimeout, r.timeout())
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	r.report.ExitCode = &res.ExitCode
	if res.Limit == "" && res.ExitCode != 0 {
		res.Limit = j.disk.blame(shared.full.Load())
	}
	err = r.exitError(res)
	if err == nil && res.Limit != "" { // something of it was killed or refused, and it went on
		r.log.Notice("A process of this step: %s", res.Limit)
	}
	return err
}

// exitError is what a process's end means for its step. A limit that was hit meanwhile explains it, and is the job's reason as well.
func (r *stepRun) exitError(res exec.Result) error {
	var err error
	switch {
	case res.Signal != "":
		err = fmt.Errorf("the step was ended by %s", res.Signal)
	case res.ExitCode != 0:
		err = fmt.Errorf("the step exited with code %d", res.ExitCode)
	}
	if err == nil || res.Limit == "" {
		return err
	}
	return &limitError{res.Limit, err}
}

// limitError is a step's end with a limit that was hit.
type limitError struct {
	limit string
	end   error
}

func (e *limitError) Error() string { return e.limit + "; " + e.end.Error() }

func (e *limitError) Unwrap() error { return e.end }

func (r *stepRun) timeout() time.Duration {
	if r.step.TimeoutMs > 0 {
		return time.Duration(r.step.TimeoutMs) * time.Millisecond
	}
	if r.job.cfg.StepTimeout > 0 {
		return r.job.cfg.StepTimeout
	}
	return DefaultStepTimeout
}

// stopWhenTold ends the step's processes when ctx ends before the step: TERM, the grace, KILL; at once when the whole job
// must stop at once.
func (r *stepRun) stopWhenTold(ctx context.Context, exited <-chan struct{}) {
	select {
	case <-exited:
		return
	case <-ctx.Done():
	}
	j := r.job
	if j.base.Err() == nil {
		j.tree.Terminate(r.index)
		grace := time.NewTimer(j.gracePeriod())
		defer grace.Stop()
		select {
		case <-exited:
		case <-grace.C:
		case <-j.base.Done():
		}
	}
	r.killLeftovers()
}

// outputs evaluates the job's outputs. One that holds a secret is dropped with a word about it.
func (j *Job) outputs() (map[string]string, error) {
	if len(j.def.Outputs) == 0 {
		return nil, nil
	}
	out, err := j.interpolateOutputs()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if j.mask.Contains(out[name]) {
			delete(out, name)
			j.notices = append(j.notices, fmt.Sprintf("The output %s is dropped: it holds a secret value.", name))
		}
	}
	encoded, err := json.Marshal(out) // as they travel: the frame has a limit
	if err != nil {
		return nil, fmt.Errorf("encode the outputs: %w", err)
	}
	if len(encoded) > wire.MaxOutputsBytes {
		return nil, fmt.Errorf("the outputs of the job have %d bytes, more than the limit of %d", len(encoded), wire.MaxOutputsBytes)
	}
	return out, nil
}

func (j *Job) interpolateOutputs() (map[string]string, error) {
	scope := j.scope(j.env)
	out := make(map[string]string, len(j.def.Outputs))
	for name, text := range j.def.Outputs {
		v, err := expr.Interpolate(text, scope)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", name, err)
		}
		out[name] = strings.ToValidUTF8(v, "\ufffd")
	}
	return out, nil
}
