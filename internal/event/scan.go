package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

const (
	scanEvery = 10 * time.Second
	scanRows  = 200
	lostAfter = time.Minute // a fresh event that nobody took by then: its notification was lost (EVT-15)
)

// Scan is the leader's duty: it frees expired leases, turns exhausted events into dead letters, wakes the routers for what they missed,
// closes batches of failures and measures the dead letters (EVT-14). It runs until ctx ends.
func (s *Service) Scan(ctx context.Context) error {
	return s.d.Leader.While(ctx, func(ctx context.Context, term int64) error {
		return service.Loop{Name: "event scanner", Interval: scanEvery, Log: s.log, Tick: func(ctx context.Context) error {
			return s.scan(ctx, term)
		}}.Run(ctx)
	})
}

// scan is one step. One part's failure does not stop the others.
func (s *Service) scan(ctx context.Context, term int64) error {
	limits := s.d.Limits()
	var errs []error
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"release expired leases", func() error { return s.scanLeases(ctx, term, limits) }},
		{"close failure batches", func() error { return s.closeBatches(ctx, term) }},
		{"wake routers", func() error { return s.scanLate(ctx) }},
		{"count dead letters", func() error { return s.gauge(ctx) }},
	} {
		if err := part.do(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return errors.Join(errs...)
}

// scanLeases makes events whose attempts are used up dead letters, so that one that kills its server each time does not do so for ever
// (XC-36), and frees the others.
func (s *Service) scanLeases(ctx context.Context, term int64, limits Limits) error {
	var dead []db.DeadLetterExhaustedRow
	err := s.d.Store.Lead(ctx, term, func(tx *store.Tx) (err error) {
		dead, err = tx.DeadLetterExhausted(ctx, db.DeadLetterExhaustedParams{
			Now: nullInt(tx.Now()), MaxAttempts: limits.MaxAttempts, Cutoff: nullInt(tx.Now() - leaseLife.Milliseconds()), MaxRows: scanRows,
		})
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range dead {
		s.dead(e.EventName, DeadExhausted, e.Attempts)
		s.log.Error("event is a dead letter", "event_id", e.ID, "event_name", e.EventName, "attempt", e.Attempts, "reason", DeadExhausted,
			"err", "its holders stopped or hung", "remedy", "kici event dlq retry "+e.ID)
	}
	return s.releaseExpired(ctx, limits)
}

// scanLate wakes the routers when something waits that they should have taken.
func (s *Service) scanLate(ctx context.Context) error {
	now := s.d.Env.NowMs()
	late, err := s.d.Store.Read().LateEvents(ctx, now, now-lostAfter.Milliseconds(), scanRows)
	if err != nil || late == 0 {
		return err
	}
	s.d.Store.Publish(store.TopicEvents, "")
	return nil
}

func (s *Service) gauge(ctx context.Context) error {
	n, err := s.d.Store.Read().CountDeadLetters(ctx)
	if err == nil {
		s.d.Metrics.Events.DeadDepth.Set(float64(n))
	}
	return err
}

// Cleanup deletes up to limit expired events and returns how many it deleted; the caller repeats it until it deletes none. Dead letters
// stay until somebody decides about them. An event that expires before it was routed is counted and logged (EVT-19, XC-49).
func (s *Service) Cleanup(ctx context.Context, limit int) (deleted int, err error) {
	var rows []db.DeleteExpiredEventsRow
	err = s.d.Store.Write(ctx, func(tx *store.Tx) (err error) {
		rows, err = tx.DeleteExpiredEvents(ctx, tx.Now(), int32(min(max(limit, 1), maxCleanup)))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("delete expired events: %w", err)
	}
	for _, e := range rows {
		if !e.Processed {
			s.d.Metrics.Events.Lost.Inc()
			s.log.Error("event expired before it was routed", "event_id", e.ID, "event_name", e.EventName, "created_at", e.CreatedAt)
		}
	}
	return len(rows), nil
}

// maxCleanup bounds one transaction of Cleanup.
const maxCleanup = 1000
