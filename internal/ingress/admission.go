package ingress

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/kici-go/kici/internal/store/db"
)

// admission decides who may come in at all (ING-14, ING-19). Everything in it is an advisory view: what is accepted is a row.
type admission struct {
	limits   Settings
	inFlight chan struct{}
	bodies   *semaphore.Weighted

	mu       sync.Mutex
	rates    map[string]*limiter // by source id
	open     int64               // rows when last counted, and accepted since
	byOrg    map[string]int64    // likewise, by organisation
	orgs     int64               // organisations that there are
	counted  time.Time
	counting bool
	shed     map[string]*shedLog // by reason
	places   places
}

// shedLog keeps a flood from filling the log.
type shedLog struct {
	logged time.Time
	since  int
}

// shedEvery is how often a reason for shedding is logged.
const shedEvery = 10 * time.Second

// shedding counts one refusal; n > 0 asks for a line about the n since the last one.
func (a *admission) shedding(reason string, now time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.shed[reason]
	if l == nil {
		l = &shedLog{}
		a.shed[reason] = l
	}
	l.since++
	if !l.logged.IsZero() && now.Sub(l.logged) < shedEvery {
		return 0
	}
	n, l.since, l.logged = l.since, 0, now
	return n
}

type limiter struct {
	rpm int
	*rate.Limiter
}

// recount is how old the number of open deliveries may be.
const recount = 100 * time.Millisecond

func newAdmission(s Settings) *admission {
	return &admission{
		limits: s, inFlight: make(chan struct{}, s.MaxInFlight), bodies: semaphore.NewWeighted(s.MaxBodiesBytes),
		rates: map[string]*limiter{}, shed: map[string]*shedLog{}, places: places{byOrg: map[string]*orgPlaces{}},
	}
}

// enter takes a place among the requests in flight; leave gives it back.
func (a *admission) enter() bool {
	select {
	case a.inFlight <- struct{}{}:
		return true
	default:
		return false
	}
}

func (a *admission) leave() { <-a.inFlight }

// allow applies a source's rate limit; wait is after how long to come again.
func (a *admission) allow(sourceID string, rpm int, now time.Time) (ok bool, wait time.Duration) {
	if rpm <= 0 {
		return true, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.rates[sourceID]
	if l == nil || l.rpm != rpm {
		l = &limiter{rpm: rpm, Limiter: rate.NewLimiter(rate.Limit(float64(rpm)/60), rpm)}
		a.rates[sourceID] = l
	}
	if l.AllowN(now, 1) {
		return true, 0
	}
	r := l.ReserveN(now, 1)
	wait = r.DelayFrom(now)
	r.CancelAt(now)
	return false, wait
}

// full reports whether as many deliveries wait as may, altogether or of this organisation, by a count that one caller renews every
// recount.
func (a *admission) full(ctx context.Context, q *db.Queries, org string, now time.Time) (bool, error) {
	a.mu.Lock()
	stale := (now.Sub(a.counted) >= recount || now.Before(a.counted)) && !a.counting
	a.counting = a.counting || stale
	a.mu.Unlock()
	if stale {
		rows, orgs, err := countOpen(ctx, q, a.limits.MaxOpen)
		a.mu.Lock()
		a.counting = false
		if err == nil {
			a.open, a.byOrg, a.orgs, a.counted = 0, map[string]int64{}, orgs, now
			for _, r := range rows {
				a.open += r.Waiting
				a.byOrg[r.OrgID] = r.Waiting
			}
		}
		a.mu.Unlock()
		if err != nil {
			return false, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open >= a.limits.MaxOpen || a.byOrg[org] >= mayWait(a.limits.MaxOpen, a.orgs), nil
}

func countOpen(ctx context.Context, q *db.Queries, limit int64) (rows []db.CountOpenDeliveriesByOrgRow, orgs int64, err error) {
	if rows, err = q.CountOpenDeliveriesByOrg(ctx, int32(min(limit+1, 1<<31-1))); err != nil {
		return nil, 0, err
	}
	orgs, err = q.CountOrgs(ctx)
	return rows, orgs, err
}

// accepted counts one more until the next count.
func (a *admission) accepted(org string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
	if a.byOrg != nil {
		a.byOrg[org]++
	}
}

// waiting are the organisations that have deliveries waiting, as last counted, in order.
func (a *admission) waiting() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.byOrg))
}
