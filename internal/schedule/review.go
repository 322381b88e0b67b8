package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// review is a new leader's look at every schedule: what has none gets it, and what another version, or other rules of a time zone,
// would fire at another time is due at the right one.
func (s *Service) review(ctx context.Context, term int64) error {
	for after, first := "", true; after != "" || first; first = false {
		err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) (err error) {
			after, err = s.d.Registrations.SeedMissing(ctx, tx, after, batch)
			return err
		})
		if err != nil {
			return fmt.Errorf("seed schedules: %w", err)
		}
	}
	page := db.SchedulesAfterParams{MaxRows: reviewed}
	for {
		rows, err := s.d.Store.Read().SchedulesAfter(ctx, page)
		if err != nil {
			return fmt.Errorf("review schedules: %w", err)
		}
		if err := s.correct(ctx, term, rows); err != nil {
			return fmt.Errorf("review schedules: %w", err)
		}
		if len(rows) < reviewed {
			return nil
		}
		last := rows[len(rows)-1]
		page.AfterID, page.AfterExpression, page.AfterTimezone = last.RegistrationID, last.Expression, last.Timezone
	}
}

// reviewed is how many schedules are read at once.
const reviewed = 1000

// correct writes the rows that are not as they should be. One that is due keeps its time: it has yet to fire.
func (s *Service) correct(ctx context.Context, term int64, rows []db.SchedulesAfterRow) error {
	var wrong []db.SetScheduleNextParams
	for _, row := range rows {
		next, why := s.expected(row)
		if row.NextAt == nullInt(next) && row.Error == why {
			continue
		}
		wrong = append(wrong, db.SetScheduleNextParams{
			NextAt: nullInt(next), Error: why, RegistrationID: row.RegistrationID, Expression: row.Expression, Timezone: row.Timezone,
			LastFiredAt: row.LastFiredAt,
		})
	}
	for len(wrong) > 0 {
		n := min(len(wrong), batch)
		err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
			for _, p := range wrong[:n] {
				if _, err := tx.SetScheduleNext(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		wrong = wrong[n:]
	}
	return nil
}

func (s *Service) expected(row db.SchedulesAfterRow) (next int64, why string) {
	s.mu.Lock()
	parsed, err := s.known.get(row.Expression, row.Timezone)
	s.mu.Unlock()
	switch {
	case err != nil:
		s.d.Metrics.ScheduleFailures.WithLabelValues("invalid").Inc()
		return 0, err.Error()
	case row.Disabled:
		return 0, ""
	}
	if at, ok := parsed.Next(time.UnixMilli(row.LastFiredAt)); ok {
		next = at.UnixMilli()
	}
	return next, ""
}
