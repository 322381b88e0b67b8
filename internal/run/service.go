package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Service is the room. It is safe for concurrent use and keeps no state that matters.
type Service struct {
	st       *store.Store
	settings Settings
	env      service.Env
	log      *slog.Logger

	depth    depthGauge
	observer Observer
	limitsOf func(orgID string) Limits

	listeners Listeners
}

// Observer is told what metrics count. Its functions are called inside transactions, so they must not block, and a
// transaction that is repeated counts twice. A nil one is not called.
type Observer struct {
	RunEnded func(status ci.RunStatus, took time.Duration)
	Refused  func(event string) // a write that came too late and changed nothing (STM-5): the status, or start, step
}

// Observe sets the observer. Call it before the service is used.
func (s *Service) Observe(o Observer) { s.observer = o }

// Listeners knows who waits for lifecycle events, so that those nobody waits for need not be routed. Its functions are called inside
// transactions, so they must answer at once, and a transaction that is repeated calls them twice.
type Listeners struct {
	UnheardAt func(orgID, event string) int64 // the registry's version at which nobody waits for it, -1 when somebody does or nobody knows
	Ended     func(event string)              // one was written for nobody
}

// Listen sets who knows the listeners; without it every event is routed. Call it before the service is used.
func (s *Service) Listen(l Listeners) { s.listeners = l }

func (l Listeners) unheardAt(orgID, event string) int64 {
	if l.UnheardAt == nil {
		return -1
	}
	return l.UnheardAt(orgID, event)
}

func (l Listeners) ended(event string) {
	if l.Ended != nil {
		l.Ended(event)
	}
}

// Limits are what an organisation may be given while the server runs; the rest of Settings is fixed at its start.
type Limits struct {
	QueueTimeout    time.Duration // Settings.QueueTimeout
	QueueMaxDepth   int64         // Settings.QueueMaxDepth
	ConcurrencyWait time.Duration // Settings.ConcurrencyWait
	EventTTL        time.Duration // Settings.EventTTL
	Sandbox         plan.Sandbox
}

// Limit sets where limits come from; without it they are those of Settings. f must answer at once. Call it before the service is used.
func (s *Service) Limit(f func(orgID string) Limits) { s.limitsOf = f }

func (s *Service) limits(org string) Limits {
	if s.limitsOf != nil {
		return s.limitsOf(org)
	}
	return s.settings.Limits()
}

// NewService returns the room over a store.
func NewService(st *store.Store, settings Settings, env service.Env, log *slog.Logger) *Service {
	return &Service{st: st, settings: settings, env: env, log: log.With("component", "run")}
}

// Errors that callers tell apart.
var (
	ErrNotFound      = errors.New("no such run")
	ErrTerminal      = errors.New("the run has already ended")
	ErrNotTerminal   = errors.New("the run has not ended yet")
	ErrNotRerunnable = errors.New("the run cannot be run again")
	ErrScope         = errors.New("the run belongs to another source than this token's")
)

// refuse notes a write that came too late and changes nothing.
func (s *Service) refuse(job db.LockJobRow, event, why string) {
	if s.observer.Refused != nil {
		s.observer.Refused(event)
	}
	s.log.Info("late write refused", "job_id", job.ID, "run_id", job.RunID, "status", job.Status, "event", event, "reason", why)
}

// depthGauge knows roughly how many jobs wait, so that enqueueing need not count them each time. It bounds what an outsider
// can grow; nothing else depends on it.
type depthGauge struct {
	mu    sync.Mutex
	at    int64 // when it was counted
	count int64
}

const depthFreshMs = 1000

// full reports whether the queue is at its bound, counting it again at most once a second.
func (g *depthGauge) full(ctx context.Context, tx *store.Tx, limit int64) (bool, error) {
	if limit <= 0 {
		return false, nil
	}
	now := tx.Now()
	g.mu.Lock()
	fresh := now-g.at < depthFreshMs && now >= g.at
	if fresh {
		g.count++
	}
	count := g.count
	g.mu.Unlock()
	if fresh {
		return count > limit, nil
	}
	n, err := tx.QueueDepth(ctx, limit+1)
	if err != nil {
		return false, fmt.Errorf("count queue: %w", err)
	}
	g.mu.Lock()
	g.at, g.count = now, n+1
	g.mu.Unlock()
	return n >= limit, nil
}

func nullInt(v int64) sql.NullInt64 { return sql.NullInt64{Int64: v, Valid: v != 0} }

func nullText(v string) sql.NullString { return sql.NullString{String: v, Valid: v != ""} }
