package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
)

// asks are what the steps of one job have asked and the orchestrator has not answered. They are sent at once, and again on every
// new connection under the same request id, until there is an answer or nobody waits for it any more.
type asks struct {
	send func(kind string, body any) bool
	can  func(kind string) bool // the orchestrator knows such requests; true while there is no link

	mu   sync.Mutex
	open map[string]*ask
}

type ask struct {
	kind    string
	body    any
	waiters int
	answer  chan struct{} // closed when result is set
	result  wire.StepResult
}

// Pauses between two questions that the orchestrator could not answer.
const (
	askPause    = 200 * time.Millisecond
	askMaxPause = 5 * time.Second
)

func newAsks(send func(string, any) bool, can func(string) bool) *asks {
	return &asks{send: send, can: can, open: map[string]*ask{}}
}

// do asks and waits for the answer until ctx ends.
func (a *asks) do(ctx context.Context, kind, id string, body any) wire.StepResult {
	if data, err := link.Encode(kind, body); err != nil || len(data) > wire.MaxFrameBytes {
		return stepcall.Refused(wire.StepTooLarge, "the request has more bytes, once encoded, than the %d of a message", wire.MaxFrameBytes)
	}
	for pause := askPause; ; pause = min(2*pause, askMaxPause) {
		if !a.can(kind) {
			return stepcall.Refused(wire.StepUnsupported, "the orchestrator does not know %q: it is older than this agent", kind)
		}
		res, ok := a.once(ctx, kind, id, body)
		if !ok {
			return stepcall.Refused(wire.StepEnded, "the job is over, or the caller has gone, before the orchestrator answered")
		}
		if res.Code != wire.StepUnavailable {
			return res
		}
		t := time.NewTimer(max(pause, min(time.Duration(res.RetryAfterMs)*time.Millisecond, askMaxPause)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return res
		}
	}
}

// once is one question. ok is false when ctx ended before the answer.
func (a *asks) once(ctx context.Context, kind, id string, body any) (res wire.StepResult, ok bool) {
	a.mu.Lock()
	q := a.open[id]
	if q == nil || q.kind != kind {
		q = &ask{kind: kind, body: body, answer: make(chan struct{})}
		a.open[id] = q
	}
	q.waiters++
	first := q.waiters == 1
	a.mu.Unlock()
	if first {
		a.send(kind, body) // where there is no link, the next one sends it
	}
	defer a.leave(id, q)
	select {
	case <-q.answer:
		return q.result, true
	case <-ctx.Done():
		return res, false
	}
}

func (a *asks) leave(id string, q *ask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.waiters--; q.waiters == 0 && a.open[id] == q {
		delete(a.open, id)
	}
}

// answered takes the orchestrator's answer. One that nobody waits for is dropped.
func (a *asks) answered(r wire.StepResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.open[r.RequestID]; q != nil {
		delete(a.open, r.RequestID)
		q.result = r
		close(q.answer)
	}
}

// repeat sends everything again, on a new connection.
func (a *asks) repeat() {
	a.mu.Lock()
	var open []*ask
	for _, q := range a.open {
		open = append(open, q)
	}
	a.mu.Unlock()
	for _, q := range open {
		if !a.send(q.kind, q.body) {
			return
		}
	}
}

// ask is the way from a step to the orchestrator (stepcall.Handler).
func (t *task) ask(ctx context.Context, r stepcall.Request) wire.StepResult {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	switch r.Type {
	case wire.TypeEventEmit:
		return t.asks.do(ctx, r.Type, r.RequestID, wire.EventEmit{
			RequestID: r.RequestID, JobID: t.dispatch.JobID, Attempt: t.dispatch.Attempt, Name: r.Name, Payload: r.Payload, TargetRepos: r.TargetRepos,
		})
	case wire.TypeJobAdd:
		return t.asks.do(ctx, r.Type, r.RequestID, wire.JobAdd{
			RequestID: r.RequestID, JobID: t.dispatch.JobID, Attempt: t.dispatch.Attempt, Jobs: r.Jobs,
		})
	}
	return stepcall.Refused(wire.StepUnsupported, "this agent does not know %q", r.Type)
}

// resender repeats open questions without holding up the link's reader.
func (t *task) resender(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.again.C():
			t.asks.repeat()
		}
	}
}

// onStepResult passes an answer to the job that asked.
func (a *Agent) onStepResult(r wire.StepResult) {
	if t := a.current(r.JobID, 0); t != nil {
		t.asks.answered(r)
	}
}

// knows reports whether the orchestrator of the current connection takes this kind of request.
func (a *Agent) knows(kind string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.connected {
		return true // whoever comes next decides
	}
	return slices.Contains(a.capabilities, kind)
}
