package sim

import (
	"context"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

// liar is an agent that speaks the protocol and says what is not so: another job's name, reports out of order, twice, after the end,
// or nothing at all.
type liar struct {
	a    *agentProcess
	d    *dice
	link *link.Link
	ctx  context.Context
	stop context.CancelFunc

	mu   sync.Mutex
	have map[string]bool
	work sync.WaitGroup
}

// aLie is in all that a liar says, so that one is known where it is believed.
const aLie = "a lie"

func (a *agentProcess) lie(ctx context.Context) error {
	w := a.m.w
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client := w.net.client(a.actor, a.sent)
	defer client.CloseIdleConnections()
	l := &liar{a: a, d: w.seed.dice("liar " + a.actor), ctx: ctx, stop: stop, have: map[string]bool{}}
	var err error
	l.link, err = link.New(link.Config{
		URL: a.spec.URL, Token: a.spec.Token, AgentID: a.id, Version: "liar", HTTP: client, Now: time.Now, Rand: a.rand,
		Log: w.trace.logger(a.actor, w.o.LogLevel),
	})
	if err != nil {
		return err
	}
	w.trace.add("agent %s is a liar", a.actor)
	go func() { // it does not lie for ever
		if service.Sleep(ctx, quick(90*time.Second)) == nil {
			stop()
		}
	}()
	err = l.link.Run(ctx, l)
	stop()
	l.work.Wait()
	return err
}

// Registration implements link.Handler.
func (l *liar) Registration() wire.Register {
	return wire.Register{
		MessageID: "1", AgentID: l.a.id, Labels: l.a.spec.Labels, Platform: "linux", Arch: "amd64", Version: "liar", MaxConcurrency: 1,
		InFlightJobs: []wire.InFlight{}, RunningAsUID: 1000,
	}
}

// Registered implements link.Handler.
func (l *liar) Registered(wire.RegisterAck) {}

// Ready implements link.Handler.
func (l *liar) Ready() {}

// Lost implements link.Handler.
func (l *liar) Lost(error) {}

// Patient implements link.Handler.
func (l *liar) Patient(time.Time) bool { return l.ctx.Err() == nil }

// Frame implements link.Handler.
func (l *liar) Frame(f wire.Frame) error {
	if f.Type != wire.TypeJobDispatch {
		return nil
	}
	d, err := link.Body[wire.JobDispatch](f)
	if err != nil {
		return err
	}
	l.mu.Lock()
	had := l.have[d.JobID]
	l.have[d.JobID] = true
	l.mu.Unlock()
	if !had {
		l.a.m.w.watch.lied(d.JobID)
		l.work.Go(func() { l.tell(d) })
	}
	return nil
}

// tell tells one story about a job.
func (l *liar) tell(d wire.JobDispatch) {
	w := l.a.m.w
	ack := wire.JobAck{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt}
	story := pick(l.d, 0, 1, 2, 2, 2, 3, 4, 5, 6)
	w.trace.add("liar %s story %d about %s", l.a.actor, story, d.JobID)
	if story == 0 { // says nothing
		return
	}
	pause := func() bool { return service.Sleep(l.ctx, l.d.between(time.Millisecond, 4*time.Second)) == nil }
	if story == 1 { // refuses, and does it all the same
		l.link.Send(wire.TypeJobReject, wire.JobReject{RunID: d.RunID, JobID: d.JobID, Attempt: d.Attempt, Reason: "busy"})
	} else {
		l.link.Send(wire.TypeJobAck, ack)
	}
	if !pause() {
		return
	}
	_, _ = l.link.FetchJob(l.ctx, d)
	other := d
	if story == 2 { // speaks about a job that another has
		other.JobID = w.watch.someOther(d.JobID, l.d)
	}
	if story == 3 {
		other.Attempt = d.Attempt + l.d.below(3) - 1
	}
	seq := int64(0)
	if story == 2 { // as if it were the last that is said of it
		seq = 1000
	}
	for range 3 + l.d.below(8) {
		if !pause() {
			return
		}
		seq += int64(l.d.below(4)) - 1
		if l.d.chance(60) {
			l.link.Send(wire.TypeStepStatus, wire.StepStatus{
				Seq: max(seq, 0), RunID: other.RunID, JobID: other.JobID, Attempt: other.Attempt, StepIndex: l.d.below(4), Name: aLie, Error: aLie,
				Status: string(pick(l.d, ci.StepRunning, ci.StepSuccess, ci.StepFailed, ci.StepSkipped)), StartedAt: 1, FinishedAt: time.Now().UnixMilli() + 1e9,
			})
			continue
		}
		l.link.Send(wire.TypeJobStatus, wire.JobStatus{
			Seq: max(seq, 0), RunID: other.RunID, JobID: other.JobID, Attempt: other.Attempt,
			Status: string(pick(l.d, ci.JobRunning, ci.JobRunning, ci.JobSuccess, ci.JobFailed, ci.JobCancelled)), Error: aLie, FinishedAt: time.Now().UnixMilli(),
		})
	}
}
