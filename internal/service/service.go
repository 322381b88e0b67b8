// Package service holds what every moving part shares: its environment (clock, ids), the coalescing wake-up, the
// level-triggered loop, and giving memory back. It imports no other kici package.
package service

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Env is where a service takes time and identity from, so that simulation can supply both (D25).
type Env struct {
	Now   func() time.Time
	NewID func() string
	Rand  func(n int64) int64 // of [0, n), for jitter; nil is the global source
}

// Jitter is a time of [0, most), most being positive, for pauses that should not fall together.
func (e Env) Jitter(most time.Duration) time.Duration { return Jitter(e.Rand, most) }

// Jitter draws a time of [0, most) from random, or from the global source when that is nil.
func Jitter(random func(n int64) int64, most time.Duration) time.Duration {
	if random == nil {
		return rand.N(most) //nolint:gosec // jitter
	}
	return time.Duration(random(int64(most)))
}

// NowMs is Now in UTC milliseconds, as stored (D1).
func (e Env) NowMs() int64 { return e.Now().UnixMilli() }

// Wake makes a loop run sooner. Signals coalesce: many before the loop looks are one. Losing one loses no work.
type Wake struct{ c chan struct{} }

// NewWake returns a Wake without a pending signal.
func NewWake() *Wake { return &Wake{c: make(chan struct{}, 1)} }

// Signal asks the loop to run. It never blocks.
func (w *Wake) Signal() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C delivers at most one pending signal.
func (w *Wake) C() <-chan struct{} { return w.c }

// Loop runs Tick at once, then on every signal and at least every Interval. A tick never overlaps itself. A failed tick
// is logged and tried again after Backoff.
type Loop struct {
	Name     string
	Interval time.Duration
	Backoff  time.Duration // after an error; 0 is one second
	Wake     *Wake
	Log      *slog.Logger
	Tick     func(context.Context) error
}

// Run blocks until ctx ends and returns nil then.
func (l Loop) Run(ctx context.Context) error {
	backoff := l.Backoff
	if backoff == 0 {
		backoff = time.Second
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var wake <-chan struct{}
		if l.Wake != nil {
			wake = l.Wake.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-wake:
		}
		next := l.Interval
		if err := l.Tick(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error("loop tick", "loop", l.Name, "err", err)
			next = min(backoff, l.Interval)
		}
		timer.Reset(next)
	}
}

// Pause waits for d, or until ctx ends: then its error is ctx's.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
