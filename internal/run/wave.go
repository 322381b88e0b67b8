package run

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store/db"
)

// wave is the window and the fail-fast of one fan-out (NEED-9). What is in flight is counted under the run's lock, so two children
// that end at once release two and never more than the window allows (NEED-10).
type wave struct {
	max      int64 // children at the same time; 0 = all
	failFast bool
	inFlight int64  // uncounted = to be counted
	failed   string // the child whose failure ends the others, '' for none
}

const uncounted = -1

// insertFanouts writes the windows of jobs that are about to exist. Only fan-outs that have one get a row.
func (l *life) insertFanouts(jobs []plan.Job) error {
	for _, j := range jobs {
		window := int64(j.Def.MaxParallel)
		if window >= int64(j.Total) {
			window = 0
		}
		if j.Index > 0 || j.Total < 2 || window == 0 && !j.Def.FailFast || l.waves[j.Def.Name] != nil {
			continue
		}
		err := l.tx.InsertFanout(l.ctx, db.InsertFanoutParams{RunID: l.run.ID, BaseName: j.Def.Name, MaxParallel: window, FailFast: j.Def.FailFast})
		if err != nil {
			return fmt.Errorf("insert fan-out: %w", err)
		}
		l.keepWave(j.Def.Name, &wave{max: window, failFast: j.Def.FailFast, inFlight: uncounted})
	}
	return nil
}

func (l *life) keepWave(base string, w *wave) {
	if l.waves == nil {
		l.waves = map[string]*wave{}
	}
	l.waves[base] = w
}

// wave is that of a base job; one without a row lets everything through.
func (l *life) wave(base string) (*wave, error) {
	if w := l.waves[base]; w != nil {
		return w, nil
	}
	row, err := l.tx.FanoutOf(l.ctx, l.run.ID, base)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read fan-out: %w", err)
	}
	w := &wave{max: row.MaxParallel, failFast: row.FailFast, inFlight: uncounted}
	l.keepWave(base, w)
	return w, nil
}

// room is how many children more the window lets through.
func (l *life) room(base string, w *wave) (int64, error) {
	if w.max <= 0 {
		return 1 << 30, nil
	}
	if w.inFlight == uncounted {
		n, err := l.tx.FanoutInFlight(l.ctx, l.run.ID, base)
		if err != nil {
			return 0, fmt.Errorf("count fan-out: %w", err)
		}
		w.inFlight = n
	}
	return w.max - w.inFlight, nil
}

// pass asks the window of a job's fan-out. One that has a place in a concurrency group has passed before.
func (l *life) pass(job db.LockJobRow) (bool, error) {
	if job.Waves == 0 || job.Slots > 0 {
		return true, nil
	}
	w, err := l.wave(job.BaseName)
	if err != nil {
		return false, err
	}
	room, err := l.room(job.BaseName, w)
	if err != nil || room <= 0 {
		return false, err
	}
	if w.inFlight != uncounted {
		w.inFlight++
	}
	return true, nil
}

// childEnded notes that a place in the window may be free, and that the others are to be ended.
func (l *life) childEnded(job db.LockJobRow, e endedJob) error {
	w, err := l.wave(job.BaseName)
	if err != nil {
		return err
	}
	w.inFlight = uncounted
	if w.failFast && w.failed == "" && e.status.Failure() && !e.allowed {
		w.failed = job.Name
	}
	if !slices.Contains(l.freed, job.BaseName) {
		l.freed = append(l.freed, job.BaseName)
	}
	return nil
}

// refill lets children through the window, in the order of the fan-out, or ends all of them after a failure.
func (l *life) refill(base string) error {
	w, err := l.wave(base)
	if err != nil {
		return err
	}
	if w.failed != "" {
		return l.endSiblings(base, w.failed)
	}
	held, err := l.tx.FanoutHeld(l.ctx, l.run.ID, base)
	if err != nil {
		return fmt.Errorf("read held jobs: %w", err)
	}
	for _, id := range held {
		room, err := l.room(base, w)
		if err != nil || room <= 0 {
			return err
		}
		job, err := l.tx.LockJob(l.ctx, id)
		if err != nil {
			return fmt.Errorf("lock job: %w", err)
		}
		if err := l.readmit(job); err != nil {
			return err
		}
	}
	return nil
}

// endSiblings is fail-fast: what has not begun is skipped, what has is cancelled.
func (l *life) endSiblings(base, failed string) error {
	reason := fmt.Sprintf("%s failed, and fail-fast is on", failed)
	jobs, err := l.tx.LockOpenJobs(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("lock open jobs: %w", err)
	}
	for _, j := range jobs {
		if j.BaseName != base {
			continue
		}
		if s := ci.JobStatus(j.Status); s != ci.JobPending && s != ci.JobHeld {
			if _, err := l.cancelOne(j, CancelRequest{By: byKici, Reason: reason}); err != nil {
				return err
			}
			continue
		}
		job, err := l.tx.LockJob(l.ctx, j.ID)
		if err != nil {
			return fmt.Errorf("lock job: %w", err)
		}
		if _, err := l.end(job, ending{status: ci.JobSkipped, message: reason}); err != nil {
			return err
		}
	}
	return nil
}

// hold makes a job wait although its needs are met, until its fan-out or its concurrency group lets it through. Why is in the rows
// of those.
func (l *life) hold(job db.LockJobRow) error {
	if job.Status == string(ci.JobHeld) {
		return nil
	}
	if _, err := l.tx.HoldJob(l.ctx, job.ID, nullInt(l.now)); err != nil {
		return fmt.Errorf("hold job: %w", err)
	}
	l.changed = true
	return nil
}
