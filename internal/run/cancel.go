package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// CancelRequest asks for the end of a run: by an operator, the dashboard, a deadline or a newer run (CAN-1).
type CancelRequest struct {
	OrgID      string // "" = any, for the orchestrator's own
	RoutingKey string // the token's; "" = any (CAN-8)
	RunID      string
	By         string // who, for people
	Reason     string // a sentence; "" is "cancelled by <By>"
	Force      bool   // no grace, no hooks (CAN-4)
	RequestID  string // Idempotency-Key: a repeat gets the first answer and changes nothing; "" never repeats
}

// CancelResult says what was done at once.
type CancelResult struct {
	RunID     string
	Status    ci.RunStatus // cancelled, or cancelling while agents stop
	Cancelled int          // jobs ended at once
	Notified  int          // jobs whose agents are told to stop
}

// Cancel ends a run: jobs that no agent has end at once, agents of the others are told to stop, and the run ends with the last
// of them (CAN-*). ErrNotFound, ErrScope and ErrTerminal change nothing.
func (s *Service) Cancel(ctx context.Context, req CancelRequest) (CancelResult, error) {
	var res CancelResult
	err := s.st.Write(ctx, func(tx *store.Tx) error {
		var err error
		res, err = s.CancelTx(tx, req)
		return err
	})
	return res, err
}

// CancelTx is Cancel in the caller's transaction.
func (s *Service) CancelTx(tx *store.Tx, req CancelRequest) (CancelResult, error) {
	l, found, err := s.open(context.Background(), tx, req.RunID)
	switch {
	case err != nil:
		return CancelResult{}, err
	case !found, req.OrgID != "" && l.run.OrgID != req.OrgID:
		return CancelResult{}, ErrNotFound
	case req.RoutingKey != "" && l.run.RoutingKey != req.RoutingKey:
		return CancelResult{}, ErrScope
	}
	key := "cancelled:" + req.RunID + ":" + req.RequestID
	if req.RequestID != "" {
		if first, err := s.claimed(l.ctx, tx, l.run.OrgID, key); err != nil || first != "" {
			return firstAnswer(first, err)
		}
	}
	if ci.RunStatus(l.run.Status).Terminal() {
		return CancelResult{}, ErrTerminal
	}
	res, err := l.cancel(req)
	if err != nil || req.RequestID == "" {
		return res, err
	}
	_, err = tx.InsertIdempotencyKey(l.ctx, db.InsertIdempotencyKeyParams{
		OrgID: l.run.OrgID, Key: key, Result: mustJSON(res), ExpiresAt: l.now + idempotencyTTLMs,
	})
	if err != nil {
		return CancelResult{}, fmt.Errorf("claim request: %w", err)
	}
	return res, nil
}

// firstAnswer is what an earlier request of the same id was told.
func firstAnswer(text string, err error) (CancelResult, error) {
	var res CancelResult
	if err == nil {
		err = json.Unmarshal([]byte(text), &res)
	}
	return res, err
}

func (l *life) cancel(req CancelRequest) (CancelResult, error) {
	if req.Reason == "" {
		req.Reason = "cancelled by " + req.By
	}
	if err := l.markCancelling(req); err != nil {
		return CancelResult{}, err
	}
	res, err := l.cancelJobs(req)
	if err != nil {
		return CancelResult{}, err
	}
	l.closed = true // a run without open jobs ends here
	if err := l.settle(); err != nil {
		return CancelResult{}, err
	}
	res.RunID, res.Status = l.run.ID, ci.RunStatus(l.run.Status)
	return res, nil
}

