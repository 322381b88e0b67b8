// Package agent is `kici agent`: it dials the orchestrator, registers, runs one job at a time and leaves, or waits for the
// next one (spec AG-*). It keeps nothing that lasts. The rooms below it: link (the connection), job (one job from checkout
// to outputs), exec (processes and how to end them), spool (the log on its way), mask (secrets in the log) and envfile
// (how steps talk back). This package ties them together: what is accepted, what is reported until it is acknowledged,
// and when the agent leaves.
//
// # Life of an agent
//
// A managed agent (KICI_SCALER_MANAGED=1) runs one job, or leaves when none comes in time (AG-21). A static one goes on for
// ever. The link may be lost at any time: a job goes on, its log stays in the spool and its reports in the outbox, and
// both continue on the next connection. An agent whose orchestrator does not come back finishes its job, keeps the
// result for Config.ReconnectWindow and leaves (DESIGN §9).
//
// # When an agent is killed
//
// Its steps' first processes die with it, and <work dir>/<agent>/<job>/exec.json tells the next agent of the same work
// directory, or the node that started it, how to end what those have forked; see package exec.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/workdir"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

const (
	writeTimeout = 10 * time.Second
	slimAfter    = time.Second // an agent that is idle so long gives memory back
)

// Agent is one agent. Its state is guarded by mu; what is slow happens outside.
type Agent struct {
	cfg  Config
	link *link.Link
	work *workdir.Dir
	wake *service.Wake // the loop has something to look at

	mu           sync.Mutex
	task         *task
	later        []func() // what came for the next job while the last one was being tidied up
	tasks        sync.WaitGroup
	jobsDone     int
	draining     bool
	connected    bool
	idleBy       time.Time // when a managed agent without a job leaves; zero: not by itself
	started      time.Time
	facts        facts
	capabilities []string // of the orchestrator, on this connection
	slimmed      bool
}

// Main runs an agent to its end. nil means that it left as it should.
func Main(ctx context.Context, c Config) error {
	if c.Process {
		if err := protect(&c); err != nil { // may start the process again and never return
			return err
		}
	}
	if err := c.complete(); err != nil {
		return err
	}
	token, err := c.loadToken()
	if err != nil {
		return err
	}
	work, err := workdir.Open(c.WorkDir, c.AgentID, c.Log)
	if err != nil {
		return err
	}
	defer work.Close()
	if err := c.trySandbox(work.Path()); err != nil {
		return err
	}
	l, err := link.New(link.Config{
		URL: c.URL, Token: token, AgentID: c.AgentID, Version: c.Version, HTTP: c.HTTP, Now: c.Now, Rand: c.Rand, Log: c.Log,
	})
	if err != nil {
		return err
	}
	a := &Agent{cfg: c, link: l, work: work, wake: service.NewWake(), started: c.Now(), facts: gather()}
	return a.run(ctx)
}

// run is the agent's loop: it waits for the link to end, for signals, and for the time to leave.
func (a *Agent) run(ctx context.Context) error {
	signals, stopSignals := a.signals()
	defer stopSignals()
	linkCtx, stopLink := context.WithCancel(context.Background())
	linkDone := make(chan error, 1)
	go func() { linkDone <- a.link.Run(linkCtx, a) }()
	leave := func(err error) error {
		a.endTask(err)
		stopLink()
		if end := <-linkDone; end != nil {
			a.cfg.Log.Debug("link ended", "err", end)
		}
		a.cfg.HTTP.CloseIdleConnections()
		return err
	}
	done := ctx.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		leaves, next := a.consider()
		if leaves {
			return leave(nil)
		}
		timer.Reset(next)
		select {
		case <-a.wake.C():
		case <-timer.C:
		case <-done:
			done = nil
			a.terminate()
		case s := <-signals:
			a.signalled(s)
		case err := <-linkDone:
			linkDone <- err
			if errors.Is(err, link.ErrGone) {
				a.cfg.Log.Info("told to leave", "reason", err)
				return leave(nil)
			}
			return leave(err)
		}
	}
}

// consider decides whether to leave now, and when to think again otherwise.
func (a *Agent) consider() (leave bool, next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next = time.Hour
	switch {
	case a.task != nil:
		return false, next
	case a.draining, a.cfg.Managed && a.jobsDone > 0:
		return true, 0
	}
	if a.connected && !a.slimmed {
		a.slimmed = true
		time.AfterFunc(slimAfter, a.slim)
	}
	if a.connected && !a.idleBy.IsZero() { // never while disconnected (AG-21)
		if next = a.idleBy.Sub(a.cfg.Now()); next <= 0 {
			a.cfg.Log.Info("no job came in time; leaving")
			return true, 0
		}
	}
	return false, next
}

