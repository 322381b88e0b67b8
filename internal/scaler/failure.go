package scaler

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// failure is a provision that failed before its agent registered.
type failure struct {
	job
	was     ci.AgentState
	reason  string // gone_reason
	text    string
	tail    []string
	counted bool // arms the back-off (MG-28)
	pause   bool // transient: wait a moment, count nothing (XS-30)
	room    bool // it only lacked room, which may be there at any moment: the pause does not grow
}

// Pauses after transient failures, each twice as long as the one before. They are not the back-off: nothing is counted.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	pauseMemory  = 10 * time.Minute // after which the next one is a first one again
)

// pauseAfter is the pause after a transient failure, by what the scaler's row says of the failure before. It is 0 while an earlier pause
// lasts: launches that were begun together fail together. A registration takes the row away, and so ends the series.
func pauseAfter(b db.ScalerBackoff, now int64, room bool, l Limits) time.Duration {
	last := b.UntilAt - b.UpdatedAt
	switch {
	case b.UntilAt > now:
		return 0
	case room, last <= 0, now > b.UntilAt+pauseMemory.Milliseconds():
		return firstPause
	case b.Failures > 0 && last >= l.deferral(b.Failures): // that was the back-off
		return firstPause
	}
	return min(2*time.Duration(last)*time.Millisecond, longestPause)
}

// maxErrorText bounds a failure's sentence in the store.
const maxErrorText = 500

// failureOf classifies an error of Plan or Create.
func failureOf(j job, err error) failure {
	f := failure{job: j, was: j.Was, reason: ci.GoneLaunchFailed, text: err.Error()}
	var died *backend.Died
	if errors.As(err, &died) {
		f.tail = died.Tail
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.reason, f.text = ci.GoneSpawnTimeout, "the launch did not end in time"
	case errors.Is(err, backend.ErrRefused), errors.Is(err, backend.ErrGuest):
		f.counted = true
	default:
		f.pause, f.room = true, errors.Is(err, backend.ErrNoCapacity)
	}
	return f
}

// recordFailure ends the row, keeps the failure with its tail, arms the back-off before capacity is released (MG-31) and tells
// the job (MG-23), all in one transaction. It is false when the row was no longer in the state the failure was seen in.
func (n *Node) recordFailure(ctx context.Context, tx *store.Tx, f failure) (bool, error) {
	now := tx.Now()
	f.text = bound(f.text)
	changed, err := tx.NodeEndAgent(ctx, db.NodeEndAgentParams{
		Now: now, GoneReason: f.reason, Error: f.text, ID: f.AgentID, State: string(f.was),
	})
	if err != nil || changed == 0 {
		return false, err
	}
	tail := strings.Join(f.tail, "\n")
	fresh, err := tx.NodeInsertFailure(ctx, db.NodeInsertFailureParams{
		AgentID: f.AgentID, NodeID: n.id, Scaler: f.Scaler.Name, At: now, JobID: f.row.BoundJobID, Error: f.text, Tail: tail,
	})
	if err != nil {
		return false, err
	}
	if err := tx.NodePruneFailures(ctx, n.id); err != nil {
		return false, err
	}
	if fresh > 0 && (f.counted || f.pause) { // each agent counts once (MG-30)
		if err := n.arm(ctx, tx, f); err != nil {
			return false, err
		}
	}
	if f.row.BoundJobID.Valid {
		text := "scaler " + f.Scaler.Name + ": " + f.text
		if _, err := tx.NodeSetProvisioningError(ctx, text, f.row.BoundJobID.String); err != nil {
			return false, err
		}
	}
	n.notifyChange(tx)
	return true, nil
}

// arm defers the next launch: by the back-off for a counted failure (MG-27), else by a pause.
func (n *Node) arm(ctx context.Context, tx *store.Tx, f failure) error {
	now := tx.Now()
	b, err := tx.NodeBackoff(ctx, n.id, f.Scaler.Name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	set := db.NodeSetBackoffParams{
		NodeID: n.id, Scaler: f.Scaler.Name, Failures: b.Failures, LastError: b.LastError, LastAgent: b.LastAgent, Now: now,
	}
	if f.counted {
		set.Failures++
		set.UntilAt = max(b.UntilAt, now+n.limits("").deferral(set.Failures))
	} else {
		pause := pauseAfter(b, now, f.room, n.limits(""))
		if pause == 0 {
			return nil
		}
		set.UntilAt = now + pause.Milliseconds()
	}
	if f.counted || b.Failures == 0 {
		set.LastError, set.LastAgent = f.text, f.AgentID
	}
	return tx.NodeSetBackoff(ctx, set)
}

// deferral is min(base·2^(n−1), max) in milliseconds (MG-27).
func (s Limits) deferral(failures int64) int64 {
	d := s.BackoffBase
	for range failures - 1 {
		if d *= 2; d >= s.BackoffMax {
			return s.BackoffMax.Milliseconds()
		}
	}
	return min(d, s.BackoffMax).Milliseconds()
}

func bound(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + "…"
	}
	return s
}

// recordCreated writes down what Create made. A row that has ended meanwhile keeps its state: the loop deletes the thing.
func (n *Node) recordCreated(ctx context.Context, j job, launch json.RawMessage) error {
	return n.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.NodeAgentCreated(ctx, string(launch), tx.Now(), j.AgentID)
		return err
	})
}
