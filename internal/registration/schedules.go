package registration

import (
	"context"
	"database/sql"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/cron"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// scheduleKey tells the schedules of a registration apart (CRN-2). Two triggers with the same one are one schedule.
type scheduleKey struct{ expression, timezone string }

func scheduleKeys(w *lock.Workflow) []scheduleKey {
	var out []scheduleKey
	for _, t := range w.On {
		if t.Type != workflow.TypeSchedule {
			continue
		}
		key := scheduleKey{t.Cron, t.Timezone}
		if key.timezone == "" {
			key.timezone = cron.UTC
		}
		out = append(out, key)
	}
	return out
}

// seed makes the schedules of a registration those of its workflow: what is there keeps its history, what is new begins now, what
// is gone is forgotten (CRN-5). had says that there may be some.
func seed(ctx context.Context, tx *store.Tx, reg db.WorkflowRegistration, w *lock.Workflow, had bool) error {
	want := scheduleKeys(w)
	if len(want) == 0 && !had {
		return nil
	}
	left := map[scheduleKey]bool{}
	if had {
		rows, err := tx.SchedulesOfRegistration(ctx, reg.ID)
		if err != nil {
			return err
		}
		for _, r := range rows {
			left[scheduleKey{r.Expression, r.Timezone}] = true
		}
	}
	for _, key := range want {
		if left[key] {
			delete(left, key)
			continue
		}
		next, why := nextAt(key, tx.Now(), reg.Disabled)
		err := tx.SeedSchedule(ctx, db.SeedScheduleParams{
			RegistrationID: reg.ID, Expression: key.expression, Timezone: key.timezone, OrgID: reg.OrgID, LastFiredAt: tx.Now(), NextAt: next, Error: why,
		})
		if err != nil {
			return err
		}
	}
	for key := range left {
		if _, err := tx.DropSchedule(ctx, reg.ID, key.expression, key.timezone); err != nil {
			return err
		}
	}
	return nil
}

// reseed begins all schedules of a registration anew (CRN-6).
func reseed(ctx context.Context, tx *store.Tx, id string) error {
	rows, err := tx.SchedulesOfRegistration(ctx, id)
	if err != nil {
		return err
	}
	for _, r := range rows {
		next, why := nextAt(scheduleKey{r.Expression, r.Timezone}, tx.Now(), false)
		_, err := tx.ReseedSchedule(ctx, db.ReseedScheduleParams{
			Now: tx.Now(), NextAt: next, Error: why, RegistrationID: id, Expression: r.Expression, Timezone: r.Timezone,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nextAt is when a schedule is due after an instant, or why it never is (CRN-1).
func nextAt(key scheduleKey, after int64, disabled bool) (at sql.NullInt64, why string) {
	s, err := cron.Parse(key.expression, key.timezone)
	switch {
	case err != nil:
		return sql.NullInt64{}, err.Error()
	case disabled:
		return sql.NullInt64{}, ""
	}
	next, ok := s.Next(time.UnixMilli(after))
	return sql.NullInt64{Int64: next.UnixMilli(), Valid: ok}, ""
}

// SeedMissing gives schedules to registrations that have none though their workflow does: those that a version without schedules
// wrote. It looks at up to most of them after an id and returns where to go on, "" at the end.
func (s *Service) SeedMissing(ctx context.Context, tx *store.Tx, after string, most int32) (string, error) {
	rows, err := tx.UnseededRegistrations(ctx, after, most)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	for _, row := range rows {
		w, err := decode(row.LockEntry)
		if err != nil {
			continue // the index says so
		}
		if err := seed(ctx, tx, row, w, false); err != nil {
			return "", err
		}
	}
	return rows[len(rows)-1].ID, nil
}