// slim gives memory back while there is nothing to do (D31).
func (a *Agent) slim() {
	a.mu.Lock()
	idle := a.task == nil
	a.slimmed = idle
	a.mu.Unlock()
	if idle && a.cfg.Process {
		service.GiveBack()
	}
}

// endTask stops what still runs; err is why the agent leaves, nil when it has nothing to do.
func (a *Agent) endTask(err error) {
	a.mu.Lock()
	t := a.task
	a.mu.Unlock()
	if t != nil {
		why := job.ErrAborted
		if err == nil || errors.Is(err, link.ErrGone) {
			why = job.ErrGone
		}
		t.giveUp(why)
	}
	a.tasks.Wait()
}

// Registration implements link.Handler.
func (a *Agent) Registration() wire.Register {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.facts.register()
	r.MessageID, r.AgentID, r.Version, r.MaxConcurrency = ci.NewID(), a.cfg.AgentID, a.cfg.Version, 1
	r.Labels = ci.NormalizeLabels(slices.Concat(a.cfg.Labels, ci.PlatformLabels(r.Platform, r.Arch), hostLabel(r.Hostname)))
	r.Properties = a.cfg.Properties
	r.InFlightJobs = []wire.InFlight{}
	if t := a.task; t != nil {
		r.InFlightJobs = append(r.InFlightJobs, wire.InFlight{
			JobID: t.dispatch.JobID, RunID: t.dispatch.RunID, Attempt: t.dispatch.Attempt, Ended: !t.end().IsZero(),
		})
	}
	return r
}

func hostLabel(host string) []string {
	if host == "" {
		return nil
	}
	return []string{"kici:host:" + host}
}

// Registered implements link.Handler.
func (a *Agent) Registered(ack wire.RegisterAck) {
	a.mu.Lock()
	a.connected, a.capabilities = true, ack.Capabilities
	a.idleBy = time.Time{}
	if a.cfg.Managed && (!ack.WarmPool || ack.PendingDispatch) {
		idle := a.cfg.IdleTimeout
		if ack.PendingDispatch {
			idle = max(idle, a.cfg.PendingTimeout)
		}
		a.idleBy = a.cfg.Now().Add(idle)
	}
	t := a.task
	a.mu.Unlock()
	a.cfg.Log.Info("registered", "labels", ack.Labels)
	if a.cfg.Managed && a.cfg.TokenFile != "" {
		if err := os.Remove(a.cfg.TokenFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			a.cfg.Log.Warn("remove the token file", "err", err)
		}
	}
	if t != nil {
		if slices.Contains(ack.Abandon, t.dispatch.JobID) {
			t.giveUp(job.ErrGone)
		} else {
			t.reports.pause()
		}
	}
}

// Ready implements link.Handler.
func (a *Agent) Ready() {
	a.mu.Lock()
	t := a.task
	a.mu.Unlock()
	if t != nil {
		t.reconnected()
	}
	a.wake.Signal()
}

// Lost implements link.Handler.
func (a *Agent) Lost(err error) {
	a.mu.Lock()
	a.connected = false
	leaving := a.task == nil && (a.draining || a.cfg.Managed && a.jobsDone > 0)
	a.mu.Unlock()
	if !leaving {
		a.cfg.Log.Warn("link lost", "err", err)
	}
	a.wake.Signal()
}

// Patient implements link.Handler: a running job is always worth waiting for; a result, and an agent without work, for the
// reconnect window.
func (a *Agent) Patient(since time.Time) bool {
	a.mu.Lock()
	t, draining := a.task, a.draining
	a.mu.Unlock()
	if t != nil {
		end := t.end()
		if end.IsZero() {
			return true
		}
		if end.After(since) {
			since = end
		}
	} else if draining {
		return false
	}
	window := a.cfg.ReconnectWindow
	if window == 0 && a.cfg.Managed {
		window = defaultReconnectWindow
	}
	return window == 0 || a.cfg.Now().Sub(since) < window
}

