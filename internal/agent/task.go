package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

// task is one dispatched job on this agent, from its acknowledgement until its last report is acknowledged.
type task struct {
	agent    *Agent
	dispatch wire.JobDispatch
	reports  *outbox
	asks     *asks
	again    *service.Wake   // open questions are to be repeated
	ctx      context.Context // ends when the job is not ours any more, or nobody waits for its result
	stop     context.CancelCauseFunc

	mu      sync.Mutex
	job     Performer // nil until the description is here
	spool   *spool.Spool
	cancel  *wire.JobCancel // came before that
	abort   error
	endedAt time.Time // zero while it runs
}

func (a *Agent) newTask(d wire.JobDispatch) *task {
	t := &task{
		agent: a, dispatch: d, reports: newOutbox(a.link.Send, a.link.Quiet), asks: newAsks(a.link.Send, a.knows), again: service.NewWake(),
	}
	t.ctx, t.stop = context.WithCancelCause(context.Background())
	return t
}

func (t *task) is(jobID string, attempt int) bool {
	return t.dispatch.JobID == jobID && t.dispatch.Attempt == attempt
}

// Times of a task.
const (
	fetchPause    = 100 * time.Millisecond
	fetchMaxPause = 2 * time.Second
	fetchAttempts = 40 // some 75 s
)

// run does the whole job. It returns when there is nothing more to do for it.
func (t *task) run() {
	var helpers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.ctx)
	helpers.Go(func() { t.reports.run(ctx) })
	helpers.Go(func() { t.heartbeats(ctx) })
	helpers.Go(func() { t.resender(ctx) })
	defer helpers.Wait()
	defer cancel()
	log := t.agent.cfg.Log.With("job_id", t.dispatch.JobID, "run_id", t.dispatch.RunID, "attempt", t.dispatch.Attempt)
	log.Info("job accepted")
	dir, err := t.agent.work.Job(t.dispatch.JobID, t.dispatch.Attempt)
	if err != nil {
		t.fail(job.InitWorkspace, err)
		return
	}
	defer func() {
		if err := t.agent.work.Remove(dir); err != nil {
			log.Warn("remove the job's directory", "err", err)
		}
	}()
	spec, err := t.fetch()
	switch {
	case errors.Is(err, link.ErrNotOurs), t.ctx.Err() != nil:
		log.Info("job given back before it began", "err", err)
		return
	case err != nil:
		t.fail(job.InitSpec, err)
		return
	}
	out, complete := t.perform(spec, dir)
	log.Info("job ended", "status", out.Status, "err", out.Error, "reported", complete && t.ctx.Err() == nil)
}

// perform runs the job and hands over its log, then its result.
func (t *task) perform(spec wire.JobSpec, dir string) (out job.Outcome, complete bool) {
	cfg := t.agent.cfg
	sp := spool.New(spool.Config{
		Dir: filepath.Join(dir, "spool"), MaxBytes: cfg.MaxLogBytes, Post: t.agent.link.PostLog(spec.JobID, spec.Attempt), Now: cfg.Now, Rand: cfg.Rand, Log: cfg.Log,
	})
	ctx, cancel := context.WithCancel(t.ctx)
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		if errors.Is(sp.Run(ctx), spool.ErrGone) {
			t.giveUp(job.ErrGone)
		}
	}()
	defer func() { cancel(); <-posted; sp.Close() }()
	host, _ := os.Hostname()
	j := cfg.Perform(job.Config{
		Spec: spec, Dir: dir, AgentID: cfg.AgentID, Hostname: host, Version: cfg.Version, Environ: cfg.Environ, StepTimeout: cfg.StepTimeout, MinFreeDisk: cfg.MinFreeDisk,
		Source:    func(ctx context.Context) (io.ReadCloser, error) { return t.agent.link.FetchSource(ctx, spec.JobID) },
		Exclusive: cfg.Process, JobImage: cfg.JobImage, Sandbox: cfg.Sandbox, Ask: t.ask, Executable: cfg.Executable, Spool: sp, Report: t.reportStep, Begun: t.reports.known, Now: cfg.Now, Log: cfg.Log,
	})
	t.attach(j, sp)
	t.reportJob(wire.JobStatus{Status: string(ci.JobRunning), StartedAt: cfg.Now().UnixMilli()})
	out = j.Run()
	t.ended()
	if err := sp.Drained(t.ctx); err != nil { // all log bytes first, then the result (DESIGN §6)
		return out, false
	}
	t.finish(wire.JobStatus{
		Status: string(out.Status), StartedAt: out.StartedAt, FinishedAt: out.FinishedAt, Outputs: out.Outputs, Error: out.Error,
		InitFailure: out.InitFailure, KillMethod: out.KillMethod, TimedOut: out.TimedOut,
	})
	return out, true
}

