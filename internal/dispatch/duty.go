package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// warden is the loop of duties of one term. Only its own goroutine touches it.
type warden struct {
	d         *Dispatcher
	term      int64
	nextSweep int64
}

func (d *Dispatcher) warden(term int64) *warden { return &warden{d: d, term: term} }

// tick does what is due. One duty that fails does not keep the others from being done.
func (w *warden) tick(ctx context.Context) error {
	now := w.d.Env.NowMs()
	errs := []error{w.assignments(ctx), w.deadlines(ctx, now)}
	if now >= w.nextSweep {
		errs = append(errs, w.cancels(ctx, now), w.sweep(ctx))
		w.nextSweep = now + w.d.Settings.SweepInterval.Milliseconds()
	}
	return errors.Join(errs...)
}

func (w *warden) lead(ctx context.Context, fn func(*store.Tx) error) error {
	return w.d.Store.Lead(ctx, w.term, fn)
}

// assignments looks at jobs whose agent did not answer, went away, or fell silent.
func (w *warden) assignments(ctx context.Context) error {
	c, due, err := w.due(ctx)
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	for _, a := range due {
		what := judge(a, c)
		if what == assignmentFine {
			continue
		}
		if err := w.lead(ctx, func(tx *store.Tx) error { return w.execute(ctx, tx, a, what) }); err != nil {
			return fmt.Errorf("end assignment of job %s: %w", a.JobID, err)
		}
	}
	return nil
}

func (w *warden) due(ctx context.Context) (clock, []db.DispatchDueAssignmentsRow, error) {
	c := clock{settings: w.d.Settings}
	var due []db.DispatchDueAssignmentsRow
	err := w.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		c.now = tx.Now()
		nodes, err := tx.DispatchNodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.InstanceID == w.d.InstanceID {
				c.ready = n.ReadyAt
			}
		}
		due, err = tx.DispatchDueAssignments(ctx, c.now, c.now-w.d.Settings.RecoveryGrace.Milliseconds(), c.now-w.d.Settings.JobStale.Milliseconds())
		return err
	})
	return c, due, err
}

// execute writes one verdict down: the job's fate and its agent's, together.
func (w *warden) execute(ctx context.Context, tx *store.Tx, a db.DispatchDueAssignmentsRow, what assignmentFate) error {
	var applied bool
	var err error
	attempt := int(a.Attempt)
	switch what {
	case assignmentNotAcked:
		applied, err = w.d.Runs.Requeue(tx, a.JobID, attempt, "not_acked", true)
	case assignmentLost, assignmentEnded:
		if end, ok := orphanEnd(a, what, tx.Now(), w.d.Settings.RecoveryGrace); ok {
			applied, err = w.d.Runs.EndJob(tx, end)
			break
		}
		applied, err = w.d.Runs.Lost(tx, a.JobID, attempt, lostText(a, what, w.d.Settings.RecoveryGrace))
	case assignmentStale:
		applied, err = w.d.Runs.EndJob(tx, staleEnd(a, tx.Now(), w.d.Settings.JobStale))
	}
	if err != nil || !applied || what == assignmentEnded {
		return err
	}
	reason := ci.GoneLost
	if what != assignmentLost {
		reason = ci.GoneUnresponsive
	}
	return endAgent(ctx, tx, a.AgentID, reason)
}

// staleEnd is the end of a job that nobody reports about. When the server that its agent was connected to is gone, that is the
// reason, and it is said (STL-6).
func staleEnd(a db.DispatchDueAssignmentsRow, now int64, stale time.Duration) JobEnd {
	end := JobEnd{
		JobID: a.JobID, Attempt: int(a.Attempt), Status: ci.JobStale, FailureClass: "timed_out", AssignmentReason: "stale",
		Error: fmt.Sprintf("agent %s has said nothing about this job for %s", a.AgentID, stale),
	}
	if serverGone(a, now) {
		end.FailureClass, end.Error = deadOrchestrator, orphanText(a, stale)
	}
	return end
}

// orphanEnd is the end of a job whose agent lost its link because its server is gone, and has not found another one in time: the job
// fails for that (STL-6). It is false for any other loss, and for a job that had not started, which goes back to the queue.
func orphanEnd(a db.DispatchDueAssignmentsRow, what assignmentFate, now int64, grace time.Duration) (JobEnd, bool) {
	if what != assignmentLost || !a.StartedAt.Valid || !serverGone(a, now) {
		return JobEnd{}, false
	}
	return JobEnd{
		JobID: a.JobID, Attempt: int(a.Attempt), Status: ci.JobFailed, FailureClass: deadOrchestrator, AssignmentReason: "lost",
		Error: orphanText(a, grace),
	}, true
}

