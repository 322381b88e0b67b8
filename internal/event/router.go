package event

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// How the router works.
const (
	leaseLife  = time.Minute            // then a lease is free again (EVT-11)
	leaseGuard = 15 * time.Second       // before its end nothing new is begun under it
	lookEvery  = 10 * time.Second       // a look without a notification
	quietPause = 40 * time.Millisecond  // between two looks that only found events that nobody waits for
	sweepRows  = 200                    // ended by one statement
	claimRows  = 48                     // leased by one statement
	routers    = 6                      // events routed at once
	giveUpTime = 3 * time.Second        // for returning leases at the end
	retryTick  = 500 * time.Millisecond // after a look that failed
)

// Run routes events until ctx ends. What is leased then is given back.
func (s *Service) Run(ctx context.Context) error {
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.ReleaseOwnLeases(ctx, s.d.InstanceID, s.d.Limits().MaxAttempts)
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.d.Metrics.Events.CatchUp.Inc() // they run out by themselves
		s.log.Error("take back leases", "err", err)
	}
	wake := service.NewWake()
	sub := s.d.Store.Subscribe(store.TopicEvents, "")
	defer sub.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-sub.C():
				wake.Signal()
			}
		}
	})
	loop := service.Loop{Name: "events", Interval: lookEvery, Backoff: retryTick, Wake: wake, Log: s.log, Tick: func(ctx context.Context) error {
		quiet, err := s.look(ctx)
		if err != nil {
			s.d.Metrics.Events.CatchUp.Inc()
			return err
		}
		if quiet { // a burst of ends of jobs is looked at together
			_ = service.Pause(ctx, quietPause)
		}
		return nil
	}}
	g.Go(func() error { return loop.Run(ctx) })
	return g.Wait()
}

// look routes everything that is due, oldest first, page by page (EVT-16). quiet tells that there was something, and nobody waits for
// any of it.
func (s *Service) look(ctx context.Context) (quiet bool, err error) {
	limits := s.d.Limits()
	for ctx.Err() == nil {
		kinds, err := s.d.Store.Read().OpenEventKinds(ctx, s.d.Env.NowMs(), limits.MaxAttempts, sweepRows)
		if err != nil {
			return false, fmt.Errorf("look for events: %w", err)
		}
		if len(kinds) == 0 {
			return quiet, s.releaseExpired(ctx, limits)
		}
		wanted, err := s.sweep(ctx, kinds)
		if err != nil {
			return false, err
		}
		if !wanted {
			quiet = true
			if total(kinds) < sweepRows {
				return quiet, s.releaseExpired(ctx, limits)
			}
			continue
		}
		quiet = false
		n, err := s.routeSome(ctx, limits)
		if err != nil || n == 0 { // somebody else was faster
			return false, err
		}
	}
	return false, nil
}

func total(kinds []db.OpenEventKindsRow) (n int64) {
	for _, k := range kinds {
		n += k.Waiting
	}
	return n
}

// errStale says that the registry changed while events were swept.
var errStale = errors.New("the registry has changed")

// sweep ends at once the fresh events of the kinds that no registration waits for: of the two events of every job nearly all are. It
// reports whether some of the kinds is wanted. The registry's version is read behind what was swept, in the same transaction: an event
// that was emitted after its registration is never swept by an older index.
func (s *Service) sweep(ctx context.Context, kinds []db.OpenEventKindsRow) (wanted bool, err error) {
	index, err := s.d.Index(ctx)
	if err != nil {
		return false, fmt.Errorf("read registrations: %w", err)
	}
	var unwanted []db.OpenEventKindsRow
	for _, k := range kinds {
		if Heard(index, k.OrgID, k.EventName) {
			wanted = true
		} else {
			unwanted = append(unwanted, k)
		}
	}
	if len(unwanted) == 0 {
		return wanted, nil
	}
	swept := make([]int64, len(unwanted))
	err = s.d.Store.Write(ctx, func(tx *store.Tx) error {
		for i, k := range unwanted {
			n, err := tx.SweepEvents(ctx, db.SweepEventsParams{ProcessedAt: nullInt(tx.Now()), OrgID: k.OrgID, EventName: k.EventName, MaxRows: sweepRows})
			if err != nil {
				return err
			}
			swept[i] = n
		}
		version, err := registryVersion(ctx, tx)
		if err == nil && version != index.Version() {
			return errStale
		}
		return err
	})
	if errors.Is(err, errStale) {
		return true, nil // the ordinary way, with the new index
	}
	if err != nil {
		return false, fmt.Errorf("sweep events: %w", err)
	}
	progress := int64(0)
	for i, k := range unwanted {
		progress += swept[i]
		s.ended(k.EventName, OutcomeNoRegistration, swept[i], 1)
	}
	return wanted || progress == 0, nil // what is left of them was tried before and is taken one by one
}