func (l *life) markCancelling(req CancelRequest) error {
	l.changed = true
	if l.run.Status == string(ci.RunCancelling) {
		if !req.Force || l.run.CancelForce {
			return nil
		}
		if _, err := l.tx.ForceRunCancel(l.ctx, l.run.ID); err != nil {
			return fmt.Errorf("force cancel: %w", err)
		}
		l.run.CancelForce = true
		return l.note(ci.NoteForced, "", req.By, "its agents are told to stop at once, without grace")
	}
	_, err := l.tx.MarkRunCancelling(l.ctx, db.MarkRunCancellingParams{
		ID: l.run.ID, CancellingAt: nullInt(l.now), CancelForce: req.Force, CancelledBy: req.By, Column5: clip(req.Reason, 1000),
	})
	if err != nil {
		return fmt.Errorf("mark run cancelling: %w", err)
	}
	l.run.Status, l.run.CancelledBy = string(ci.RunCancelling), req.By
	if l.run.FailureReason == "" {
		l.run.FailureReason = clip(req.Reason, 1000)
	}
	return l.note(ci.NoteCancelAsked, "", req.By, req.Reason)
}

// cancelJobs ends the jobs that no agent has, nor can have received, and asks for the end of the others. The rows are locked,
// so a job that is being handed over is seen either before or after (CAN-6).
func (l *life) cancelJobs(req CancelRequest) (CancelResult, error) {
	var res CancelResult
	jobs, err := l.tx.LockOpenJobs(l.ctx, l.run.ID)
	if err != nil {
		return res, fmt.Errorf("lock open jobs: %w", err)
	}
	for _, j := range jobs {
		ended, err := l.cancelOne(j, req)
		if err != nil {
			return res, err
		}
		if ended {
			res.Cancelled++
		} else {
			res.Notified++
		}
	}
	return res, nil
}

// cancelOne ends one open job, or asks its agent to.
func (l *life) cancelOne(j db.LockOpenJobsRow, req CancelRequest) (ended bool, err error) {
	if !withAgent(j) {
		job, err := l.tx.LockJob(l.ctx, j.ID)
		if err != nil {
			return false, fmt.Errorf("lock job: %w", err)
		}
		_, err = l.end(job, ending{status: ci.JobCancelled, message: req.Reason, assignment: "cancelled"})
		return true, err
	}
	if j.Status != string(ci.JobCancelling) || !j.CancelForce && req.Force {
		if _, err := l.tx.MarkJobCancelling(l.ctx, j.ID, clip(req.Reason, 1000), req.Force || j.CancelForce); err != nil {
			return false, fmt.Errorf("mark job cancelling: %w", err)
		}
		l.changed = true
	}
	l.tx.Notify(store.TopicAssignments, j.AgentID.String)
	return false, nil
}

// withAgent reports whether an agent may know of the job: it was started, or its dispatch was sent.
func withAgent(j db.LockOpenJobsRow) bool {
	return j.AgentID.Valid && j.Assigned.Valid && (j.SentAt.Valid || j.StartedAt.Valid)
}

// DriveCancel goes on with a run that has been cancelling for too long (CAN-5): its agents are told again, without grace. With
// giveUp the jobs end without waiting for them; their agents are returned, so that the caller can end the compute.
func (s *Service) DriveCancel(tx *store.Tx, runID string, giveUp bool) (agents []string, err error) {
	ctx := context.Background()
	l, found, err := s.open(ctx, tx, runID)
	if err != nil || !found || l.run.Status != string(ci.RunCancelling) {
		return nil, err
	}
	if err := l.markCancelling(CancelRequest{Force: true}); err != nil {
		return nil, err
	}
	jobs, err := tx.LockOpenJobs(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("lock open jobs: %w", err)
	}
	for _, j := range jobs {
		if withAgent(j) && !giveUp {
			if _, err := tx.MarkJobCancelling(ctx, j.ID, l.run.FailureReason, true); err != nil {
				return nil, fmt.Errorf("mark job cancelling: %w", err)
			}
			tx.Notify(store.TopicAssignments, j.AgentID.String)
			continue
		}
		job, err := tx.LockJob(ctx, j.ID)
		if err != nil {
			return nil, fmt.Errorf("lock job: %w", err)
		}
		message := "cancelled"
		if withAgent(j) {
			message = fmt.Sprintf("cancelled; agent %s did not stop it in time and is ended", j.AgentID.String)
			agents = append(agents, j.AgentID.String)
		}
		if _, err := l.end(job, ending{status: ci.JobCancelled, message: message, assignment: "cancelled"}); err != nil {
			return nil, err
		}
	}
	l.closed = true
	return agents, l.settle()
}
