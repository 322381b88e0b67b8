package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
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

	stoodBack time.Time // when it last left the lease to others because it drains; the campaign's own
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
	var got attempt
	err = l.st.Write(ctx, func(tx *store.Tx) error {
		got, err = l.attempt(ctx, tx, mine, first)
		return err
	})
	if err != nil {
		return 0, err
	}
	if got.back && l.mayStandBack(began) && began.Sub(l.stoodBack) > l.life {
		l.stoodBack = began
		l.log.Info("leadership is left to others: this instance drains")
	}
	l.hold(got.term, began.Add(l.life-l.margin))
	return got.wait, nil
}

// mayStandBack tells whether this instance may leave the lease to others at the instant now. When it has done so and nobody took
// it for a whole life, it leads on, and tries again only after what looked alive then must have been heard.
func (l *Leader) mayStandBack(now time.Time) bool {
	since := now.Sub(l.stoodBack)
	return l.st.Shared() && (since < l.life || since > ci.InstanceTimeout)
}

// attempt is what became of one try.
type attempt struct {
	term int64         // that this instance holds now, 0 for none
	wait time.Duration // until the next try
	back bool          // it drains and leaves the lease to others
}

// attempt is the one transaction of leadership.
func (l *Leader) attempt(ctx context.Context, tx *store.Tx, mine int64, first bool) (attempt, error) {
	lease, err := l.lease(ctx, tx)
	if err != nil {
		return attempt{}, err
	}
	now := tx.Now() // after the row is locked
	expires := now + l.life.Milliseconds()
	holds := mine != 0 && lease.Holder == l.id && lease.Term == mine
	if !holds && !l.mayTake(lease, now, mine, first) {
		left := time.Duration(lease.ExpiresAt-now) * time.Millisecond
		return attempt{wait: min(max(left, 10*time.Millisecond), l.renew)}, nil
	}
	if l.mayStandBack(l.env.Now()) {
		back, err := l.standBack(ctx, tx, now, mine)
		if err != nil || back {
			return attempt{wait: l.renew, back: true}, err
		}
	}
	if holds {
		n, err := tx.RenewLeaderLease(ctx, expires, l.id, mine)
		if err == nil && n == 0 {
			err = fmt.Errorf("lease of term %d vanished while it was locked", mine)
		}
		return attempt{term: mine, wait: l.renew}, err
	}
	term, err := tx.TakeLeaderTerm(ctx)
	if err != nil {
		return attempt{}, err
	}
	tx.Notify(store.TopicLeader, "")
	return attempt{term: term, wait: l.renew}, tx.TakeLeaderLease(ctx, l.id, term, expires)
}

// standBack gives the lease of the term mine free, 0 for none, when this one drains and another is there that takes it.
func (l *Leader) standBack(ctx context.Context, tx *store.Tx, now, mine int64) (bool, error) {
	rows, err := tx.ClusterInstances(ctx)
	if err != nil || !replaceable(rows, l.id, now) {
		return false, err
	}
	n, err := tx.ReleaseLeaderLease(ctx, l.id, mine)
	if n > 0 {
		tx.Notify(store.TopicLeader, "")
	}
	return true, err
}

// replaceable tells whether an instance drains while another one, heard of a moment ago, does not.
func replaceable(rows []db.ClusterInstance, self string, now int64) bool {
	drains, others := false, false
	for _, r := range rows {
		if r.InstanceID == self {
			drains = r.Draining
		} else {
			others = others || !r.Draining && r.ReadyAt > 0 && now-r.HeartbeatAt < 2*HeartbeatInterval.Milliseconds()
		}
	}
	return drains && others
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
