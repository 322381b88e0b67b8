package fleet

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

const (
	deliverEvery = 5 * time.Second       // without a wake-up
	controlEvery = 50 * time.Millisecond // at most, however many wake-ups
)

// deliverLoop hands out what the leader wrote and passes on what else the rows say about agents here. New assignments are
// looked at on every wake-up, the rest at most every controlEvery.
func (f *Fleet) deliverLoop(ctx context.Context) error {
	assigned := f.Store.Subscribe(store.TopicAssignments, "")
	defer assigned.Close()
	agents := f.Store.Subscribe(store.TopicAgents, "")
	defer agents.Close()
	tokens := f.Store.Subscribe(store.TopicAgentTokens, "")
	defer tokens.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var controlled time.Time
	var err error
	for {
		next := deliverEvery
		if err == nil {
			err = f.deliver(ctx)
		}
		if since := f.Env.Now().Sub(controlled); err == nil && since < controlEvery {
			next = controlEvery - since
		} else if err == nil {
			err = f.control(ctx)
			controlled = f.Env.Now()
		}
		if err != nil && ctx.Err() == nil {
			f.Log.Error("deliver assignments", "err", err)
			next = time.Second
		}
		timer.Reset(next)
		err = nil
		select {
		case <-ctx.Done():
			return nil
		case <-assigned.C():
		case <-agents.C():
		case <-tokens.C():
			err = f.revoked(ctx)
		case <-f.wake.C():
		case <-timer.C:
		}
	}
}

// deliver sends open assignments that were not sent yet to agents with a session here. The frame goes first and the row
// follows: an agent that gets one twice answers twice, and an acknowledgement is judged by the row. The row is
// marked as it was read: an agent that has come back on another connection meanwhile gets the job there.
func (f *Fleet) deliver(ctx context.Context) error {
	rows, err := f.Store.Read().FleetUnsent(ctx, f.InstanceID)
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	var sent []db.FleetMarkSentParams
	var within []int64 // what each has to acknowledge it, ms
	now := f.Env.NowMs()
	for _, row := range rows {
		s := f.session(row.AgentID)
		if s == nil {
			continue // its connection has just ended, and the row will say so
		}
		key := jobKey{row.JobID, int(row.Attempt)}
		ackWithin := f.Settings.ackWithin(row.OrgID).Milliseconds()
		if s.begin(delivered{key: key, runID: row.RunID, ackBy: now + ackWithin}) {
			s.send(wire.TypeJobDispatch, wire.JobDispatch{RunID: row.RunID, JobID: row.JobID, Attempt: key.attempt, Digest: digest(row.LockJob)})
		}
		sent = append(sent, db.FleetMarkSentParams{JobID: row.JobID, Attempt: row.Attempt, WasAckBy: row.AckBy})
		within = append(within, ackWithin)
	}
	if len(sent) == 0 {
		return nil
	}
	return f.Store.Write(ctx, func(tx *store.Tx) error {
		now := tx.Now()
		for i, mark := range sent {
			mark.SentAt, mark.AckBy = sql.NullInt64{Int64: now, Valid: true}, now+within[i]
			if _, err := tx.FleetMarkSent(ctx, mark); err != nil {
				return fmt.Errorf("note delivery: %w", err)
			}
		}
		return nil
	})
}

// begin makes a job the session's current one; false when it was sent on this connection already.
func (s *session) begin(d delivered) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.key == d.key {
		return false
	}
	s.current = &d
	return true
}

// sealedJob is a lock job in exactly the bytes that a JSON encoder will leave alone, which the digest is taken over.
func sealedJob(lockJob string) json.RawMessage {
	b, err := json.Marshal(json.RawMessage(lockJob))
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

func digest(lockJob string) string {
	sum := sha256.Sum256(sealedJob(lockJob))
	return hex.EncodeToString(sum[:])
}

// control passes on cancellations, drains and ends of agents, and disconnects agents whose acknowledgement is overdue.
func (f *Fleet) control(ctx context.Context) error {
	q := f.Store.Read()
	cancelling, err := q.FleetCancelling(ctx)
	if err != nil {
		return fmt.Errorf("read cancellations: %w", err)
	}
	for _, row := range cancelling {
		if s := f.session(row.AgentID); s != nil && s.cancel(jobKey{row.ID, int(row.Attempt)}, row.CancelForce) {
			s.send(wire.TypeJobCancel, wire.JobCancel{RunID: row.RunID, JobID: row.ID, Reason: row.CancelReason, Force: row.CancelForce})
		}
	}
	draining, err := q.FleetDrainingAgents(ctx, f.InstanceID)
	if err != nil {
		return fmt.Errorf("read draining agents: %w", err)
	}
	for _, id := range draining {
		if s := f.session(id); s != nil && s.drain() {
			s.send(wire.TypeDrain, wire.Drain{Reason: "draining"})
		}
	}
	ended, err := q.FleetEndedAgents(ctx, f.InstanceID)
	if err != nil {
		return fmt.Errorf("read ended agents: %w", err)
	}
	for _, row := range ended {
		if s := f.session(row.ID); s != nil && s.id == row.SessionID {
			s.close(endOfAgent(row.GoneReason))
		}
	}
	return f.unacknowledged(ctx, q)
}

func endOfAgent(reason string) ending {
	if reason == ci.GoneUnresponsive {
		return ending{wire.CloseNotAcked, "the job was not acknowledged in time", "not_acked"}
	}
	return ending{wire.CloseAgentGone, "the agent has ended: " + reason, "ended"}
}

// cancel reports whether a cancellation of the job has to be sent on this connection.
func (s *session) cancel(key jobKey, force bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.current
	if c == nil || c.key != key || c.forced || (c.cancelled && !force) {
		return false
	}
	c.cancelled, c.forced = true, force
	return true
}

func (s *session) drain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.drainSent
	s.drainSent = true
	return first
}

// revoked ends agents whose token was taken away, with their connections (XS-50). What becomes of their jobs follows from
// their rows.
func (f *Fleet) revoked(ctx context.Context) error {
	rows, err := f.Store.Read().FleetRevoked(ctx, f.InstanceID)
	if err != nil {
		return fmt.Errorf("read revoked tokens: %w", err)
	}
	for _, row := range rows {
		if err := f.endAgent(ctx, endedAgent{row.ID, row.NodeID, row.Type, ci.GoneRevoked}); err != nil {
			return err
		}
		if s := f.session(row.ID); s != nil && s.id == row.SessionID {
			s.send(wire.TypeAuthFailure, wire.AuthFailure{Reason: "the token was revoked"})
			s.close(ending{wire.CloseAuthFailed, "the token was revoked", "ended"})
		}
	}
	return nil
}

// unacknowledged closes sessions whose job was taken back because its acknowledgement never came (XS-48).
func (f *Fleet) unacknowledged(ctx context.Context, q *db.Queries) error {
	now := f.Env.NowMs()
	for _, s := range f.sessions() {
		key, waiting := s.overdueAck(now)
		if !waiting {
			continue
		}
		a, err := q.FleetAssignment(ctx, key.id, int64(key.attempt))
		if err != nil {
			return fmt.Errorf("read assignment: %w", err)
		}
		if a.EndedAt.Valid {
			s.close(endOfAgent(ci.GoneUnresponsive))
		}
	}
	return nil
}

func (s *session) overdueAck(now int64) (jobKey, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.acked || now < s.current.ackBy {
		return jobKey{}, false
	}
	return s.current.key, true
}
