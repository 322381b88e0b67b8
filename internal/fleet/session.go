package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/wire"
)

const (
	maxOutbox    = 512 // frames that a slow agent may leave unread
	maxInbox     = 256 // reports that wait for the store before the reader does
	writeTimeout = 10 * time.Second
)

// session is one connection: a goroutine that reads, and for moments one that writes and one that commits reports.
type session struct {
	f    *Fleet
	conn *websocket.Conn
	id   string // connection id

	// Set once, when registration has succeeded, before the session can be found.
	agentID, tokenHash, nodeID string
	managed                    bool

	limits limiter // the reader's

	lastSeen, lastBeat atomic.Int64
	unhealthy          atomic.Bool

	mu         sync.Mutex // guards what follows
	idle       sync.Cond  // reports became empty, or room appeared
	out        [][]byte
	writing    bool
	written    bool // the writer has ended for good
	end        *ending
	reports    []report
	committing bool
	asks       []ask
	asking     bool
	violations []int64 // times within a minute (AG-19)
	current    *delivered
	drainSent  bool
}

// ending says how a session is closed, and why in words of obs.DisconnectReasons.
type ending struct {
	code   int
	reason string
	why    string
}

// delivered is the job that was handed to the agent.
type delivered struct {
	key       jobKey
	runID     string
	ackBy     int64 // of the organisation's time; by the clock of this process
	acked     bool
	cancelled bool
	forced    bool
}

func newSession(f *Fleet, conn *websocket.Conn, id string) *session {
	now := f.Env.Now()
	s := &session{f: f, conn: conn, id: id, limits: newLimiter(now)}
	s.idle.L = &s.mu
	s.lastSeen.Store(now.UnixMilli())
	s.lastBeat.Store(now.UnixMilli())
	return s
}

// send queues a frame. A goroutine exists only while there is something to write.
func (s *session) send(kind string, body any) {
	b, err := json.Marshal(body)
	if err == nil {
		b, err = json.Marshal(wire.Frame{Type: kind, Body: b})
	}
	if err != nil {
		s.f.Log.Error("encode frame", "type", kind, "err", err)
		return
	}
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return
	}
	s.out = append(s.out, b)
	full := len(s.out) > maxOutbox
	s.startWriter()
	s.mu.Unlock()
	if full {
		s.close(ending{wire.CloseInvalid, "the agent does not read what it is sent", "invalid"})
	}
}

// close ends the session after what was queued before. The first reason stands.
func (s *session) close(e ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = &e
		s.startWriter()
	}
}

// startWriter is called with mu held.
func (s *session) startWriter() {
	if !s.writing {
		s.writing = true
		s.f.wg.Go(s.write)
	}
}