// Heard reports whether a registration of the organisation waits for events of this name.
func Heard(index Index, orgID, name string) bool {
	for _, kind := range triggerTypes(name) {
		for range index.Triggered(orgID, kind) {
			return true
		}
	}
	return false
}

// Unheard counts an event that was ended as it was written, because nobody waits for it.
func (s *Service) Unheard(name string) { s.ended(name, OutcomeNoRegistration, 1, 1) }

// ended counts events whose routing succeeded.
func (s *Service) ended(name, outcome string, n, attempts int64) {
	m := &s.d.Metrics.Events
	label := m.Label(name)
	m.Dispatched.WithLabelValues(label).Add(float64(n))
	for range n {
		m.Attempts.WithLabelValues(label, "processed").Observe(float64(attempts))
	}
	if Reserved(name) == scalerFamily && outcome != OutcomeMatched {
		m.Unmatched.WithLabelValues(label, outcome).Add(float64(n))
	}
}

// releaseExpired frees what a dead or hanging holder has leased, so that any node takes it over (EVT-11, XC-34).
func (s *Service) releaseExpired(ctx context.Context, limits Limits) error {
	var n int64
	waiting, err := s.d.Store.Read().ExpiredLeases(ctx, nullInt(s.d.Env.NowMs()-leaseLife.Milliseconds()))
	if err != nil || waiting == 0 {
		return err
	}
	err = s.d.Store.Write(ctx, func(tx *store.Tx) (err error) {
		n, err = tx.ReleaseExpiredLeases(ctx, nullInt(tx.Now()-leaseLife.Milliseconds()), limits.MaxAttempts)
		if n > 0 {
			tx.Notify(store.TopicEvents, "")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("release expired leases: %w", err)
	}
	if n > 0 {
		s.d.Metrics.Events.Expired.Add(float64(n))
		s.log.Warn("leases of events ran out; they are routed again", "events", n)
	}
	return nil
}

// routeSome leases a few due events and routes them side by side. It returns how many it leased.
func (s *Service) routeSome(ctx context.Context, limits Limits) (int, error) {
	var rows []db.KiciEvent
	var leased int64
	err := s.d.Store.Write(ctx, func(tx *store.Tx) (err error) {
		leased = tx.Now()
		rows, err = tx.ClaimEvents(ctx, db.ClaimEventsParams{Now: nullInt(leased), ClaimedBy: s.d.InstanceID, MaxAttempts: limits.MaxAttempts, MaxRows: claimRows})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("lease events: %w", err)
	}
	slices.SortFunc(rows, func(a, b db.KiciEvent) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	began := s.d.Env.Now()
	rest, err := s.finishIdle(ctx, rows)
	if err != nil {
		s.log.Warn("look at leased events together; they are routed one by one", "err", err)
	}
	g := errgroup.Group{}
	g.SetLimit(routers)
	for _, e := range rest {
		g.Go(func() error {
			left := leaseLife - leaseGuard - s.d.Env.Now().Sub(began)
			if ctx.Err() != nil || left <= 0 {
				s.giveBack(ctx, e)
				return nil
			}
			work, cancel := context.WithTimeout(ctx, left+leaseGuard/2)
			defer cancel()
			s.handle(work, ctx, e)
			return nil
		})
	}
	return len(rows), g.Wait()
}

// finishIdle decides about leased events together and ends in one transaction those that start nothing: where somebody waits for some
// ends of jobs, most are not those. It returns the others, and all of them with an error.
func (s *Service) finishIdle(ctx context.Context, rows []db.KiciEvent) (rest []db.KiciEvent, err error) {
	index, err := s.d.Index(ctx)
	if err != nil {
		return rows, err
	}
	idle := map[string]string{} // outcome by id
	err = s.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		for _, e := range rows {
			f, done, err := s.gatherIn(ctx, tx, index, e)
			if err != nil {
				return err
			}
			if v := decide(f); len(v.targets)+len(v.buffers)+len(v.unread)+len(done) == 0 {
				idle[e.ID] = v.outcome
			}
		}
		return nil
	})
	if err != nil || len(idle) == 0 {
		return rows, err
	}
	err = s.d.Store.Write(ctx, func(tx *store.Tx) error {
		for _, e := range rows {
			if outcome, ok := idle[e.ID]; ok {
				if err := s.endAttempt(ctx, tx, e, ending{outcome: outcome}, outcome, 0); err != nil && !errors.Is(err, errLost) {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return rows, err
	}
	for _, e := range rows {
		if outcome, ok := idle[e.ID]; ok {
			s.report(e, ending{outcome: outcome}, outcome, 0)
		} else {
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// giveBack returns a lease under which nothing was done.
func (s *Service) giveBack(ctx context.Context, e db.KiciEvent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
	defer cancel()
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.GiveBackEvent(ctx, e.ID, s.d.InstanceID, e.Attempts)
		return err
	})
	if err != nil {
		s.log.Warn("give an event back; its lease runs out by itself", "event_id", e.ID, "err", err)
	}
}
