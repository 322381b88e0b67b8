// Package schedule fires the schedules of registered workflows (CRN-*). A schedule is a row that says when it is due next; it is
// written by the registration that it belongs to. The leader looks at what is due, takes each instant and writes the event of it in
// one transaction, so that an instant fires once whoever leads, however long nobody did, and whatever the clock does. Who starts the
// run is the events' room.
package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// EventFire is the name of the event that an instant emits (CRN-4).
const EventFire = "__schedule_fire"

// Event is what an instant emits. It is addressed to one registration.
type Event struct {
	OrgID, RegistrationID string
	Repo, RoutingKey      string // of the registration
	Payload               json.RawMessage
}

// Events is where instants are emitted.
type Events interface {
	// EmitTx writes the event in the caller's transaction and returns its id.
	EmitTx(tx *store.Tx, e Event) (id string, err error)
}

// Registrations gives schedules to registrations that an older version wrote.
type Registrations interface {
	// SeedMissing looks at up to most registrations after an id and returns where to go on, "" at the end.
	SeedMissing(ctx context.Context, tx *store.Tx, after string, most int32) (string, error)
}

// Deps are what the room needs. All are required.
type Deps struct {
	Store         *store.Store
	Events        Events
	Registrations Registrations
	Env           service.Env
	Log           *slog.Logger
	Metrics       *obs.Metrics
}

// Service is the room. Run is a leader duty.
type Service struct {
	d     Deps
	log   *slog.Logger
	mu    sync.Mutex
	known parsed
}

// New returns the room.
func New(d Deps) *Service {
	return &Service{d: d, log: d.Log.With("component", "schedule"), known: parsed{}}
}

const (
	tickEvery = 30 * time.Second       // at the latest (CRN-1)
	soonest   = 200 * time.Millisecond // between two looks, however much is due
	batch     = 100                    // instants of one transaction
)

// Run fires what is due while term lasts: at once, when the next schedule is due, when registrations have changed, and every
// 30 seconds.
func (s *Service) Run(ctx context.Context, term int64) error {
	if err := s.review(ctx, term); err != nil {
		return err
	}
	sub := s.d.Store.Subscribe(store.TopicRegistry, "")
	defer sub.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-sub.C():
		}
		wait, err := s.Tick(ctx, term)
		switch {
		case errors.Is(err, store.ErrNotLeader):
			return err
		case err != nil && ctx.Err() == nil:
			s.log.Error("fire schedules", "err", err)
			wait = time.Second
		}
		timer.Reset(wait)
	}
}

// Tick fires everything that is due and returns how long to wait for the next look.
func (s *Service) Tick(ctx context.Context, term int64) (time.Duration, error) {
	began := s.d.Env.Now()
	defer func() { s.d.Metrics.ScheduleTick.Observe(s.d.Env.Now().Sub(began).Seconds()) }()
	for range maxBatches {
		wait, err := s.untilNext(ctx)
		if err != nil || wait > 0 {
			return max(wait, soonest), err
		}
		if err := s.fireDue(ctx, term); err != nil {
			return 0, err
		}
	}
	return soonest, nil
}

// maxBatches bounds one tick, so that a term that has ended is noticed.
const maxBatches = 200

// untilNext is how long until a schedule is due, at most tickEvery; 0 when one is. It is one look at an index, whatever the number of
// schedules.
func (s *Service) untilNext(ctx context.Context) (time.Duration, error) {
	wait := tickEvery
	err := s.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		next, err := tx.NextScheduleAt(ctx)
		if err == nil && len(next) > 0 {
			wait = min(wait, time.Duration(max(next[0]-tx.Now(), 0))*time.Millisecond)
		}
		return err
	})
	return wait, err
}
