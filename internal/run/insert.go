package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Insert makes the rows of a planned run in the caller's transaction: the run, its jobs, its edges, and what becomes of the
// jobs that need nothing, so that no moment exists in which a run has no jobs or a job nobody will look at (PIPE-9, PIPE-10,
// NEED-5). created is false, and runID the earlier run's, when DedupKey is taken.
func (s *Service) Insert(tx *store.Tx, p Planned) (runID string, created bool, err error) {
	ctx := context.Background()
	row := runRow(p)
	if p.failure != nil {
		row.InitFailure = p.failure.category
	}
	l, created, err := s.insertRun(ctx, tx, p, row)
	if err != nil || !created {
		return l.run.ID, false, err
	}
	if err := l.insertJobs(p); err != nil {
		return "", false, fmt.Errorf("insert jobs: %w", err)
	}
	if err := l.begin(p); err != nil {
		return "", false, fmt.Errorf("settle new run: %w", err)
	}
	return l.run.ID, true, nil
}

// FailedRun is a run that exists only to show why nothing ran (LOCK-4).
type FailedRun struct {
	OrgID, RoutingKey, Repo string
	Workflow                string // '' is "(unresolved workflow)"
	Event                   ci.Event
	TriggerEvent            string
	DeliveryRow, DedupKey   string
	Actor                   string
	TrustTier               ci.TrustTier
	ChainDepth              int
	InitFailure             string // category of PIPE-16
	Reason                  string // a sentence
}

// UnresolvedWorkflow names a run whose workflow could not be read (LOCK-4).
const UnresolvedWorkflow = "(unresolved workflow)"

// InsertFailed records a run that failed before it had jobs, with its lifecycle event.
func (s *Service) InsertFailed(tx *store.Tx, f FailedRun) (runID string, created bool, err error) {
	ctx := context.Background()
	name := f.Workflow
	if name == "" {
		name = UnresolvedWorkflow
	}
	p := Planned{RunID: s.env.NewID(), new: New{
		OrgID: f.OrgID, RoutingKey: f.RoutingKey, Repo: f.Repo, Workflow: lock.Workflow{Name: name}, Event: f.Event,
		TriggerEvent: f.TriggerEvent, DeliveryRow: f.DeliveryRow, DedupKey: f.DedupKey, Actor: f.Actor, TrustTier: f.TrustTier,
		ChainDepth: f.ChainDepth,
	}}
	p.Title = title(p.new, facts{})
	row := runRow(p)
	row.InitFailure, row.FailureReason, row.FailureClass, row.LockEntry = f.InitFailure, f.Reason, classNeverStarted, ""
	l, created, err := s.insertRun(ctx, tx, p, row)
	if err != nil || !created {
		return l.run.ID, false, err
	}
	l.run.FailureReason, l.run.FailureClass = f.Reason, classNeverStarted
	if err := l.finishRun(ci.RunFailed, nil); err != nil {
		return "", false, fmt.Errorf("end failed run: %w", err)
	}
	l.notify()
	return l.run.ID, true, nil
}

func runRow(p Planned) db.InsertRunParams {
	n := p.new
	f := runFacts(p)
	warnings := p.Warnings
	if warnings == nil {
		warnings = []string{}
	}
	inputs := n.Inputs
	if inputs == nil {
		inputs = map[string]any{}
	}
	return db.InsertRunParams{
		ID: p.RunID, OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow.Name, Status: string(ci.RunPending),
		Title: p.Title, Ref: n.Event.Ref, Branch: f.Branch, Sha: n.Event.SHA, Actor: f.Actor, TriggerEvent: n.TriggerEvent,
		Warnings: mustJSON(warnings), DeliveryID: n.DeliveryRow, DedupKey: nullText(n.DedupKey), TrustTier: string(n.TrustTier),
		IsFork: n.Event.Fork, ChainDepth: int64(n.ChainDepth), ParentRunID: nullText(n.ParentRunID), OriginalRunID: nullText(n.OriginalRunID),
		RunAttempt: f.RunAttempt, Event: mustJSON(n.Event), Inputs: mustJSON(inputs), LockEntry: p.lockJSON, MatchedTrigger: mustJSON(n.Decision),
	}
}

