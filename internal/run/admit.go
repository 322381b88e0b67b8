package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// GroupDuties lists what is to be done now about concurrency groups, each a transaction that the leader runs: those who were given a
// place go on, those who are superseded are ended, those who have waited too long are (STL-7: in this order). With sweep, places
// without an owner are given up and groups that stand still are moved (CON-3). It is level-triggered: what was not done, or was lost
// with a process, is listed again.
func (s *Service) GroupDuties(ctx context.Context, sweep bool) ([]func(*store.Tx) error, error) {
	var duties []func(*store.Tx) error
	err := s.st.Snapshot(ctx, func(tx *store.Tx) error {
		duties = nil
		if sweep {
			if err := s.leftovers(ctx, tx, &duties); err != nil {
				return err
			}
		}
		promoted, err := tx.PromotedSlots(ctx)
		if err != nil {
			return err
		}
		for _, p := range promoted {
			duties = append(duties, func(tx *store.Tx) error { return s.Admit(tx, p.RunID, p.JobID) })
		}
		superseded, err := tx.SupersededSlots(ctx)
		if err != nil {
			return err
		}
		for _, p := range superseded {
			duties = append(duties, func(tx *store.Tx) error { return s.endSuperseded(tx, p.RunID, p.JobID) })
		}
		overdue, err := tx.OverdueSlots(ctx, tx.Now())
		if err != nil {
			return err
		}
		for _, p := range overdue {
			duties = append(duties, func(tx *store.Tx) error { return s.endWaiting(tx, p.RunID, p.JobID) })
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at concurrency groups: %w", err)
	}
	return duties, nil
}

func (s *Service) leftovers(ctx context.Context, tx *store.Tx, duties *[]func(*store.Tx) error) error {
	ownerless, err := tx.OwnerlessSlots(ctx)
	if err != nil {
		return err
	}
	for _, p := range ownerless {
		*duties = append(*duties, func(tx *store.Tx) error {
			l, slot, ok, err := s.openSlot(tx, p.RunID, p.JobID)
			if err != nil || !ok {
				return err
			}
			s.log.Warn("a concurrency group had a place whose owner has ended", "run_id", p.RunID, "group", slot.GroupKey)
			return l.release(slot)
		})
	}
	standing, err := tx.StandingGroups(ctx)
	if err != nil {
		return err
	}
	for _, g := range standing {
		*duties = append(*duties, func(tx *store.Tx) error {
			g, err := lockGroup(context.Background(), tx, groupScope{g.OrgID, g.RoutingKey, g.GroupKey})
			if err != nil {
				return err
			}
			return g.promote()
		})
	}
	idle, err := tx.IdleGroup(ctx)
	if err != nil {
		return err
	}
	if len(idle) > 0 {
		*duties = append(*duties, func(tx *store.Tx) error {
			_, err := tx.DropIdleGroups(context.Background())
			return err
		})
	}
	return nil
}

// openSlot locks a run and reads its place, or that of one of its jobs. ok is false when it was given up.
func (s *Service) openSlot(tx *store.Tx, runID, jobID string) (l *life, slot db.ConcurrencySlot, ok bool, err error) {
	l, found, err := s.open(context.Background(), tx, runID)
	if err != nil || !found {
		return nil, slot, false, err
	}
	slot, found, err = l.slot(jobID)
	return l, slot, found && (slot.State == slotActive || slot.State == slotQueued), err
}

// Admit lets a run or job that was given a place in its concurrency group go on. It does nothing for one that has gone on already.
func (s *Service) Admit(tx *store.Tx, runID, jobID string) error {
	l, slot, ok, err := s.openSlot(tx, runID, jobID)
	if err != nil || !ok || slot.State != slotActive || slot.Begun {
		return err
	}
	if ci.RunStatus(l.run.Status).Terminal() {
		return l.release(slot)
	}
	if _, err := tx.BeginSlot(l.ctx, slot.ID); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if l.run.Status == string(ci.RunCancelling) { // it ends, and gives the place up then
		return nil
	}
	if jobID == "" {
		if err := l.notePromoted(slot); err != nil {
			return err
		}
		return l.beginWaiting()
	}
	return l.admitJob(slot)
}

func (l *life) notePromoted(slot db.ConcurrencySlot) error {
	return l.note(ci.NotePromoted, slot.JobID, byKici, fmt.Sprintf("has a place in concurrency group %q after %s", slot.GroupKey, l.waited(slot)))
}

func (l *life) admitJob(slot db.ConcurrencySlot) error {
	job, err := l.tx.LockJob(l.ctx, slot.JobID)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	if ci.JobStatus(job.Status).Terminal() {
		return l.release(slot)
	}
	if job.Status != string(ci.JobHeld) {
		return nil
	}
	if err := l.notePromoted(slot); err != nil {
		return err
	}
	if err := l.moveDeadline(slot); err != nil {
		return err
	}
	if err := l.readmit(job); err != nil {
		return err
	}
	return l.settle()
}

// readmit decides again about a held job.
func (l *life) readmit(job db.LockJobRow) error {
	if l.run.Status == string(ci.RunCancelling) {
		_, err := l.end(job, ending{status: ci.JobCancelled, message: "the run is being cancelled"})
		return err
	}
	if _, err := l.needs(job.ID, job.BaseName); err != nil {
		return err
	}
	def, err := l.tx.JobDefinition(l.ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read job definition: %w", err)
	}
	return l.judge(job, def, l.met[job.BaseName])
}

// startDeadline begins the whole-run timeout of a run that goes on: the time it waited for its group does not count (PIPE-20).
func (l *life) startDeadline() error {
	def, err := l.definition()
	if err != nil || def.workflow.TimeoutMs <= 0 {
		return err
	}
	l.run.DeadlineAt = nullInt(l.now + def.workflow.TimeoutMs)
	if _, err := l.tx.SetRunDeadline(l.ctx, l.run.ID, l.run.DeadlineAt); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	return nil
}

// moveDeadline adds to the whole-run timeout the time in which nothing of the run could go on but for the group that a job of it
// waited for.
func (l *life) moveDeadline(slot db.ConcurrencySlot) error {
	if !l.run.DeadlineAt.Valid {
		return nil
	}
	a, err := l.tx.RunActivity(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("look at jobs: %w", err)
	}
	if a.Active > 0 {
		return nil
	}
	l.run.DeadlineAt = nullInt(l.run.DeadlineAt.Int64 + max(l.now-max(slot.CreatedAt, a.LastFinished), 0))
	if _, err := l.tx.SetRunDeadline(l.ctx, l.run.ID, l.run.DeadlineAt); err != nil {
		return fmt.Errorf("move deadline: %w", err)
	}
	return nil
}

// beginWaiting is begin for a run whose rows have waited: what is wrong with its jobs from the start is worked out again from the
// same workflow and event, because only their rows were kept.
func (l *life) beginWaiting() error {
	if err := l.startDeadline(); err != nil {
		return err
	}
	def, err := l.definition()
	if err != nil {
		return err
	}
	failures := map[string]*plan.Failure{}
	for _, j := range plan.Make(plan.Facts{
		Server: l.s.settings.ServerURL, Run: exprRun(l.run), Event: def.event, Inputs: def.inputs, Workflow: &def.workflow,
	}, l.s.env.NewID).Jobs {
		failures[j.Name] = j.Failure
	}
	jobs, err := l.tx.RunJobs(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	for _, j := range jobs {
		switch f := failures[j.Name]; {
		case ci.JobStatus(j.Status).Terminal(): // a result of the run that this one repeats
			l.ended = append(l.ended, endedJob{id: j.ID, status: ci.JobStatus(j.Status), allowed: j.AllowedFailure})
		case f != nil:
			err = l.failInit(j.ID, *f)
		default:
			err = l.decide(j.ID, j.BaseName)
		}
		if err != nil {
			return err
		}
	}
	l.changed, l.closed = true, true
	return l.settle()
}

// endSuperseded ends a run or job that a newer one of its group replaces (CON-2).
func (s *Service) endSuperseded(tx *store.Tx, runID, jobID string) error {
	l, slot, ok, err := s.openSlot(tx, runID, jobID)
	if err != nil || !ok || slot.SupersededBy == "" {
		return err
	}
	if ci.RunStatus(l.run.Status).Terminal() {
		return l.release(slot)
	}
	reason := "superseded by " + slot.SupersededBy
	if err := l.note(ci.NoteSuperseded, jobID, byKici, fmt.Sprintf("%s in concurrency group %q", reason, slot.GroupKey)); err != nil {
		return err
	}
	req := CancelRequest{By: byKici, Reason: reason}
	if jobID == "" {
		_, err := l.cancel(req)
		return err
	}
	return l.cancelJob(jobID, req)
}

// cancelJob ends one job, as cancel does a run.
func (l *life) cancelJob(jobID string, req CancelRequest) error {
	jobs, err := l.tx.LockOpenJobs(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("lock open jobs: %w", err)
	}
	i := slices.IndexFunc(jobs, func(j db.LockOpenJobsRow) bool { return j.ID == jobID })
	if i < 0 {
		return l.releaseJob(jobID)
	}
	if _, err := l.cancelOne(jobs[i], req); err != nil {
		return err
	}
	l.changed = true
	return l.settle()
}

// endWaiting ends a run or job that has waited too long for its concurrency group (CON-4).
func (s *Service) endWaiting(tx *store.Tx, runID, jobID string) error {
	l, slot, ok, err := s.openSlot(tx, runID, jobID)
	if err != nil || !ok || slot.State != slotQueued || !slot.WaitUntil.Valid || slot.WaitUntil.Int64 > l.now {
		return err
	}
	g, err := lockGroup(l.ctx, tx, scopeOf(slot))
	if err != nil {
		return err
	}
	g.slots = slices.DeleteFunc(g.slots, func(o db.GroupSlotsRow) bool { return o.State == slotQueued })
	reason := fmt.Sprintf("no place in concurrency group %q within %s: %s", slot.GroupKey, l.waited(slot), g.who())
	if err := l.note(ci.NoteTimedOut, jobID, byKici, reason); err != nil {
		return err
	}
	if jobID == "" {
		return l.failWaiting(reason)
	}
	job, err := tx.LockJob(l.ctx, jobID)
	if err != nil {
		return fmt.Errorf("lock job: %w", err)
	}
	if ci.JobStatus(job.Status).Terminal() {
		return l.release(slot)
	}
	_, err = l.end(job, ending{status: ci.JobFailed, message: reason, initFailure: initGroupTimeout, class: classNeverStarted})
	if err != nil {
		return err
	}
	return l.settle()
}

// failWaiting ends a run none of whose jobs has begun.
func (l *life) failWaiting(reason string) error {
	if ci.RunStatus(l.run.Status).Terminal() {
		return l.releaseRun()
	}
	l.run.FailureReason, l.run.FailureClass = clip(reason, 1000), classNeverStarted
	jobs, err := l.tx.LockOpenJobs(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("lock open jobs: %w", err)
	}
	for _, j := range jobs {
		if _, err := l.cancelOne(j, CancelRequest{Reason: reason}); err != nil {
			return err
		}
	}
	l.ended, l.freed = nil, nil // nothing is left that could follow
	outcomes, err := l.tx.RunOutcomes(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("read outcomes: %w", err)
	}
	l.slots = 1
	if err := l.finishRun(ci.RunFailed, outcomes); err != nil {
		return err
	}
	return l.done()
}
