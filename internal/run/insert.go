package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
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
	if p.Failure != nil {
		row.InitFailure = p.Failure.Category
	}
	l, created, err := s.insertRun(ctx, tx, p, row)
	if err != nil || !created {
		return l.run.ID, false, err
	}
	if err := l.insertJobs(p, 0); err != nil {
		return "", false, fmt.Errorf("insert jobs: %w", err)
	}
	if err := l.letIn(p); err != nil {
		return "", false, fmt.Errorf("settle new run: %w", err)
	}
	return l.run.ID, true, nil
}

// letIn begins a new run, unless it has to wait for its concurrency group first: then its jobs stay as they are until Admit.
func (l *life) letIn(p Planned) error {
	if p.Group == nil {
		return l.begin(p)
	}
	ok, err := l.join(nil, *p.Group)
	switch {
	case err != nil:
		return err
	case !ok:
		return l.done()
	}
	if err := l.startDeadline(); err != nil {
		return err
	}
	return l.begin(p)
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
	InitFailure             string // category of PIPE-16
	Reason                  string // a sentence
	Checks                  bool   // as New.Checks
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
		Checks: f.Checks,
	}}
	p.Title = plan.Title(plan.Facts{Event: f.Event, Workflow: &p.new.Workflow})
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
	return l.run.ID, true, l.done()
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
		ChecksChanged: checksChanged(n), IsFork: n.Event.Fork, ChainDepth: int64(n.ChainDepth), ParentRunID: nullText(n.ParentRunID), OriginalRunID: nullText(n.OriginalRunID),
		RunAttempt: f.RunAttempt, Event: mustJSON(n.Event), Inputs: mustJSON(inputs), LockEntry: p.lockJSON, MatchedTrigger: mustJSON(n.Decision),
	}
}

// checksChanged is 1 for a run that has commit statuses to post from the moment it exists, 0 for one that never will.
func checksChanged(n New) int64 {
	if n.Checks && n.Event.SHA != "" {
		return 1
	}
	return 0
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
	if t := p.new.Workflow.TimeoutMs; t > 0 && p.Group == nil {
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
	if row.ChecksChanged > 0 {
		tx.Notify(store.TopicChecks, "")
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

// insertJobs writes the jobs, from the given place in the run on, with their edges.
func (l *life) insertJobs(p Planned, from int) error {
	for i, j := range p.Jobs {
		row := db.InsertRunJobParams{
			ID: j.ID, RunID: l.run.ID, OrgID: l.run.OrgID, Idx: int64(from + i), Name: j.Name, BaseName: j.Def.Name, DisplayName: j.Display,
			Status: string(ci.JobPending), Matrix: j.Matrix, FanoutIndex: int64(j.Index), FanoutTotal: int64(j.Total),
			ContinueOnError: j.ContinueOnError, TimeoutMs: j.Def.TimeoutMs, CreatedAt: l.now, LockJob: j.Text, Outputs: "{}",
		}
		if c, kept := p.copied[i]; kept {
			row.Status, row.AllowedFailure, row.Outputs, row.Error = string(c.status), c.allowed, c.outputs, c.message
			row.StartedAt, row.FinishedAt = nullInt(c.startedAt), nullInt(c.finished)
		}
		if err := l.tx.InsertRunJob(l.ctx, row); err != nil {
			return err
		}
	}
	for _, e := range p.Edges {
		err := l.tx.InsertRunNeeds(l.ctx, db.InsertRunNeedsParams{
			RunID: l.run.ID, RunOn: string(plan.RunOnSet(e.RunOn)),
			JobFrom: int64(e.Job.From), JobTo: int64(e.Job.To), NeedsFrom: int64(e.Needs.From), NeedsTo: int64(e.Needs.To),
		})
		if err != nil {
			return err
		}
	}
	return l.insertFanouts(p.Jobs)
}

// fresh is a job that insertJobs has just written and that needs nothing.
func (l *life) fresh(j plan.Job) (db.LockJobRow, db.JobDefinitionRow, *metNeeds) {
	row := db.LockJobRow{
		ID: j.ID, RunID: l.run.ID, OrgID: l.run.OrgID, Name: j.Name, BaseName: j.Def.Name, DisplayName: j.Display,
		Status: string(ci.JobPending), ContinueOnError: j.ContinueOnError, CreatedAt: l.now,
	}
	if l.waves[j.Def.Name] != nil {
		row.Waves = 1
	}
	return row, db.JobDefinitionRow{LockJob: j.Text, Matrix: j.Matrix, FanoutIndex: int64(j.Index), FanoutTotal: int64(j.Total)}, nil
}

// begin decides about every job that waits for nothing, and about what follows from those that end at once.
func (l *life) begin(p Planned) error {
	gated := make([]bool, len(p.Jobs))
	for _, e := range p.Edges {
		for i := e.Job.From; i < e.Job.To; i++ {
			gated[i] = true
		}
	}
	for i, j := range p.Jobs {
		c, kept := p.copied[i]
		switch {
		case kept:
			l.ended = append(l.ended, endedJob{id: j.ID, status: c.status, allowed: c.allowed})
		case j.Failure != nil:
			if err := l.failInit(j.ID, *j.Failure); err != nil {
				return err
			}
		case !gated[i]:
			if err := l.judge(l.fresh(j)); err != nil {
				return err
			}
		}
	}
	if len(p.Jobs) == 0 {
		l.run.FailureReason, l.run.FailureClass = "the workflow has no jobs", classNeverStarted
		if p.Failure != nil {
			l.run.FailureReason = p.Failure.Message
		}
		if err := l.finishRun(ci.RunFailed, nil); err != nil {
			return err
		}
		return l.done()
	}
	return l.settle()
}
