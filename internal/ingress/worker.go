package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// pollInterval is how late a delivery is noticed whose wake-up was lost, or whose retry is due (ING-17).
const pollInterval = 2 * time.Second

// Run processes deliveries until ctx ends. What it was doing then is given back and goes on elsewhere, or at the next start.
func (s *Service) Run(ctx context.Context) error {
	if err := s.release(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("take back deliveries: %w", err)
	}
	wake := service.NewWake()
	g, ctx := errgroup.WithContext(ctx)
	for range s.d.Settings.Workers {
		g.Go(func() error { s.work(ctx, wake); return nil })
	}
	taking := service.Loop{Name: "deliveries", Interval: pollInterval, Wake: wake, Log: s.log, Tick: s.claim}
	keeping := service.Loop{Name: "delivery claims", Interval: s.d.Settings.Lease / 3, Log: s.log, Tick: s.renew}
	g.Go(func() error { return taking.Run(ctx) })
	g.Go(func() error { return keeping.Run(ctx) })
	g.Go(func() error { return s.forward(ctx, wake) })
	err := g.Wait()
	s.queue.shut()
	s.giveBack(context.WithoutCancel(ctx))
	return err
}

// forward turns notifications into wake-ups.
func (s *Service) forward(ctx context.Context, wake *service.Wake) error {
	sub := s.d.Store.Subscribe(store.TopicDeliveries, "")
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C():
			wake.Signal()
		}
	}
}

// release frees what an earlier process of this instance had claimed: it is dead, its data directory was locked by it.
func (s *Service) release(ctx context.Context) error {
	return s.d.Store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.ReleaseDeliveryClaims(ctx, s.d.InstanceID)
		return err
	})
}

// giveBack empties the queue at the end of Run; the attempts of what no worker has looked at do not count.
func (s *Service) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		select {
		case d := <-s.queue.ready:
			s.abandon(ctx, d)
			s.dequeue(d)
		default:
			return
		}
	}
}

// claim takes as many waiting deliveries as there are free slots. Once nothing waits in the store, new deliveries may be
// claimed as they are accepted.
func (s *Service) claim(ctx context.Context) error {
	for ctx.Err() == nil {
		waiting, err := s.d.Store.Read().ClaimableDelivery(ctx, s.d.Env.NowMs())
		if err != nil {
			return err
		}
		if len(waiting) == 0 {
			s.queue.open()
			return nil
		}
		n := s.queue.reserveMany(cap(s.queue.slots))
		if n == 0 {
			return nil // a worker wakes us when it has finished one
		}
		if err := s.claimSome(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) claimSome(ctx context.Context, n int) error {
	var rows []db.Delivery
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		var err error
		rows, err = s.take(ctx, tx, n)
		return err
	})
	s.turn++
	if err != nil {
		rows = nil
	}
	for range n - len(rows) {
		s.queue.cancel()
	}
	slices.SortFunc(rows, func(a, b db.Delivery) int { return cmp.Compare(a.ID, b.ID) })
	for _, d := range rows {
		s.enqueue(d)
	}
	if err != nil {
		return fmt.Errorf("claim deliveries: %w", err)
	}
	return nil
}

// take claims up to n deliveries: first each waiting organisation's share, then whatever came first.
func (s *Service) take(ctx context.Context, tx *store.Tx, n int) ([]db.Delivery, error) {
	var rows []db.Delivery
	claim := func(org string, n int) error {
		more, err := tx.ClaimDeliveries(ctx, db.ClaimDeliveriesParams{
			ClaimedBy: s.d.InstanceID, ClaimedUntil: tx.Now() + s.limits().Claim.Milliseconds(), Now: tx.Now(), OnlyOrg: org, MaxRows: int32(n),
		})
		rows = append(rows, more...)
		return err
	}
	for _, p := range shares(s.admission.waiting(), n, s.turn) {
		if err := claim(p.org, p.n); err != nil {
			return nil, err
		}
	}
	if len(rows) == n {
		return rows, nil
	}
	return rows, claim("", n-len(rows))
}

// enqueue hands a claimed delivery, which has a slot, to the workers; its claim is renewed from here on. dequeue is the end of both.
func (s *Service) enqueue(d db.Delivery) {
	s.held.add(d, s.d.Env.Now())
	s.queue.push(d)
}

func (s *Service) dequeue(d db.Delivery) {
	s.held.remove(d)
	s.queue.cancel()
}

// work processes deliveries one by one.
func (s *Service) work(ctx context.Context, wake *service.Wake) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.queue.ready:
			s.handle(ctx, d)
			s.dequeue(d)
			if len(s.queue.gate) == 0 {
				wake.Signal()
			}
		}
	}
}

// handle processes one claimed delivery and writes down how that ended.
func (s *Service) handle(ctx context.Context, d db.Delivery) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.held.start(d, cancel)
	err := context.Cause(work)
	if err == nil {
		err = s.process(work, &d)
	}
	switch {
	case err == nil:
	case errors.Is(err, errLostClaim) || errors.Is(context.Cause(work), errLostClaim):
		s.log.Warn("delivery was taken by another worker", "delivery_id", d.ID)
	case ctx.Err() != nil:
		s.abandon(context.WithoutCancel(ctx), d)
	default:
		s.retry(ctx, d, err)
	}
}