// Frame implements link.Handler. Unknown types are ignored: a newer orchestrator may know more.
func (a *Agent) Frame(f wire.Frame) error {
	switch f.Type {
	case wire.TypeJobDispatch:
		return handle(f, a.onDispatch)
	case wire.TypeJobCancel:
		return handle(f, a.onCancel)
	case wire.TypeReportAck:
		return handle(f, a.onReportAck)
	case wire.TypeEventEmitResult, wire.TypeJobAddResult:
		return handle(f, a.onStepResult)
	case wire.TypeDrain:
		return handle(f, func(d wire.Drain) { a.drain("the orchestrator: " + d.Reason) })
	}
	return nil
}

func handle[T any](f wire.Frame, do func(T)) error {
	body, err := link.Body[T](f)
	if err != nil {
		return err
	}
	do(body)
	return nil
}

// onDispatch answers at once (AG-18). A repeated dispatch of the job at hand is acknowledged again.
func (a *Agent) onDispatch(d wire.JobDispatch) {
	a.mu.Lock()
	reason := ""
	switch {
	case a.task != nil && a.task.is(d.JobID, d.Attempt):
		a.mu.Unlock()
		a.link.Send(wire.TypeJobAck, wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt})
		return
	case a.task != nil && !a.cfg.Managed && !a.draining && len(a.later) == 0 && !a.task.end().IsZero():
		// The orchestrator knows that the job is over before this agent has tidied up after it.
		a.later = append(a.later, func() { a.onDispatch(d) })
		a.mu.Unlock()
		return
	case a.task != nil:
		reason = "busy"
	case a.draining, a.cfg.Managed && a.jobsDone > 0:
		reason = "draining"
	}
	if reason != "" {
		a.mu.Unlock()
		a.link.Send(wire.TypeJobReject, wire.JobReject{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Reason: reason})
		return
	}
	t := a.newTask(d)
	a.task = t
	a.idleBy = time.Time{}
	a.mu.Unlock()
	a.link.Send(wire.TypeJobAck, wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt})
	a.tasks.Go(func() {
		t.run()
		a.taskDone()
	})
}

func (a *Agent) taskDone() {
	a.mu.Lock()
	a.task.stop(nil)
	a.task = nil
	a.jobsDone++
	uptime := a.cfg.Now().Sub(a.started)
	later := a.later
	a.later = nil
	a.mu.Unlock()
	for _, do := range later {
		do()
	}
	used, available := memory()
	a.link.Send(wire.TypeAgentStatus, wire.AgentStatus{MemoryUsedMb: used, MemoryAvailableMb: available, UptimeSeconds: int64(uptime.Seconds())})
	a.wake.Signal()
}

// current returns the task when it is that job. Attempt 0 is any.
func (a *Agent) current(jobID string, attempt int) *task {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.task == nil || a.task.dispatch.JobID != jobID || (attempt != 0 && a.task.dispatch.Attempt != attempt) {
		return nil
	}
	return a.task
}

func (a *Agent) onCancel(c wire.JobCancel) {
	a.mu.Lock()
	if len(a.later) > 0 {
		a.later = append(a.later, func() { a.onCancel(c) })
	}
	a.mu.Unlock()
	if t := a.current(c.JobID, 0); t != nil {
		a.cfg.Log.Info("job cancelled", "job_id", c.JobID, "reason", c.Reason, "force", c.Force)
		t.cancelJob(c)
	}
}

func (a *Agent) onReportAck(r wire.ReportAck) {
	t := a.current(r.JobID, r.Attempt)
	switch {
	case t == nil:
	case r.Gone:
		a.cfg.Log.Warn("the job was taken away", "job_id", r.JobID)
		t.giveUp(job.ErrGone)
	default:
		t.reports.ack(r.Seq)
	}
}

// drain takes no further job; the agent leaves when it has none (AG-23).
func (a *Agent) drain(why string) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.cfg.Log.Info("draining", "reason", why)
	a.wake.Signal()
}

// terminate is SIGTERM: drain, and abort a job that does not end soon.
func (a *Agent) terminate() {
	a.drain("terminated")
	a.mu.Lock()
	t := a.task
	a.mu.Unlock()
	if t != nil {
		time.AfterFunc(a.cfg.termPatience, func() { t.abortJob(job.ErrAborted) })
		time.AfterFunc(2*a.cfg.termPatience, func() { t.giveUp(job.ErrAborted) }) // its result cannot be delivered
	}
}

func (a *Agent) signalled(s os.Signal) {
	switch {
	case isDrain(s):
		a.drain("signal " + s.String())
	default:
		a.terminate()
	}
}

// String is for logs.
func (a *Agent) String() string { return fmt.Sprintf("agent %s", a.cfg.AgentID) }
