package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/coder/websocket"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// over takes leave of a connection that has ended, whichever way.
func (s *session) over(err error) {
	f := s.f
	why := s.why(err)
	current := f.leave(s)
	defer func() {
		s.farewell()
		_ = s.conn.CloseNow()
	}()
	if s.agentID == "" {
		return
	}
	f.Metrics.AgentDisconnects.WithLabelValues(why).Inc()
	f.Log.Info("agent disconnected", "agent_id", s.agentID, "why", why)
	// A superseded session is nothing any more, and a server that stops leaves its rows to the next start.
	if !current || (f.isStopping() && why != "closed") {
		return
	}
	if err := f.disconnect(s, why == "closed"); err != nil {
		f.Log.Error("note disconnect", "agent_id", s.agentID, "err", err) // the sweep of a later start finds it
	}
}

// why is the word for how the connection ended: our reason if we ended it, "closed" if the agent took its leave.
func (s *session) why(err error) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return s.end.why
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway:
		return "closed"
	}
	return "lost"
}

// disconnect records that the agent is not connected and decides what that means for it: one with a job has the grace to
// come back; a single-use one that is done, or took its leave, ends.
func (f *Fleet) disconnect(s *session, leave bool) error {
	return f.persist(func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.FleetAgent(ctx, s.agentID)
		if err != nil {
			return fmt.Errorf("read agent: %w", err)
		}
		busy, err := f.loseLink(ctx, tx, s.agentID, s.id)
		if err != nil || busy == linkKept {
			return err
		}
		if s.nodeID != "" {
			tx.Notify(store.TopicAgents, s.nodeID) // where the process is dead, the node need not wait for its link
		}
		if busy == linkBusy {
			return nil
		}
		done := row.JobsDone > 0 && s.managed
		if !done && !leave {
			return nil // the sweep ends it after the grace
		}
		return endAgent(ctx, tx, endedAgent{s.agentID, s.nodeID, row.Type, s.leaveReason(row)})
	})
}

func (s *session) leaveReason(row db.FleetAgentRow) string {
	switch {
	case !s.managed:
		return ci.GoneDisconnected
	case row.JobsDone > 0:
		return ci.GoneJobComplete
	}
	return ci.GoneIdle
}

// lostLink is what losing a link came to.
type lostLink int

const (
	linkKept lostLink = iota // another session has it
	linkBusy                 // lost while a job is assigned
	linkIdle
)

// loseLink takes the session off the row, if the row still has this one, and lets the agent's job wait for its return.
func (f *Fleet) loseLink(ctx context.Context, tx *store.Tx, agentID, sessionID string) (lostLink, error) {
	now := tx.Now()
	n, err := tx.FleetLoseLink(ctx, agentID, sessionID, sql.NullInt64{Int64: now, Valid: true})
	if err != nil {
		return linkKept, fmt.Errorf("note lost link: %w", err)
	} else if n == 0 {
		return linkKept, nil
	}
	tx.Notify(store.TopicQueue, "")
	open, err := tx.FleetOpenAssignment(ctx, agentID)
	if errors.Is(err, sql.ErrNoRows) {
		return linkIdle, nil
	} else if err != nil {
		return linkKept, fmt.Errorf("read assignment: %w", err)
	}
	if open.State == "acked" {
		// One that was not acknowledged runs into its own deadline, or is delivered again.
		if _, err := f.Losses.Recover(tx, open.JobID, int(open.Attempt), now+f.Settings.Grace.Milliseconds()); err != nil {
			return linkKept, err
		}
	}
	return linkBusy, nil
}
