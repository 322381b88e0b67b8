package check

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Bounds of what goes on at once, and how often.
const (
	perSource = 2                     // runs of one source that are posted for at once; each posts one status at a time
	overall   = 8                     // runs of all sources
	debounce  = 2 * time.Second       // between two passes over a run that goes on
	scanPause = 25 * time.Millisecond // between two looks at the store
	scanEvery = 15 * time.Second      // a look without a wake-up
)

// Sources finds who shows statuses.
type Sources interface {
	// Reporter returns the source behind a routing key and what it shows (ShowJobs, ShowWorkflows, ShowOff). A nil one shows nothing any
	// more: it was deleted. A disabled source's runs go on, and so do their statuses.
	Reporter(ctx context.Context, orgID, routingKey string) (r source.Reporter, show string, err error)
}

// Deps is what the room needs.
type Deps struct {
	Store   *store.Store
	Sources Sources
	BaseURL func() string // of the dashboard, without a trailing slash
	Env     service.Env
	Log     *slog.Logger
	Metrics *obs.Metrics
}

// Service posts commit statuses. Several, on several coordinators, may run over one store.
type Service struct {
	d     Deps
	log   *slog.Logger
	gates gates
}

// New returns the room.
func New(d Deps) *Service {
	return &Service{d: d, log: d.Log.With("component", "check"), gates: gates{closed: map[string]gate{}}}
}

// loop is one Run: which runs are being posted for. Its goroutine owns it.
type loop struct {
	s      *Service
	runs   map[string]bool // by id
	source map[string]int  // by routing key
	done   chan db.ChecksDueRow
	wg     sync.WaitGroup
}

// Run posts until ctx ends. What is being posted then is recorded before it returns.
func (s *Service) Run(ctx context.Context) error {
	changes := s.d.Store.Subscribe(store.TopicChecks, "")
	defer changes.Close()
	sources := s.d.Store.Subscribe(store.TopicSources, "")
	defer sources.Close()
	l := &loop{s: s, runs: map[string]bool{}, source: map[string]int{}, done: make(chan db.ChecksDueRow, overall)}
	defer l.wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var scanned time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sources.C():
			s.hurry(ctx)
		case <-changes.C():
		case r := <-l.done:
			l.ended(r)
		case <-timer.C:
		}
		if pause := scanPause - time.Since(scanned); pause > 0 {
			timer.Reset(pause)
			continue
		}
		next, err := l.scan(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error("look for statuses to post", "err", err)
			next = time.Second
		}
		scanned = time.Now()
		timer.Reset(next)
	}
}

// hurry tries again at once what waits, because a source may have a new credential.
func (s *Service) hurry(ctx context.Context) {
	s.gates.reset()
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.HurryChecks(ctx)
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.log.Error("try statuses again after a change of sources", "err", err)
	}
}

// scan starts what is due and there is room for, and returns when to look again.
func (l *loop) scan(ctx context.Context) (time.Duration, error) {
	var now int64
	var rows []db.ChecksDueRow
	err := l.s.d.Store.Snapshot(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		rows, err = tx.ChecksDue(ctx, now)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		switch {
		case r.ChecksDueAt > now: // rows stand in this order, so nothing after it is due
			return min(time.Duration(r.ChecksDueAt-now)*time.Millisecond, scanEvery), nil
		case len(l.runs) == overall:
			return scanEvery, nil // the end of one wakes the loop
		case !l.runs[r.ID] && l.source[r.RoutingKey] < perSource:
			l.start(ctx, r)
		}
	}
	return scanEvery, nil
}

func (l *loop) start(ctx context.Context, r db.ChecksDueRow) {
	l.runs[r.ID] = true
	l.source[r.RoutingKey]++
	l.wg.Go(func() {
		if err := l.s.pass(ctx, r); err != nil && ctx.Err() == nil {
			l.s.log.Error("post statuses", "run_id", r.ID, "err", err)
			select { // the store is away, most likely; it stays due
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		l.done <- r
	})
}

func (l *loop) ended(r db.ChecksDueRow) {
	delete(l.runs, r.ID)
	if l.source[r.RoutingKey]--; l.source[r.RoutingKey] == 0 {
		delete(l.source, r.RoutingKey)
	}
}
