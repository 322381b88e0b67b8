package ingress

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// claims are the deliveries that this process has claimed: waiting for a worker, or with one.
type claims struct {
	mu   sync.Mutex
	byID map[string]*claim
}

type claim struct {
	id      string
	attempt int64
	since   time.Time // taken or renewed
	lost    bool
	cancel  context.CancelCauseFunc // of the work; nil while it waits
}

func (c *claims) add(d db.Delivery, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[d.ID] = &claim{id: d.ID, attempt: d.Attempts, since: now}
}

// start ties the work on a delivery to its claim.
func (c *claims) start(d db.Delivery, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byID[d.ID]
	if cl == nil || cl.attempt != d.Attempts || cl.lost {
		cancel(errLostClaim)
		return
	}
	cl.cancel = cancel
}

func (c *claims) remove(d db.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byID[d.ID]; cl != nil && cl.attempt == d.Attempts {
		delete(c.byID, d.ID)
	}
}

// old returns copies of what was taken or renewed before limit.
func (c *claims) old(limit time.Time) []claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []claim
	for _, cl := range c.byID {
		if !cl.since.After(limit) && !cl.lost {
			found = append(found, *cl)
		}
	}
	return found
}

func (c *claims) renewed(was claim, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byID[was.id]; cl != nil && cl.attempt == was.attempt {
		cl.since = now
	}
}

// lose stops the work on a delivery that somebody else has, or the next one to start it.
func (c *claims) lose(was claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byID[was.id]
	if cl == nil || cl.attempt != was.attempt {
		return
	}
	cl.lost = true
	if cl.cancel != nil {
		cl.cancel(errLostClaim)
	}
}

// renew extends the claims of slow deliveries (XC-9) and stops work whose claim is lost.
func (s *Service) renew(ctx context.Context) error {
	now := s.d.Env.Now()
	slow := s.held.old(now.Add(-s.d.Settings.Lease / 4))
	if len(slow) == 0 {
		return nil
	}
	kept := map[string]bool{}
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		for _, cl := range slow {
			n, err := tx.RenewDeliveryClaim(ctx, db.RenewDeliveryClaimParams{
				ClaimedUntil: tx.Now() + s.limits().Claim.Milliseconds(), ID: cl.id, ClaimedBy: s.d.InstanceID, Attempt: cl.attempt,
			})
			if err != nil {
				return err
			}
			kept[cl.id] = n == 1
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("renew claims: %w", err)
	}
	for _, cl := range slow {
		if kept[cl.id] {
			s.held.renewed(cl, now)
		} else {
			s.held.lose(cl)
		}
	}
	return nil
}