// process runs the pipeline and contains its panics, so that one delivery cannot stop the others.
func (s *Service) process(ctx context.Context, d *db.Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("pipeline panic", "delivery_id", d.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	if d.Attempts > s.d.Settings.MaxAttempts {
		return fmt.Errorf("the server stopped each time it processed this delivery")
	}
	body, err := s.codec.unpack(d.Body, d.BodyEncoding)
	if err != nil {
		return s.finish(ctx, *d, outcome{status: statusFailed, err: err.Error()})
	}
	d.Body, d.BodyEncoding = body, ""
	for range maxRedecide {
		out, err := s.decide(ctx, d)
		if err != nil {
			return err
		}
		if err = s.finish(ctx, *d, out); !errors.Is(err, errStale) {
			return err
		}
		if service.Pause(ctx, stalePause) != nil { // until what it saw is committed
			return context.Cause(ctx)
		}
	}
	return errStale
}

// maxRedecide is how often a delivery is decided anew at once because somebody else registered workflows meanwhile.
const (
	maxRedecide = 3
	stalePause  = 20 * time.Millisecond
)

// retry puts a delivery back for later, or gives it up (ING-18).
func (s *Service) retry(ctx context.Context, d db.Delivery, cause error) {
	age := time.Duration(s.d.Env.NowMs()-d.ReceivedAt) * time.Millisecond
	at := source.RetryTime(cause)
	if !at.IsZero() && age < maxPatience {
		s.wait(ctx, d, cause, at)
		return
	}
	cause = s.withCure(ctx, d, cause)
	if d.Attempts >= s.d.Settings.MaxAttempts || d.Attempts >= 3 && age >= s.d.Settings.MaxAge {
		s.log.Error("delivery given up", "delivery_id", d.ID, "attempts", d.Attempts, "age", age.String(), "err", cause,
			"remedy", "mend the cause, then run: kici delivery replay "+d.ID)
		out := outcome{status: statusFailed, err: fmt.Sprintf("given up after %d attempts: %s", d.Attempts, sentence(cause))}
		if err := s.finish(ctx, d, out); err != nil {
			s.log.Error("give delivery up", "delivery_id", d.ID, "err", err)
		}
		return
	}
	delay := s.backoff(d.Attempts)
	s.log.Warn("delivery will be tried again", "delivery_id", d.ID, "attempt", d.Attempts, "delay", delay.String(), "err", cause)
	s.putBack(ctx, d, db.RetryDeliveryParams{Error: sentence(cause)}, delay)
}

// maxPatience is how old a delivery may become while its forge says each time when to come again.
const maxPatience = 24 * time.Hour

// wait puts a delivery back until its forge wants to be asked again (a rate limit, maintenance). That is no failed attempt.
func (s *Service) wait(ctx context.Context, d db.Delivery, cause error, at time.Time) {
	delay := min(max(at.Sub(s.d.Env.Now()), time.Second), 2*time.Hour)
	s.log.Warn("delivery waits for its forge", "delivery_id", d.ID, "delay", delay.String(), "err", cause)
	s.putBack(ctx, d, db.RetryDeliveryParams{Error: sentence(cause), Uncounted: 1}, delay)
}

// withCure adds what mends a refused credential.
func (s *Service) withCure(ctx context.Context, d db.Delivery, cause error) error {
	if !errors.Is(cause, source.ErrDenied) {
		return cause
	}
	e, err := s.byRoutingKey(ctx, d.OrgID, d.RoutingKey)
	if err != nil {
		return cause
	}
	return s.cured(e.row, cause)
}

// sentence is what people see of an error that is not theirs: without the stack of a panic, which the log has.
func sentence(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return short(line, 2000)
}

// abandon puts a delivery back that was not tried to the end because the process stops.
func (s *Service) abandon(ctx context.Context, d db.Delivery) {
	s.putBack(ctx, d, db.RetryDeliveryParams{Error: d.Error, Uncounted: 1}, 0)
}

func (s *Service) putBack(ctx context.Context, d db.Delivery, p db.RetryDeliveryParams, delay time.Duration) {
	p.ID, p.ClaimedBy, p.Attempt = d.ID, s.d.InstanceID, d.Attempts
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		p.NextAttemptAt = tx.Now() + delay.Milliseconds()
		tx.Notify(store.TopicDeliveries, "")
		_, err := tx.RetryDelivery(ctx, p)
		return err
	})
	if err != nil { // its claim expires and it is taken up again
		s.log.Error("put delivery back", "delivery_id", d.ID, "err", err)
	}
}

// backoff is 1 s, 2 s, 4 s … 2 min, with a tenth of jitter.
func (s *Service) backoff(attempt int64) time.Duration {
	d := min(time.Second<<min(max(attempt-1, 0), 10), 2*time.Minute)
	return d + s.d.Env.Jitter(d/10+1)
}

// Replay processes a failed delivery again (ING-18). ErrNotFound when there is no such failed delivery.
func (s *Service) Replay(ctx context.Context, orgID, id string) error {
	return s.d.Store.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.ReplayDelivery(ctx, tx.Now(), orgID, id)
		if err == nil && n == 0 {
			return fmt.Errorf("no failed delivery %s: %w", id, ErrNotFound)
		}
		tx.Notify(store.TopicDeliveries, "")
		return err
	})
}
