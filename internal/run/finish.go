package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// End says how a job ends.
type End struct {
	JobID            string
	Attempt          int    // 0 = any
	AgentID          string // who reports it; "" = the orchestrator itself
	Status           ci.JobStatus
	Error            string // a sentence for people
	InitFailure      string
	FailureClass     string // of the run, should it fail by this (PIPE-21)
	KillMethod       string
	Outputs          map[string]string
	StartedAt        int64
	FinishedAt       int64
	AssignmentReason string // end_reason; '' is finished
	Seq              int64
	LogBytes         int64 // size of its log
	OnlyWaiting      bool  // only while it waits in the queue without an agent (expiry, unroutable: XC-85)
}

// Finish ends a job, and in the same transaction its steps, its assignment, the jobs that this skips or makes ready, the
// run if it was the last one, and the lifecycle events of both (D4, EVT-8). A report for a job that has ended, or from an
// agent or attempt that is not the job's, changes nothing and is counted (STM-5, PIPE-22).
func (s *Service) Finish(tx *store.Tx, e End) (applied bool, err error) {
	l, job, found, err := s.openJob(context.Background(), tx, e.JobID)
	if err != nil || !found {
		return false, err
	}
	return l.finish(job, e)
}

func (l *life) finish(job db.LockJobRow, e End) (bool, error) {
	if ci.JobStatus(job.Status).Terminal() {
		if job.Status != string(e.Status) || !holds(job, int64(e.Attempt), e.AgentID) {
			l.s.refuse(job, string(e.Status), "the job has ended")
		}
		return false, nil
	}
	if !holds(job, int64(e.Attempt), e.AgentID) {
		l.s.refuse(job, string(e.Status), "not this agent's")
		return false, nil
	}
	if e.OnlyWaiting && (job.Status != string(ci.JobQueued) || job.AgentID.Valid) {
		return false, nil
	}
	if e.AgentID != "" && !job.StartedAt.Valid { // its "running" got lost, or it failed before it could say so
		if _, err := l.start(&job, 0); err != nil {
			return false, err
		}
	}
	to, err := ci.NextJob(ci.JobStatus(job.Status), jobEvent(ci.JobStatus(job.Status), e))
	if err != nil {
		l.s.refuse(job, string(e.Status), err.Error())
		return false, nil
	}
	end := ending{
		status: to, message: e.Error, initFailure: e.InitFailure, class: e.FailureClass, kill: e.KillMethod,
		startedAt: e.StartedAt, seq: e.Seq, logBytes: e.LogBytes, assignment: e.AssignmentReason,
	}
	if len(e.Outputs) > 0 {
		end.outputs = mustJSON(e.Outputs)
	}
	// The agent's clock only tells how long; an end before the start, or in the future, is not believed.
	if e.FinishedAt > job.StartedAt.Int64 && e.FinishedAt <= l.now {
		end.finishedAt = e.FinishedAt
	}
	ok, err := l.end(job, end)
	if err != nil || !ok {
		return false, err
	}
	return true, l.settle()
}

// jobEvent is the event of STM-1 that a wanted end stands for. What the orchestrator itself would fail is cancelled when it
// was being cancelled.
func jobEvent(from ci.JobStatus, e End) ci.JobEvent {
	if from == ci.JobCancelling && (e.Status == ci.JobCancelled || e.AgentID == "" && e.Status.Failure()) {
		return ci.EventComplete
	}
	switch e.Status {
	case ci.JobSuccess:
		return ci.EventSucceed
	case ci.JobFailed:
		return ci.EventFail
	case ci.JobCancelled:
		return ci.EventCancel
	case ci.JobSkipped:
		return ci.EventSkip
	case ci.JobStale:
		return ci.EventStale
	case ci.JobUnroutable:
		return ci.EventUnroutable
	case ci.JobDrift:
		return ci.EventDrift
	}
	return ci.JobEvent("end as " + string(e.Status))
}

// Requeue puts a job that an agent has but has not started back into the queue, with its place in it (QUE-11). reason is the
// assignment's end_reason: rejected, not_acked, lost or withdrawn, with detail after a colon. countAttempt is false where
// nobody failed, such as a draining agent's refusal. The fifth counted time fails the job with the reason.
func (s *Service) Requeue(tx *store.Tx, jobID string, attempt int, reason string, countAttempt bool) (applied bool, err error) {
	l, job, found, err := s.openJob(context.Background(), tx, jobID)
	if err != nil || !found {
		return false, err
	}
	if !job.AgentID.Valid || !holds(job, int64(attempt), "") || job.StartedAt.Valid {
		return false, nil
	}
	switch {
	case job.Status == string(ci.JobCancelling):
		return l.finish(job, End{Status: ci.JobCancelled, AssignmentReason: reason})
	case job.Status != string(ci.JobQueued):
		return false, nil
	case countAttempt && job.DispatchAttempts+1 >= s.settings.MaxDispatchAttempts:
		return l.finish(job, End{
			Status: ci.JobFailed, InitFailure: initNoAgent, FailureClass: classNeverStarted, AssignmentReason: reason,
			Error: fmt.Sprintf("%d agents were given this job and none of them started it; the last one: %s (%s)",
				job.DispatchAttempts+1, job.AgentID.String, reason),
		})
	}
	return l.requeue(job, reason, countAttempt)
}

func (l *life) requeue(job db.LockJobRow, reason string, count bool) (bool, error) {
	var add int64
	if count {
		add = 1
	}
	rows, err := l.tx.RequeueJob(l.ctx, job.ID, job.Attempt, add)
	if err != nil || rows == 0 {
		return false, err
	}
	_, err = l.tx.EndAssignment(l.ctx, db.EndAssignmentParams{JobID: job.ID, Attempt: job.Attempt, EndedAt: nullInt(l.now), EndReason: clip(reason, 200)})
	if err != nil {
		return false, fmt.Errorf("end assignment: %w", err)
	}
	if strings.HasPrefix(reason, "rejected") {
		if _, err := l.tx.RestAgent(l.ctx, job.AgentID.String, nullInt(l.now+l.s.settings.RejectRest.Milliseconds())); err != nil {
			return false, fmt.Errorf("rest agent: %w", err)
		}
	}
	if err := l.note(ci.NoteRequeued, job.ID, byKici, requeueText(job, reason, count)); err != nil {
		return false, err
	}
	l.tx.Notify(store.TopicAssignments, job.AgentID.String)
	l.queued, l.changed = true, true
	l.notify()
	return true, nil
}

func requeueText(job db.LockJobRow, reason string, count bool) string {
	text := fmt.Sprintf("agent %s did not start it (%s); it waits for another", job.AgentID.String, reason)
	if !count {
		text += "; this does not count as an attempt"
	}
	return text
}

// Lost ends the assignment of a job whose agent will not go on with it: a job that had started fails, because it must not run
// twice, one that had not goes back to the queue, and one that was being cancelled is cancelled (AG-20, D17). reason is a
// sentence that names the agent.
func (s *Service) Lost(tx *store.Tx, jobID string, attempt int, reason string) (applied bool, err error) {
	l, job, found, err := s.openJob(context.Background(), tx, jobID)
	if err != nil || !found {
		return false, err
	}
	if !job.AgentID.Valid || !holds(job, int64(attempt), "") || ci.JobStatus(job.Status).Terminal() {
		return false, nil
	}
	if !job.StartedAt.Valid {
		return s.Requeue(tx, jobID, attempt, "lost: "+reason, true)
	}
	return l.finish(job, End{Status: ci.JobFailed, Error: reason, FailureClass: classTimedOut, AssignmentReason: "lost"})
}
