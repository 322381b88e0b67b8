package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// ending is how a job ends.
type ending struct {
	status                            ci.JobStatus
	message, initFailure, class, kill string
	outputs                           string
	startedAt, finishedAt             int64
	seq, logBytes                     int64
	assignment                        string // end_reason of its assignment
}

// end writes the end of a job: the row, its steps, its assignment, its agent and its lifecycle event. What follows for other
// jobs is settle's. It reports false when the job was not as read any more.
func (l *life) end(job db.LockJobRow, e ending) (bool, error) {
	if e.outputs == "" {
		e.outputs = "{}"
	}
	if e.finishedAt == 0 {
		e.finishedAt = l.now
	}
	started := job.StartedAt
	if !started.Valid {
		started = nullInt(e.startedAt)
	}
	ended := endedJob{id: job.ID, status: e.status, allowed: job.ContinueOnError && e.status.Failure()}
	rows, err := l.tx.EndJob(l.ctx, db.EndJobParams{
		ID: job.ID, Status: string(e.status), FinishedAt: nullInt(e.finishedAt), StartedAt: started, AllowedFailure: ended.allowed,
		Error: clip(e.message, 4096), InitFailure: e.initFailure, KillMethod: e.kill, Outputs: e.outputs, ReportSeq: max(e.seq, job.ReportSeq),
		Status_2: job.Status, Attempt: job.Attempt, LogBytes: e.logBytes,
	})
	if err != nil {
		return false, fmt.Errorf("end job: %w", err)
	}
	if rows == 0 {
		l.s.refuse(job, string(e.status), "changed meanwhile")
		return false, nil
	}
	if err := l.leave(job, e); err != nil {
		return false, err
	}
	steps, err := l.closeSteps(job, e.status)
	if err != nil {
		return false, err
	}
	if e.status.Failure() && !ended.allowed {
		if err := l.noteFailure(job, e, steps); err != nil {
			return false, err
		}
	}
	if err := l.jobEvent(job, e, started.Int64, steps); err != nil {
		return false, err
	}
	l.ended = append(l.ended, ended)
	l.closed, l.changed = true, true
	return true, l.giveUp(job, ended)
}

// giveUp lets others have what an ended job held: its place in a concurrency group and in its fan-out's window.
func (l *life) giveUp(job db.LockJobRow, e endedJob) error {
	if job.Slots > 0 {
		if err := l.releaseJob(job.ID); err != nil {
			return err
		}
	}
	if job.Waves > 0 {
		return l.childEnded(job, e)
	}
	return nil
}

// leave ends the job's assignment and lets its agent go: a managed agent serves one job (DESIGN), so it takes no other.
func (l *life) leave(job db.LockJobRow, e ending) error {
	if !job.AgentID.Valid {
		return nil
	}
	reason := e.assignment
	if reason == "" {
		reason = "finished"
	}
	_, err := l.tx.EndAssignment(l.ctx, db.EndAssignmentParams{JobID: job.ID, Attempt: job.Attempt, EndedAt: nullInt(l.now), EndReason: reason})
	if err != nil {
		return fmt.Errorf("end assignment: %w", err)
	}
	l.tx.Notify(store.TopicAssignments, job.AgentID.String)
	if !job.StartedAt.Valid {
		return nil
	}
	if _, err := l.tx.ReleaseAgent(l.ctx, job.AgentID.String, l.now); err != nil {
		return fmt.Errorf("release agent: %w", err)
	}
	return nil
}