func (s *session) write() {
	for {
		s.mu.Lock()
		frames, end := s.out, s.end
		s.out = nil
		if len(frames) == 0 && end == nil {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if !s.writeAll(frames, end) {
			s.mu.Lock()
			s.written = true // writing stays true: nothing more is sent, the reader sees the end
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

// writeAll reports whether the connection goes on.
func (s *session) writeAll(frames [][]byte, end *ending) bool {
	for _, b := range frames {
		if err := s.writeFrame(b); err != nil {
			_ = s.conn.CloseNow()
			return false
		}
	}
	if end != nil {
		_ = s.conn.Close(websocket.StatusCode(end.code), clip(end.reason, 120))
	}
	return end == nil
}

// farewell waits until a close of ours has been said.
func (s *session) farewell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.end != nil && !s.written {
		s.idle.Wait()
	}
}

func (s *session) writeFrame(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, b)
}

// read returns the next frame. It has no deadline of its own: whoever wants one closes the session.
func (s *session) read() (wire.Frame, int, error) {
	kind, data, err := s.conn.Read(context.Background())
	if err != nil {
		return wire.Frame{}, 0, err
	}
	s.lastSeen.Store(s.f.Env.NowMs())
	if kind != websocket.MessageText {
		return wire.Frame{}, 0, errInvalid
	}
	frame, err := decodeFrame(data)
	return frame, len(data), err
}

var errInvalid = errors.New("invalid frame")

func decodeFrame(data []byte) (wire.Frame, error) {
	var frame wire.Frame
	if err := json.Unmarshal(data, &frame); err != nil || frame.Type == "" {
		return wire.Frame{}, errInvalid
	}
	return frame, nil
}

// run reads until the connection ends. Every error of a frame ends it with CloseInvalid.
func (s *session) run() error {
	for {
		frame, size, err := s.read()
		if err != nil {
			if errors.Is(err, errInvalid) {
				s.close(ending{wire.CloseInvalid, err.Error(), "invalid"})
			}
			return err
		}
		if frame.Type != wire.TypeHeartbeat && !s.withinRate(frame.Type, size) {
			return errFlood
		}
		if err := s.handle(frame); err != nil {
			s.close(ending{wire.CloseInvalid, err.Error(), "invalid"})
			return err
		}
	}
}

var errFlood = errors.New("too many messages")

// withinRate slows a fast agent down by not reading on, warns it when that begins, and gives up on one that floods. Many
// short steps make many reports; those are slowed down only, because they would come again after a reconnect.
func (s *session) withinRate(kind string, size int) bool {
	wait, begins, tooLong := s.limits.take(size, s.f.Env.Now())
	if begins {
		s.send(wire.TypeRateWarning, wire.RateWarning{RetryAfterMs: wait.Milliseconds() + 1})
	}
	if tooLong && kind != wire.TypeStepStatus && kind != wire.TypeJobStatus {
		s.close(ending{wire.CloseInvalid, errFlood.Error(), "rate"})
		return false
	}
	if wait > 0 {
		time.Sleep(min(wait, time.Second))
	}
	return true
}

// handle takes one frame of a registered agent. Types that it does not know are ignored, so that a newer agent may say more.
func (s *session) handle(frame wire.Frame) error {
	switch frame.Type {
	case wire.TypeHeartbeat, wire.TypeConfigAck, wire.TypeAgentStatus:
		return nil
	case wire.TypeAuthRequest:
		s.send(wire.TypeAuthSuccess, wire.AuthSuccess{ConnectionID: s.id})
		return nil
	case wire.TypeRegister:
		return s.reregister(frame.Body)
	case wire.TypeJobHeartbeat:
		var b wire.JobHeartbeat
		if err := json.Unmarshal(frame.Body, &b); err != nil {
			return errInvalid
		}
		s.f.beats.add(jobKey{b.JobID, b.Attempt}, s)
		return nil
	}
	if a, known, err := decodeAsk(frame); known {
		if err == nil {
			s.takeAsk(a)
		}
		return err
	}
	r, known, err := decodeReport(frame)
	if err != nil {
		return err
	}
	if known {
		s.take(r)
	}
	return nil
}

// take queues a report for the store, waiting while too many are.
func (s *session) take(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.reports) >= maxInbox && s.committing {
		s.idle.Wait()
	}
	s.reports = append(s.reports, r)
	if !s.committing {
		s.committing = true
		s.f.wg.Go(s.commit)
	}
}

// settle waits until the store has every report that was read.
func (s *session) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.committing {
		s.idle.Wait()
	}
}

// commit writes what has queued up, all of it in one transaction, until nothing is left.
func (s *session) commit() {
	for {
		s.mu.Lock()
		batch := s.reports
		s.reports = nil
		if len(batch) == 0 {
			s.committing = false
		}
		s.idle.Broadcast()
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if err := s.f.commitReports(s, batch); err != nil {
			s.f.Log.Error("store reports", "agent_id", s.agentID, "reports", len(batch), "err", err)
			// The agent keeps what is not acknowledged and repeats it on the next connection.
			s.close(ending{int(websocket.StatusTryAgainLater), "the store is not available", "closed"})
			s.mu.Lock()
			s.reports, s.committing = nil, false
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n]
}
