package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Failure classes of a run (PIPE-21).
const (
	classNeverStarted = "never_started"
	classTimedOut     = "timed_out"
	classStep         = "step_failure"
	classCancelled    = "cancelled"
)

// life is one transaction's work on one run, whose row it has locked. It ends with the transaction.
type life struct {
	s   *Service
	tx  *store.Tx
	ctx context.Context // of the transaction, and no longer
	now int64
	run db.LockRunRow
	def *definition // read when first needed

	met     map[string]*metNeeds // by base job, when all needs have ended as they should
	ended   []endedJob           // jobs whose dependents are still to be looked at
	waves   map[string]*wave     // by base job, those that were looked at
	freed   []string             // base jobs in whose window a place may be free
	slots   int64                // places in concurrency groups that the run has to give up; known when it ends
	closed  bool                 // some job ended here, so the run may have
	queued  bool                 // some job was queued here
	changed bool
}

type endedJob struct {
	id      string
	status  ci.JobStatus
	allowed bool
}

// definition is the wide part of a run's row.
type definition struct {
	event    ci.Event
	inputs   map[string]any
	workflow lock.Workflow
}

// open locks a run. found is false when there is none.
func (s *Service) open(ctx context.Context, tx *store.Tx, runID string) (l *life, found bool, err error) {
	row, err := tx.LockRun(ctx, runID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("lock run: %w", err)
	}
	return &life{s: s, tx: tx, ctx: ctx, now: tx.Now(), run: row}, true, nil
}

// openJob locks a job and, before it, its run.
func (s *Service) openJob(ctx context.Context, tx *store.Tx, jobID string) (l *life, job db.LockJobRow, found bool, err error) {
	row, err := tx.LockRunOfJob(ctx, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, job, false, nil
	}
	if err != nil {
		return nil, job, false, fmt.Errorf("lock run of job: %w", err)
	}
	job, err = tx.LockJob(ctx, jobID)
	if err != nil {
		return nil, job, false, fmt.Errorf("lock job: %w", err)
	}
	return &life{s: s, tx: tx, ctx: ctx, now: tx.Now(), run: db.LockRunRow(row)}, job, true, nil
}

func (l *life) definition() (*definition, error) {
	if l.def != nil {
		return l.def, nil
	}
	row, err := l.tx.RunDefinition(l.ctx, l.run.ID)
	if err != nil {
		return nil, fmt.Errorf("read run definition: %w", err)
	}
	d := &definition{}
	for text, into := range map[string]any{row.Event: &d.event, row.Inputs: &d.inputs, row.LockEntry: &d.workflow} {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return nil, fmt.Errorf("decode run definition: %w", err)
		}
	}
	l.def = d
	return d, nil
}

// done ends the transaction's work: readers are woken, and a run whose source shows commit statuses counts the change (PIPE-7).
// The locked row tells which runs those are, so the others pay nothing.
func (l *life) done() error {
	if l.changed && l.run.ChecksChanged > 0 {
		if _, err := l.tx.TouchChecks(l.ctx, l.run.ID); err != nil {
			return fmt.Errorf("count change: %w", err)
		}
		l.tx.Notify(store.TopicChecks, "")
	}
	l.notify()
	return nil
}

// notify wakes readers of the run and, when capacity or work changed, the dispatch loop.
func (l *life) notify() {
	if !l.changed {
		return
	}
	l.tx.Notify(store.TopicRuns, l.run.ID)
	l.tx.Notify(store.TopicRunList, l.run.OrgID)
	if l.queued || l.closed {
		l.tx.Notify(store.TopicQueue, "")
	}
}