// deadOrchestrator is the failure class of a run that lost its server (PIPE-21).
const deadOrchestrator = "dead_orchestrator"

// serverGone reports whether the server that the agent is, or was last, connected to is dead. One that has stopped and is not back is.
func serverGone(a db.DispatchDueAssignmentsRow, now int64) bool {
	return a.InstanceHeartbeat.Valid && !ci.InstanceLive(a.InstanceHeartbeat.Int64, now)
}

func orphanText(a db.DispatchDueAssignmentsRow, waited time.Duration) string {
	return fmt.Sprintf("server %s, which agent %s was connected to, is gone, and the agent has not come back to another one for %s",
		a.InstanceName.String, a.AgentID, waited)
}

// endAgent gives an agent up: its node ends its compute, its coordinator closes its session. A static one has no compute; it
// may come back.
func endAgent(ctx context.Context, tx *store.Tx, id, reason string) error {
	node, err := tx.DispatchEndAgent(ctx, tx.Now(), reason, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // it is ending already
	}
	if err != nil {
		return fmt.Errorf("end agent: %w", err)
	}
	tx.Notify(store.TopicAgents, node)
	tx.Notify(store.TopicAssignments, id)
	return nil
}

// lostText is the sentence of a job whose agent is gone (AG-20).
func lostText(a db.DispatchDueAssignmentsRow, what assignmentFate, grace time.Duration) string {
	kind := "agent"
	if a.AgentType == "static" {
		kind = "static agent"
	}
	if what == assignmentLost {
		return fmt.Sprintf("%s %s was lost: its link dropped and it did not come back within %s", kind, a.AgentID, grace)
	}
	text := fmt.Sprintf("%s %s ended while it had this job", kind, a.AgentID)
	if a.GoneReason != "" {
		text += " (" + a.GoneReason + ")"
	}
	if a.AgentError != "" {
		text += ": " + a.AgentError
	}
	return text
}

// deadlines cancels runs past their whole-run timeout, however long ago that was (PIPE-20, XC-72).
func (w *warden) deadlines(ctx context.Context, now int64) error {
	runs, err := w.d.Store.Read().DueRuns(ctx, now)
	if err != nil {
		return fmt.Errorf("list overdue runs: %w", err)
	}
	for _, r := range runs {
		err := w.lead(ctx, func(tx *store.Tx) error {
			_, err := w.d.Runs.CancelOverdue(tx, r.ID, "workflow_timeout: the run was not done by its deadline")
			return err
		})
		if err != nil {
			return fmt.Errorf("cancel overdue run %s: %w", r.ID, err)
		}
	}
	return nil
}

// cancels drives cancelling runs that do not end (CAN-5): first their agents are told again, without grace; after twice the
// time the jobs end without them and their compute is ended.
func (w *warden) cancels(ctx context.Context, now int64) error {
	patience := w.d.Settings.CancelRedrive.Milliseconds()
	runs, err := w.d.Store.Read().StuckCancellingRuns(ctx, now-patience)
	if err != nil {
		return fmt.Errorf("list cancelling runs: %w", err)
	}
	for _, r := range runs {
		giveUp := r.CancellingAt.Int64 <= now-2*patience
		err := w.lead(ctx, func(tx *store.Tx) error {
			agents, err := w.d.Runs.DriveCancel(tx, r.ID, giveUp)
			if err != nil {
				return err
			}
			for _, id := range agents {
				if err := endAgent(ctx, tx, id, ci.GoneUnresponsive); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("drive cancel of run %s: %w", r.ID, err)
		}
	}
	return nil
}

// sweep moves runs that stand still (NEED-8, STL-5).
func (w *warden) sweep(ctx context.Context) error {
	const page = 200
	for after := ""; ; {
		ids, err := w.d.Runs.Unsettled(ctx, after, w.d.Settings.JobStale.Milliseconds(), page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := w.lead(ctx, func(tx *store.Tx) error {
				_, err := w.d.Runs.Settle(tx, id)
				return err
			})
			if err != nil {
				return fmt.Errorf("settle run %s: %w", id, err)
			}
			after = id
		}
		if len(ids) < page {
			return nil
		}
	}
}
