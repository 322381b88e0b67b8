package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// LeaseLife is how long a lease lasts without renewal (CLU-4).
const LeaseLife = 15 * time.Second

const dutyRetry = time.Second

// Leader campaigns for leadership and holds it. The store judges who leads, by its own clock and by the term that every
// leader write carries; what this type believes only decides whether trying is worth while.
type Leader struct {
	st  *store.Store
	id  string
	env service.Env
	log *slog.Logger

	// The lease's life, how often it is renewed, and how much earlier than the store its holder believes it over.
	life, renew, margin time.Duration

	mu      sync.Mutex
	term    int64     // 0 while another leads
	until   time.Time // by the process clock; never later than the lease's end
	changed chan struct{}
	expiry  *time.Timer
	tried   bool // a first campaign has been made
}

// NewLeader returns a candidate that does not lead yet.
func NewLeader(st *store.Store, instanceID string, env service.Env, log *slog.Logger) *Leader {
	return &Leader{
		st: st, id: instanceID, env: env, changed: make(chan struct{}),
		log:  log.With("component", "leader", "instance_id", instanceID),
		life: LeaseLife, renew: LeaseLife / 3, margin: LeaseLife / 15,
	}
}

// Term returns the term to lead under and whether this instance leads now.
func (l *Leader) Term() (term int64, leading bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == 0 || !l.env.Now().Before(l.until) {
		return 0, false
	}
	return l.term, true
}

// Changed is closed at the next change of Term. Ask for it before Term, or the change may fall between.
func (l *Leader) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run campaigns until ctx ends, then releases the lease so that another need not wait for its end.
func (l *Leader) Run(ctx context.Context) error {
	sub := l.st.Subscribe(store.TopicLeader, "")
	defer sub.Close()
	defer l.release(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-sub.C():
		}
		wait, err := l.campaign(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.Error("renew leadership", "err", err)
			wait = l.margin
		}
		timer.Reset(wait)
	}
}

// While runs fn in every term that this instance leads, with a context that ends with the term, until ctx ends. An error
// of fn is logged and fn is run again after a second.
func (l *Leader) While(ctx context.Context, fn func(ctx context.Context, term int64) error) error {
	for ctx.Err() == nil {
		changed := l.Changed()
		term, leading := l.Term()
		if !leading {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		l.during(ctx, term, fn)
	}
	return nil
}

func (l *Leader) during(ctx context.Context, term int64, fn func(ctx context.Context, term int64) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changed := l.Changed()
			if now, leading := l.Term(); !leading || now != term {
				cancel(store.ErrNotLeader)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	if err := fn(ctx, term); err != nil && ctx.Err() == nil {
		l.log.Error("leader duty", "term", term, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(dutyRetry):
		}
	}
	cancel(nil)
	<-done
}

// campaign renews the lease, takes it when it is free, or says how long to wait for it.
func (l *Leader) campaign(ctx context.Context) (wait time.Duration, err error) {
	l.mu.Lock()
	mine, first := l.term, !l.tried
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.renew)
	defer cancel()
	began := l.env.Now()
	var term int64
	err = l.st.Write(ctx, func(tx *store.Tx) error {
		term, wait, err = l.attempt(ctx, tx, mine, first)
		return err
	})
	if err != nil {
		return 0, err
	}
	l.hold(term, began.Add(l.life-l.margin))
	return wait, nil
}

// attempt is the one transaction of leadership. It returns the term that this instance holds after it, or 0.
func (l *Leader) attempt(ctx context.Context, tx *store.Tx, mine int64, first bool) (int64, time.Duration, error) {
	lease, err := l.lease(ctx, tx)
	if err != nil {
		return 0, 0, err
	}
	now := tx.Now() // after the row is locked
	expires := now + l.life.Milliseconds()
	if mine != 0 && lease.Holder == l.id && lease.Term == mine {
		n, err := tx.RenewLeaderLease(ctx, expires, l.id, mine)
		if err == nil && n == 0 {
			err = fmt.Errorf("lease of term %d vanished while it was locked", mine)
		}
		return mine, l.renew, err
	}
	if !l.mayTake(lease, now, mine, first) {
		left := time.Duration(lease.ExpiresAt-now) * time.Millisecond
		return 0, min(max(left, 10*time.Millisecond), l.renew), nil
	}
	term, err := tx.TakeLeaderTerm(ctx)
	if err != nil {
		return 0, 0, err
	}
	tx.Notify(store.TopicLeader, "")
	return term, l.renew, tx.TakeLeaderLease(ctx, l.id, term, expires)
}

func (l *Leader) lease(ctx context.Context, tx *store.Tx) (db.LeaderLease, error) {
	if err := tx.SeedLeaderTerm(ctx); err != nil {
		return db.LeaderLease{}, err
	}
	if err := tx.SeedLeaderLease(ctx); err != nil {
		return db.LeaderLease{}, err
	}
	return tx.LeaderLeaseForUpdate(ctx)
}

// mayTake tells whether the lease is free for this instance. One that bears its own id was left by an earlier life of
// it, which the lock on the data directory has ended. A SQLite file has one server, so whoever starts on it leads.
func (l *Leader) mayTake(lease db.LeaderLease, now, mine int64, first bool) bool {
	if lease.Holder == "" || lease.ExpiresAt <= now {
		return true
	}
	return first && (lease.Holder == l.id || !l.st.Shared())
}

// hold records the outcome of a campaign and tells who waits when it differs from before.
func (l *Leader) hold(term int64, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = true
	was, lapsed := l.term, !l.env.Now().Before(l.until)
	l.term, l.until = term, until
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
	if term != 0 {
		l.expiry = time.AfterFunc(until.Sub(l.env.Now()), l.lapse)
	}
	if was == term && (term == 0 || !lapsed) {
		return
	}
	l.log.Info("leadership changed", "term", term, "leading", term != 0)
	l.signal()
}

// lapse wakes who relies on leadership when it could not be renewed in time.
func (l *Leader) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != 0 && !l.env.Now().Before(l.until) {
		l.log.Warn("leadership lapsed: it could not be renewed", "term", l.term)
		l.signal()
	}
}

func (l *Leader) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Leader) release(ctx context.Context) {
	l.mu.Lock()
	term := l.term
	l.mu.Unlock()
	l.hold(0, time.Time{})
	if term == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := l.st.Write(ctx, func(tx *store.Tx) error {
		tx.Notify(store.TopicLeader, "")
		_, err := tx.ReleaseLeaderLease(ctx, l.id, term)
		return err
	}); err != nil {
		l.log.Warn("release leadership", "err", err) // it ends by itself
	}
}
