package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

// holds reports whether the report comes from the agent and the attempt that the job's row names. 0 and "" match any.
func holds(job db.LockJobRow, attempt int64, agentID string) bool {
	return (attempt == 0 || attempt == job.Attempt) && (agentID == "" || (job.AgentID.Valid && job.AgentID.String == agentID))
}

// Holds reports whether this attempt of the job is the agent's, whether it still runs or has ended. An agent that does not hold
// its job any more must stop it and report nothing (wire.ReportAck.Gone).
func (s *Service) Holds(tx *store.Tx, jobID string, attempt int, agentID string) (bool, error) {
	job, err := tx.LockJob(context.Background(), jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock job: %w", err)
	}
	return job.AgentID.Valid && holds(job, int64(attempt), agentID), nil
}

// Started is Batch.Started for one report.
func (s *Service) Started(tx *store.Tx, r wire.JobStatus, agentID string) (applied bool, err error) {
	b := s.Batch(tx, agentID)
	if applied, err = b.Started(r); err != nil {
		return false, err
	}
	return applied, b.Flush()
}

// start moves a job to running, or a job that is being cancelled one step on, and updates what is known of it.
func (l *life) start(job *db.LockJobRow, seq int64) (bool, error) {
	if job.StartedAt.Valid {
		if job.Status != string(ci.JobRecovering) {
			return false, nil // a repeat
		}
		return l.recovered(job)
	}
	to, err := ci.NextJob(ci.JobStatus(job.Status), ci.EventStart)
	if err != nil {
		l.s.refuse(*job, "start", err.Error())
		return false, nil
	}
	rows, err := l.tx.StartJob(l.ctx, db.StartJobParams{
		ID: job.ID, Status: string(to), StartedAt: nullInt(l.now), ReportSeq: max(seq, job.ReportSeq), Status_2: job.Status, Attempt: job.Attempt,
	})
	if err != nil || rows == 0 {
		return false, err
	}
	job.Status, job.StartedAt, job.ReportSeq = string(to), nullInt(l.now), max(seq, job.ReportSeq)
	if _, err := l.tx.AckAssignment(l.ctx, job.ID, job.Attempt, nullInt(l.now)); err != nil {
		return false, fmt.Errorf("acknowledge assignment: %w", err)
	}
	l.changed = true
	if l.run.Status != string(ci.RunPending) {
		return true, nil
	}
	if _, err := l.tx.MarkRunRunning(l.ctx, l.run.ID, nullInt(l.now)); err != nil {
		return false, fmt.Errorf("start run: %w", err)
	}
	l.run.Status, l.run.StartedAt = string(ci.RunRunning), nullInt(l.now)
	return true, nil
}

// Step is Batch.Step for one report.
func (s *Service) Step(tx *store.Tx, r wire.StepStatus, agentID string) (applied bool, err error) {
	b := s.Batch(tx, agentID)
	if applied, err = b.Step(r); err != nil {
		return false, err
	}
	return applied, b.Flush()
}

func knownStep(s ci.StepStatus) bool {
	return s == ci.StepPending || s == ci.StepRunning || s.Terminal() && knownEnd(s)
}

func knownEnd(s ci.StepStatus) bool {
	switch s {
	case ci.StepSuccess, ci.StepFailed, ci.StepSkipped, ci.StepCancelled:
		return true
	}
	return false
}

func stepRow(runID string, attempt int64, r wire.StepStatus) db.UpsertStepParams {
	row := db.UpsertStepParams{
		JobID: r.JobID, RunID: runID, Idx: int64(r.StepIndex), Attempt: attempt, Name: clip(r.Name, 200), Status: r.Status,
		StartedAt: nullInt(r.StartedAt), FinishedAt: nullInt(r.FinishedAt), Error: clip(r.Error, 4096), Allowed: r.Allowed, Retries: int64(r.Retries),
	}
	if r.ExitCode != nil {
		row.ExitCode = sql.NullInt64{Int64: int64(*r.ExitCode), Valid: true}
	}
	return row
}

// Heartbeat notes that the job is being worked on. It counts only from the agent that holds the job (STL-9).
func (s *Service) Heartbeat(tx *store.Tx, jobID string, attempt int, agentID string) (applied bool, err error) {
	rows, err := tx.BeatJob(context.Background(), db.BeatJobParams{
		ID: jobID, Attempt: int64(attempt), Column3: agentID, HeartbeatAt: nullInt(tx.Now()),
	})
	return rows > 0, err
}

// Recover notes that the link to the agent of a running job is lost: the job waits for it until by (D17). A job that has not
// started stays queued with its assignment, one that is being cancelled stays so.
func (s *Service) Recover(tx *store.Tx, jobID string, attempt int, by int64) (applied bool, err error) {
	l, job, found, err := s.openJob(context.Background(), tx, jobID)
	if err != nil || !found || !holds(job, int64(attempt), "") {
		return false, err
	}
	rows, err := tx.MarkJobRecovering(l.ctx, job.ID, job.Attempt, nullInt(by))
	if err != nil || rows == 0 {
		return false, err
	}
	l.changed = true
	err = l.note(ci.NoteLinkLost, job.ID, byKici, fmt.Sprintf("the link to agent %s is lost; it has %s to come back",
		job.AgentID.String, time.Duration(max(by-l.now, 0)*int64(time.Millisecond)).Round(time.Second)))
	if err != nil {
		return false, err
	}
	return true, l.done()
}

// Recovered notes that the same agent is back in time: the job runs again. applied=false for a job that was not recovering;
// ask Holds whether it is still the agent's.
func (s *Service) Recovered(tx *store.Tx, jobID string, attempt int, agentID string) (applied bool, err error) {
	l, job, found, err := s.openJob(context.Background(), tx, jobID)
	if err != nil || !found || !holds(job, int64(attempt), agentID) || job.Status != string(ci.JobRecovering) {
		return false, err
	}
	applied, err = l.recovered(&job)
	if err != nil {
		return false, err
	}
	return applied, l.done()
}

func (l *life) recovered(job *db.LockJobRow) (bool, error) {
	rows, err := l.tx.MarkJobRecovered(l.ctx, db.MarkJobRecoveredParams{
		ID: job.ID, Attempt: job.Attempt, Column3: job.AgentID.String, HeartbeatAt: nullInt(l.now),
	})
	if err != nil || rows == 0 {
		return false, err
	}
	job.Status = string(ci.JobRunning)
	l.changed = true
	return true, l.note(ci.NoteLinkBack, job.ID, job.AgentID.String, "it is back and goes on with the job")
}
