package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// world runs one loop in virtual time and notes when it ticked, in milliseconds from its start.
type world struct {
	ticks   []int64
	begun   time.Time
	failFor time.Duration
	busy    time.Duration
}

func (w *world) loop(wake *Wake) Loop {
	w.begun = time.Now()
	return Loop{
		Name: "test", Interval: 10 * time.Second, Wake: wake, Log: slog.New(slog.DiscardHandler),
		Tick: func(context.Context) error {
			w.ticks = append(w.ticks, time.Since(w.begun).Milliseconds())
			time.Sleep(w.busy)
			if time.Since(w.begun) < w.failFor {
				return errors.New("not yet")
			}
			return nil
		},
	}
}

func run(t *testing.T, l Loop, during func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	during()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil at the end of its context", err)
	}
}

func want(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("ticks at %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("ticks at %v, want %v", got, want)
		}
	}
}

func TestLoopTicksAtOnceAndRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		run(t, w.loop(nil), func() { time.Sleep(25 * time.Second) })
		want(t, w.ticks, 0, 10_000, 20_000)
	})
}

func TestLoopWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		wake := NewWake()
		run(t, w.loop(wake), func() {
			time.Sleep(3 * time.Second)
			wake.Signal()
			time.Sleep(11 * time.Second)
		})
		want(t, w.ticks, 0, 3000, 13_000) // the interval counts from the last tick
	})
}

func TestSignalDuringATickIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world{busy: time.Second}
		wake := NewWake()
		run(t, w.loop(wake), func() {
			time.Sleep(500 * time.Millisecond)
			wake.Signal()
			time.Sleep(2 * time.Second)
		})
		want(t, w.ticks, 0, 1000) // after the first has ended, never beside it
	})
}

func TestLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world{failFor: 2500 * time.Millisecond}
		run(t, w.loop(nil), func() { time.Sleep(14500 * time.Millisecond) })
		want(t, w.ticks, 0, 1000, 2000, 3000, 13_000)
	})
}

func TestBackoffNeverExceedsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world{failFor: time.Hour}
		l := w.loop(nil)
		l.Interval, l.Backoff = time.Second, time.Minute
		run(t, l, func() { time.Sleep(2500 * time.Millisecond) })
		want(t, w.ticks, 0, 1000, 2000)
	})
}

func TestWakeNeverBlocksAndCoalesces(t *testing.T) {
	w := NewWake()
	for range 10 {
		w.Signal()
	}
	<-w.C()
	select {
	case <-w.C():
		t.Error("a second signal is pending")
	default:
	}
}

func TestEnvNowMs(t *testing.T) {
	e := Env{Now: func() time.Time { return time.UnixMilli(42).In(time.FixedZone("x", 3600)) }}
	if e.NowMs() != 42 {
		t.Errorf("NowMs = %d", e.NowMs())
	}
}