// closeSteps ends steps that the agent left open and returns all of them.
func (l *life) closeSteps(job db.LockJobRow, status ci.JobStatus) ([]db.StepResultsRow, error) {
	if job.Attempt == 0 {
		return nil, nil
	}
	word := ci.StepFailed
	switch status {
	case ci.JobCancelled:
		word = ci.StepCancelled
	case ci.JobSuccess:
		word = ci.StepSuccess
	}
	steps, err := l.tx.StepResults(l.ctx, job.ID)
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	if !slices.ContainsFunc(steps, func(s db.StepResultsRow) bool { return !ci.StepStatus(s.Status).Terminal() }) {
		return steps, nil
	}
	if _, err := l.tx.CloseSteps(l.ctx, job.ID, string(word), nullInt(l.now)); err != nil {
		return nil, fmt.Errorf("close steps: %w", err)
	}
	if steps, err = l.tx.StepResults(l.ctx, job.ID); err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	return steps, nil
}

// noteFailure gives the run its reason; the first writer wins (PIPE-21).
func (l *life) noteFailure(job db.LockJobRow, e ending, steps []db.StepResultsRow) error {
	if l.run.FailureReason != "" {
		return nil
	}
	class := e.class
	switch {
	case class != "":
	case e.initFailure != "" || e.status == ci.JobUnroutable:
		class = classNeverStarted
	case e.status == ci.JobStale:
		class = classTimedOut
	default:
		class = classStep
	}
	l.run.FailureReason, l.run.FailureClass = clip(job.Name+": "+failureText(e, steps), 1000), class
	_, err := l.tx.NoteRunFailure(l.ctx, l.run.ID, l.run.FailureReason, class)
	if err != nil {
		return fmt.Errorf("note failure: %w", err)
	}
	return nil
}

func failureText(e ending, steps []db.StepResultsRow) string {
	if e.message != "" {
		return e.message
	}
	for _, s := range steps {
		if s.Status != string(ci.StepFailed) || s.Allowed {
			continue
		}
		text := fmt.Sprintf("step %q failed", s.Name)
		if s.ExitCode.Valid {
			text += fmt.Sprintf(" with exit code %d", s.ExitCode.Int64)
		}
		return text
	}
	return string(e.status)
}

// verdict ends the run when all its jobs have ended (PIPE-19). A run that was being cancelled ends cancelled, whatever its
// jobs reported meanwhile (STM-6).
func (l *life) verdict() error {
	if !l.closed || ci.RunStatus(l.run.Status).Terminal() {
		return nil
	}
	open, err := l.tx.HasOpenJob(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("look for open jobs: %w", err)
	}
	if open.Jobs > 0 {
		return nil
	}
	l.slots = open.Slots
	jobs, err := l.tx.RunOutcomes(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("read outcomes: %w", err)
	}
	outcomes := make([]ci.JobOutcome, len(jobs))
	for i, j := range jobs {
		outcomes[i] = ci.JobOutcome{Status: ci.JobStatus(j.Status), AllowedFailure: j.AllowedFailure}
	}
	status, ok := ci.Verdict(outcomes)
	if !ok {
		return nil
	}
	if l.run.Status == string(ci.RunCancelling) {
		status = ci.RunCancelled
	}
	return l.finishRun(status, jobs)
}

// finishRun writes the end of the run with its lifecycle event.
func (l *life) finishRun(status ci.RunStatus, jobs []db.RunOutcomesRow) error {
	class, reason := l.run.FailureClass, l.run.FailureReason
	switch {
	case status == ci.RunSuccess:
		class, reason = "", ""
	case status == ci.RunCancelled:
		class = classCancelled
	case class == "":
		class = classStep
	}
	rows, err := l.tx.EndRun(l.ctx, db.EndRunParams{
		ID: l.run.ID, Status: string(status), FinishedAt: nullInt(l.now), FailureClass: class, FailureReason: reason,
	})
	if err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	if rows == 0 {
		return nil
	}
	l.run.Status, l.run.FailureClass, l.run.FailureReason = string(status), class, reason
	l.changed = true
	if l.slots > 0 {
		if err := l.releaseRun(); err != nil {
			return err
		}
	}
	if l.s.observer.RunEnded != nil {
		l.s.observer.RunEnded(status, time.Duration(l.now-l.run.CreatedAt)*time.Millisecond)
	}
	return l.runEvent(status, jobs)
}