// insertRun makes the run's row and returns the life of it. When the dedup key is taken only run.ID is set, to its owner.
func (s *Service) insertRun(ctx context.Context, tx *store.Tx, p Planned, row db.InsertRunParams) (*life, bool, error) {
	l := &life{s: s, tx: tx, ctx: ctx, now: tx.Now()}
	if id, err := l.owner(row.DedupKey); err != nil || id != "" {
		l.run.ID = id
		return l, false, err
	}
	number, err := tx.NextRunNumber(ctx, row.OrgID, row.Repo)
	if err != nil {
		return l, false, fmt.Errorf("take run number: %w", err)
	}
	row.Number, row.CreatedAt = number, l.now
	if t := p.new.Workflow.TimeoutMs; t > 0 {
		row.DeadlineAt = nullInt(l.now + t)
	}
	rows, err := tx.InsertRun(ctx, row)
	if err != nil {
		return l, false, fmt.Errorf("insert run: %w", err)
	}
	if rows == 0 { // taken since we looked: PostgreSQL has waited for the other transaction
		id, err := l.owner(row.DedupKey)
		l.run.ID = id
		return l, false, err
	}
	l.run = runFacts(p)
	l.run.Number, l.run.CreatedAt, l.run.DeadlineAt = number, l.now, row.DeadlineAt
	l.def = &definition{event: p.new.Event, inputs: p.new.Inputs, workflow: p.new.Workflow}
	return l, true, nil
}

func (l *life) owner(key sql.NullString) (string, error) {
	if !key.Valid {
		return "", nil
	}
	id, err := l.tx.RunByDedupKey(l.ctx, key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("look for an earlier run: %w", err)
	}
	return id, nil
}

func (l *life) insertJobs(p Planned) error {
	for i, j := range p.jobs {
		row := db.InsertRunJobParams{
			ID: j.id, RunID: l.run.ID, OrgID: l.run.OrgID, Idx: int64(i), Name: j.name, BaseName: j.job.Name, DisplayName: j.display,
			Status: string(ci.JobPending), Matrix: j.matrix, FanoutIndex: int64(j.index), FanoutTotal: int64(j.total),
			ContinueOnError: j.continueOnError, TimeoutMs: j.job.TimeoutMs, CreatedAt: l.now, LockJob: j.jobJSON, Outputs: "{}",
		}
		if c := j.copied; c != nil {
			row.Status, row.AllowedFailure, row.Outputs = string(c.status), c.allowed, c.outputs
			row.StartedAt, row.FinishedAt = nullInt(c.startedAt), nullInt(c.finished)
		}
		if err := l.tx.InsertRunJob(l.ctx, row); err != nil {
			return err
		}
	}
	for _, e := range p.edges {
		err := l.tx.InsertRunNeeds(l.ctx, db.InsertRunNeedsParams{
			RunID: l.run.ID, RunOn: runOnText(e.runOn),
			JobFrom: int64(e.job.from), JobTo: int64(e.job.to), NeedsFrom: int64(e.needs.from), NeedsTo: int64(e.needs.to),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// begin decides about every job that waits for nothing, and about what follows from those that end at once.
func (l *life) begin(p Planned) error {
	gated := make([]bool, len(p.jobs))
	for _, e := range p.edges {
		for i := e.job.from; i < e.job.to; i++ {
			gated[i] = true
		}
	}
	for i, j := range p.jobs {
		switch {
		case j.copied != nil:
			l.ended = append(l.ended, endedJob{id: j.id, status: j.copied.status, allowed: j.copied.allowed})
		case j.failure != nil:
			if err := l.failInit(j.id, *j.failure); err != nil {
				return err
			}
		case !gated[i]:
			if err := l.ready(j.id); err != nil {
				return err
			}
		}
	}
	if len(p.jobs) == 0 {
		l.run.FailureReason, l.run.FailureClass = "the workflow has no jobs", classNeverStarted
		if p.failure != nil {
			l.run.FailureReason = p.failure.message
		}
		if err := l.finishRun(ci.RunFailed, nil); err != nil {
			return err
		}
		l.notify()
		return nil
	}
	return l.settle()
}
