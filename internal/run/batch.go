package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

// Batch takes what one agent reports in one transaction. The job and its run are locked and read once, however many of the reports
// are about them, and the number of the last report is written once. It ends with the transaction, after Flush.
type Batch struct {
	s     *Service
	tx    *store.Tx
	agent string

	l       *life // of the job that was named last; nil when it has to be read
	job     db.LockJobRow
	unnoted bool // job.ReportSeq is not written
}

// Batch begins one. agentID is the agent that reports.
func (s *Service) Batch(tx *store.Tx, agentID string) *Batch {
	return &Batch{s: s, tx: tx, agent: agentID}
}

// open locks and reads a job, unless it is the one at hand.
func (b *Batch) open(jobID string) (found bool, err error) {
	if b.l != nil && b.job.ID == jobID {
		return true, nil
	}
	if err := b.Flush(); err != nil {
		return false, err
	}
	l, job, found, err := b.s.openJob(context.Background(), b.tx, jobID)
	if err != nil || !found {
		return false, err
	}
	b.l, b.job = l, job
	return true, nil
}

// Holds reports whether this attempt of the job is the agent's and has not ended.
func (b *Batch) Holds(jobID string, attempt int) (bool, error) {
	found, err := b.open(jobID)
	return found && b.holds(attempt), err
}

func (b *Batch) holds(attempt int) bool {
	return b.job.AgentID.Valid && holds(b.job, int64(attempt), b.agent) && !ci.JobStatus(b.job.Status).Terminal()
}

// Started records that the agent works on the job: the job runs, and with its first job so does the run. It counts as the
// acknowledgement of the dispatch (AG-18), and as the return of an agent whose link was lost.
func (b *Batch) Started(r wire.JobStatus) (applied bool, err error) {
	if found, err := b.open(r.JobID); err != nil || !found {
		return false, err
	}
	if !b.holds(r.Attempt) {
		b.s.refuse(b.job, "start", "not this agent's")
		return false, nil
	}
	if applied, err = b.l.start(&b.job, r.Seq); err != nil {
		return false, err
	}
	return applied, b.done()
}

// Step records a step's state. Repeats, and reports older than what is stored, change nothing.
func (b *Batch) Step(r wire.StepStatus) (applied bool, err error) {
	if !knownStep(ci.StepStatus(r.Status)) || r.StepIndex < 0 {
		return false, fmt.Errorf("step report: status %q of step %d is not known", r.Status, r.StepIndex)
	}
	if found, err := b.open(r.JobID); err != nil || !found {
		return false, err
	}
	if !b.holds(r.Attempt) {
		b.s.refuse(b.job, "step", "not this agent's")
		return false, nil
	}
	if r.Seq > 0 && r.Seq <= b.job.ReportSeq {
		return false, nil
	}
	if !b.job.StartedAt.Valid {
		if _, err := b.l.start(&b.job, 0); err != nil {
			return false, err
		}
	}
	rows, err := b.tx.UpsertStep(b.l.ctx, stepRow(b.l.run.ID, b.job.Attempt, r))
	if err != nil {
		return false, fmt.Errorf("write step: %w", err)
	}
	if r.Seq > b.job.ReportSeq {
		b.job.ReportSeq, b.unnoted = r.Seq, true
	}
	b.tx.Notify(store.TopicRuns, b.l.run.ID)
	return rows > 0, b.done()
}

// Finish ends the job as the agent reports it (Service.Finish). logBytes is the size of its log.
func (b *Batch) Finish(r wire.JobStatus, logBytes int64) (applied bool, err error) {
	if found, err := b.open(r.JobID); err != nil || !found {
		return false, err
	}
	end := End{
		JobID: r.JobID, Attempt: r.Attempt, AgentID: b.agent, Status: ci.JobStatus(r.Status), Error: r.Error,
		InitFailure: r.InitFailure, KillMethod: r.KillMethod, Outputs: r.Outputs, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Seq: r.Seq, LogBytes: logBytes,
	}
	if r.TimedOut {
		end.FailureClass = classTimedOut
	}
	applied, err = b.l.finish(b.job, end)
	if applied {
		b.unnoted = false // the end wrote it
	}
	return applied, errors.Join(err, b.Flush())
}

// done is life.done for one report of several.
func (b *Batch) done() error {
	err := b.l.done()
	b.l.changed = false
	return err
}

// Flush writes what was kept back. What follows about the same job reads it anew.
func (b *Batch) Flush() error {
	l := b.l
	b.l = nil
	if l == nil || !b.unnoted {
		return nil
	}
	b.unnoted = false
	_, err := b.tx.SetReportSeq(l.ctx, db.SetReportSeqParams{
		ID: b.job.ID, Attempt: b.job.Attempt, ReportSeq: b.job.ReportSeq, HeartbeatAt: nullInt(l.now),
	})
	if err != nil {
		return fmt.Errorf("note report: %w", err)
	}
	return nil
}