// fetch gets the description, with patience for a coordinator that has just gone.
func (t *task) fetch() (spec wire.JobSpec, err error) {
	pause := fetchPause
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(t.ctx, writeTimeout)
		spec, err = t.agent.link.FetchJob(ctx, t.dispatch)
		cancel()
		if err == nil || errors.Is(err, link.ErrNotOurs) || n == fetchAttempts || (errors.Is(err, link.ErrDigest) && n >= 3) {
			return spec, err
		}
		t.agent.cfg.Log.Debug("fetch job", "job_id", t.dispatch.JobID, "err", err)
		select {
		case <-t.ctx.Done():
			return spec, context.Cause(t.ctx)
		case <-time.After(pause):
			pause = min(2*pause, fetchMaxPause)
		}
	}
}

// fail reports a job that could not begin.
func (t *task) fail(kind string, err error) {
	now := t.agent.cfg.Now().UnixMilli()
	t.ended()
	t.finish(wire.JobStatus{Status: string(ci.JobFailed), StartedAt: now, FinishedAt: now, InitFailure: kind, Error: job.Clip(err.Error())})
}

// finish sends the final report and waits until it is durable at the other side.
func (t *task) finish(s wire.JobStatus) {
	t.reportJob(s)
	t.reports.seal()
	select {
	case <-t.reports.drained:
	case <-t.ctx.Done():
	}
}

func (t *task) reportJob(s wire.JobStatus) {
	t.reports.add(wire.TypeJobStatus, func(seq int64) any {
		s.Seq, s.RunID, s.JobID, s.Attempt = seq, t.dispatch.RunID, t.dispatch.JobID, t.dispatch.Attempt
		return s
	})
}

func (t *task) reportStep(s wire.StepStatus) {
	t.reports.add(wire.TypeStepStatus, func(seq int64) any {
		s.Seq = seq
		return s
	})
}

// heartbeats say that the job is being worked on (AG-17).
func (t *task) heartbeats(ctx context.Context) {
	tick := time.NewTicker(t.agent.cfg.JobHeartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t.agent.link.Send(wire.TypeJobHeartbeat, wire.JobHeartbeat{
				RunID: t.dispatch.RunID, JobID: t.dispatch.JobID, Attempt: t.dispatch.Attempt, Timestamp: now.UnixMilli(),
			})
		}
	}
}

// attach makes the running job known and passes on what came before it was.
func (t *task) attach(j Performer, sp *spool.Spool) {
	t.mu.Lock()
	t.job, t.spool = j, sp
	cancel, abort := t.cancel, t.abort
	t.mu.Unlock()
	if cancel != nil {
		t.cancelJob(*cancel)
	}
	if abort != nil {
		j.Abort(abort)
	}
}

// cancelJob obeys job.cancel (AG-22).
func (t *task) cancelJob(c wire.JobCancel) {
	t.mu.Lock()
	j := t.job
	if j == nil {
		if t.cancel == nil || c.Force {
			t.cancel = &c
		}
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	j.Cancel(c.Force, time.Duration(c.GraceMs)*time.Millisecond)
}

// abortJob kills everything; the result says why.
func (t *task) abortJob(why error) {
	t.mu.Lock()
	j := t.job
	t.abort = why
	t.mu.Unlock()
	if j != nil {
		j.Abort(why)
	}
}

// giveUp kills everything and reports nothing more.
func (t *task) giveUp(why error) {
	t.abortJob(why)
	t.stop(why)
}

func (t *task) ended() {
	t.mu.Lock()
	t.endedAt = t.agent.cfg.Now()
	t.mu.Unlock()
}

// end is when the job ended; zero while it runs.
func (t *task) end() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endedAt
}

// reconnected makes reports and log go on at once.
func (t *task) reconnected() {
	t.reports.resume()
	t.again.Signal()
	t.mu.Lock()
	sp := t.spool
	t.mu.Unlock()
	if sp != nil {
		sp.Kick()
	}
}

func (t *task) String() string { return fmt.Sprintf("%s/%d", t.dispatch.JobID, t.dispatch.Attempt) }
