package check

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// recordTime is how long writing a pass down may take; it goes on when the server stops.
const recordTime = 10 * time.Second

const maxError = 500 // bytes of last_error

// outcome is what a pass has done.
type outcome struct {
	results []result
	rest    bool   // some statuses are left for the next pass
	key     string // routing key
}

// record writes what was posted and what was not, and lets the run go.
func (s *Service) record(ctx context.Context, v view, until int64, o outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	gated, _ := s.gates.check(o.key, s.d.Env.Now())
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		now := tx.Now()
		next := db.ReleaseChecksParams{ID: v.run.ID, Lease: until, Seen: v.seen, Done: v.seen, DueAt: now + debounce.Milliseconds()}
		if o.rest {
			next.Done, next.DueAt = v.done, 0
		}
		for _, r := range o.results {
			row := statusRow(v, r, now)
			if err := tx.PutCommitStatus(ctx, row); err != nil {
				return err
			}
			if r.err != nil && !row.GaveUpAt.Valid {
				again := max(now+backoff(row.Attempts, v.run.ID).Milliseconds(), gated.UnixMilli())
				next.Done, next.DueAt = v.done, max(next.DueAt, again)
			}
		}
		_, err := tx.ReleaseChecks(ctx, next)
		return err
	})
	if err != nil {
		return fmt.Errorf("record statuses: %w", err)
	}
	s.count(v, o.results)
	return nil
}

// statusRow is the row of a status after a result.
func statusRow(v view, r result, now int64) db.PutCommitStatusParams {
	old, had := v.rows[r.post.Context]
	row := db.PutCommitStatusParams{
		RunID: v.run.ID, Context: r.post.Context, OrgID: v.orgID, JobID: r.post.JobID, Sha: r.post.SHA, Wanted: string(r.post.State),
		State: old.State, Description: old.Description, PostedAt: old.PostedAt, CreatedAt: now,
	}
	if had {
		row.CreatedAt = old.CreatedAt
	}
	at := sql.NullInt64{Int64: now, Valid: true}
	if r.err == nil {
		row.State, row.Description, row.PostedAt = string(r.post.State), r.post.Description, at
		return row
	}
	row.Reason, row.LastError = string(reasonOf(r.err)), clip(r.err.Error(), maxError)
	row.Attempts, row.FailingSince = old.Attempts, old.FailingSince
	if r.tried {
		row.Attempts++
	}
	if !row.FailingSince.Valid {
		row.FailingSince = at
	}
	if givesUp(reason(row.Reason), row.Attempts, time.Duration(now-row.FailingSince.Int64)*time.Millisecond) {
		row.GaveUpAt = at
	}
	return row
}

// givesUp says when trying again is pointless. A later state of the same context is tried once more.
func givesUp(why reason, attempts int64, failing time.Duration) bool {
	switch {
	case why == reasonGone:
		return true
	case why.passes():
		return failing >= giveUpAfter
	}
	return attempts >= maxAttempts
}

// count counts what was posted.
func (s *Service) count(v view, results []result) {
	for _, r := range results {
		switch {
		case r.err != nil:
			continue
		case r.post.State != source.StatusPending && r.post.State != source.StatusRunning:
			s.d.Metrics.Checks.WithLabelValues("complete").Inc()
		case v.posted[r.post.Context].State == "":
			s.d.Metrics.Checks.WithLabelValues("create").Inc()
		default:
			s.d.Metrics.Checks.WithLabelValues("update").Inc()
		}
	}
}

// release lets a run go with nothing done, to be looked at soon.
func (s *Service) release(ctx context.Context, id string, until int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.PostponeChecks(ctx, id, until, tx.Now()+backoff(1, id).Milliseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
