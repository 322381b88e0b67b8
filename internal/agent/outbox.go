package agent

import (
	"context"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/service"
)

// maxUnacked is how many reports may be on their way: the orchestrator's commits set the pace.
const maxUnacked = 48

// outbox holds the reports of one job until they are acknowledged, and repeats them on every new connection. They are sent
// in order.
type outbox struct {
	send  func(kind string, body any) bool
	quiet func() time.Duration // the orchestrator wants a pause
	wake  *service.Wake

	sending sync.Mutex // held from choosing a report until it is sent; never taken with mu held

	mu      sync.Mutex
	seq     int64
	pending []report
	sent    int           // of pending, on this connection
	open    bool          // there is a connection, as far as is known; after a failure not until resume
	known   chan struct{} // closed when the first report is acknowledged
	drained chan struct{}
	closed  bool // nothing is added any more
}

type report struct {
	seq  int64
	kind string
	body any
}

func newOutbox(send func(string, any) bool, quiet func() time.Duration) *outbox {
	return &outbox{send: send, quiet: quiet, wake: service.NewWake(), known: make(chan struct{}), drained: make(chan struct{}), open: true}
}

// add queues a report; build gets its sequence number.
func (o *outbox) add(kind string, build func(seq int64) any) {
	o.mu.Lock()
	o.seq++
	o.pending = append(o.pending, report{o.seq, kind, build(o.seq)})
	o.mu.Unlock()
	o.wake.Signal()
}

// seal says that no report follows: drained closes when the last is acknowledged.
func (o *outbox) seal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.finish()
}

// ack drops every report up to seq.
func (o *outbox) ack(seq int64) {
	o.mu.Lock()
	n := 0
	for n < len(o.pending) && o.pending[n].seq <= seq {
		n++
	}
	o.pending = o.pending[n:]
	o.sent = max(o.sent-n, 0)
	if n > 0 {
		o.acked()
	}
	o.finish()
	o.mu.Unlock()
	o.wake.Signal()
}

// acked is called with mu held.
func (o *outbox) acked() {
	select {
	case <-o.known:
	default:
		close(o.known)
	}
}

// finish is called with mu held.
func (o *outbox) finish() {
	if o.closed && len(o.pending) == 0 {
		select {
		case <-o.drained:
		default:
			close(o.drained)
		}
	}
}

// pause comes before anything can be sent on a new connection: everything unacknowledged will go out again, from the
// first. No report that was chosen before is sent after it, because the orchestrator drops what arrives behind a higher
// number.
func (o *outbox) pause() {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent, o.open = 0, false
}

// resume follows when the new connection can be used.
func (o *outbox) resume() {
	o.mu.Lock()
	o.open = true
	o.mu.Unlock()
	o.wake.Signal()
}

// run sends until ctx ends.
func (o *outbox) run(ctx context.Context) {
	for {
		for {
			if d := o.quiet(); d > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(d):
				}
			}
			if !o.sendNext() {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake.C():
		}
	}
}

// sendNext reports whether one was sent. After a failure nothing is, until the next connection.
func (o *outbox) sendNext() bool {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.Lock()
	if !o.open || o.sent >= min(len(o.pending), maxUnacked) {
		o.mu.Unlock()
		return false
	}
	r := o.pending[o.sent]
	o.sent++ // before sending: its acknowledgement may come at once
	o.mu.Unlock()
	ok := o.send(r.kind, r.body)
	if !ok {
		o.mu.Lock()
		o.open = false
		o.mu.Unlock()
	}
	return ok
}
