package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
)

// Unsettled lists open runs that stand still although nothing holds them (NEED-8, STL-5): all their jobs have ended, they have
// none, or a waiting job's needs say that it should move. Nothing of this build leaves such a run; older ones, people with a
// database shell and bugs do. Runs younger than graceMs are left alone while they have no open jobs.
func (s *Service) Unsettled(ctx context.Context, after string, graceMs int64, limit int32) ([]string, error) {
	ids, err := s.st.Read().UnsettledRuns(ctx, after, s.env.NowMs()-graceMs, limit)
	if err != nil {
		return nil, fmt.Errorf("list unsettled runs: %w", err)
	}
	return ids, nil
}

// Settle computes one open run's needs and verdict anew from its rows.
func (s *Service) Settle(tx *store.Tx, runID string) (changed bool, err error) {
	ctx := context.Background()
	l, found, err := s.open(ctx, tx, runID)
	if err != nil || !found || ci.RunStatus(l.run.Status).Terminal() {
		return false, err
	}
	jobs, err := tx.RunJobs(ctx, runID)
	if err != nil {
		return false, fmt.Errorf("read jobs: %w", err)
	}
	if len(jobs) == 0 {
		l.run.FailureReason, l.run.FailureClass = "the run has no jobs: it was never started", classNeverStarted
		if err := l.finishRun(ci.RunFailed, nil); err != nil {
			return false, err
		}
		return l.changed, l.done()
	}
	if slot, found, err := l.slot(""); err != nil || found && !slot.Begun {
		return false, err // it waits for its concurrency group
	}
	for _, j := range jobs {
		if j.Status == string(ci.JobHeld) && !slices.Contains(l.freed, j.BaseName) {
			l.freed = append(l.freed, j.BaseName)
		}
		if j.Status == string(ci.JobPending) && !j.NeedsSatisfied {
			if err := l.decide(j.ID, j.BaseName); err != nil {
				return false, err
			}
		}
	}
	l.closed = true
	if err := l.settle(); err != nil {
		return false, err
	}
	if l.changed {
		s.log.Warn("a run stood still and was moved", "run_id", runID, "status", l.run.Status)
	}
	return l.changed, nil
}
