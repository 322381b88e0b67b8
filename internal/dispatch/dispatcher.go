package dispatch

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// leader says in which terms this process may write. *cluster.Leader is one.
type leader interface {
	While(ctx context.Context, fn func(ctx context.Context, term int64) error) error
}

// lives is the part of run that this room drives. Each method reports whether it was the one to change anything.
type lives interface {
	EndJob(*store.Tx, JobEnd) (bool, error)
	// CancelOverdue cancels a run past its deadline.
	CancelOverdue(tx *store.Tx, runID, reason string) (bool, error)
	Requeue(tx *store.Tx, jobID string, attempt int, reason string, countAttempt bool) (bool, error)
	Lost(tx *store.Tx, jobID string, attempt int, reason string) (bool, error)
	DriveCancel(tx *store.Tx, runID string, giveUp bool) ([]string, error)
	Unsettled(ctx context.Context, after string, graceMs int64, limit int32) ([]string, error)
	Settle(tx *store.Tx, runID string) (bool, error)
	// GroupDuties lists what the leader has to do about concurrency groups; with sweep also what somebody left behind.
	GroupDuties(ctx context.Context, sweep bool) ([]func(*store.Tx) error, error)
}

// JobEnd ends a job that no agent ends.
type JobEnd struct {
	JobID            string
	Attempt          int // 0 = any
	Status           ci.JobStatus
	Error            string // a sentence for people
	InitFailure      string
	FailureClass     string // PIPE-21
	AssignmentReason string
	OnlyWaiting      bool // only while no agent has it (XC-85)
}

// Deps is what the room needs.
type Deps struct {
	Store      *store.Store
	Leader     leader
	Runs       lives
	InstanceID string // of this coordinator: recovery counts from when it became ready
	Settings   Settings
	Limits     func() Limits // what may change while the server runs; nil is what Settings say
	Env        service.Env
	Log        *slog.Logger
}

// Dispatcher is the room. While this process does not lead it does nothing.
type Dispatcher struct {
	Deps
	wake   *service.Wake
	groups *service.Wake
}

// New returns the room.
func New(d Deps) *Dispatcher {
	d.Log = d.Log.With("component", "dispatch")
	return &Dispatcher{Deps: d, wake: service.NewWake(), groups: service.NewWake()}
}

// Run works in every term that this process leads, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error { return d.Leader.While(ctx, d.lead) }

// lead runs the loops for one term.
func (d *Dispatcher) lead(ctx context.Context, term int64) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, topic := range []store.Topic{store.TopicQueue, store.TopicAgents, store.TopicScalers, store.TopicGroups} {
		sub := d.Store.Subscribe(topic, "")
		defer sub.Close()
		wake := d.wake
		if topic == store.TopicGroups {
			wake = d.groups
		}
		g.Go(func() error { return forward(ctx, sub, wake) })
	}
	p, w, k := d.placer(term), d.warden(term), d.keeper(term)
	for _, loop := range []service.Loop{
		{Name: "place", Interval: d.Settings.Interval, Wake: d.wake, Log: d.Log, Tick: p.tick},
		{Name: "duties", Interval: d.Settings.Interval, Log: d.Log, Tick: w.tick},
		{Name: "groups", Interval: d.Settings.Interval, Wake: d.groups, Log: d.Log, Tick: k.tick},
	} {
		g.Go(func() error { return loop.Run(ctx) })
	}
	return g.Wait()
}

func forward(ctx context.Context, sub *store.Subscription, wake *service.Wake) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C():
			wake.Signal()
		}
	}
}
