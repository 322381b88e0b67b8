package ingress

import (
	"context"
	"time"
)

// places are the deliveries that each organisation has in reception at once: as many as may go on do, the others wait for a
// moment, first come first served, and one organisation alone cannot take every place of the server (ING-19, XC-7). It is guarded
// by the admission's mutex.
type places struct {
	byOrg map[string]*orgPlaces
}

// orgPlaces goes away with its last delivery.
type orgPlaces struct {
	all     int // that go on or wait
	going   int
	waiting []chan struct{} // one is closed when it may go on
}

// longestWait is the ceiling of the wait for a place (ING-19).
const longestWait = 3 * time.Second

// Reasons for shedding, beside those of Handler.
const (
	orgFull   = "queue_full"
	orgWaited = "max_sojourn"
)

// place takes one of an organisation's places, most of which may be taken; leave gives it back. The answer is why it must not
// come in, "" when it may. most is asked again whenever a place is given back, so that it may change meanwhile.
func (a *admission) place(ctx context.Context, org string, most func() int) (leave func(), refused string) {
	a.mu.Lock()
	p := a.places.byOrg[org]
	if p == nil {
		p = &orgPlaces{}
		a.places.byOrg[org] = p
	}
	if int64(p.all) >= mayWait(int64(a.limits.MaxInFlight), a.orgs) {
		a.mu.Unlock()
		return nil, orgFull
	}
	p.all++
	leave = func() { a.leavePlace(org, p, most) }
	if p.going < most() && len(p.waiting) == 0 {
		p.going++
		a.mu.Unlock()
		return leave, ""
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	a.mu.Unlock()
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	select {
	case <-turn:
		return leave, ""
	case <-timer.C:
	case <-ctx.Done():
	}
	if a.giveUp(org, p, turn) {
		return nil, orgWaited
	}
	return leave, "" // its turn came at the same moment
}

// giveUp takes who waits out of the row; false says that it has its place.
func (a *admission) giveUp(org string, p *orgPlaces, turn chan struct{}) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, t := range p.waiting {
		if t == turn {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			a.closePlace(org, p)
			return true
		}
	}
	return false
}

func (a *admission) leavePlace(org string, p *orgPlaces, most func() int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.going--
	for n := most(); p.going < n && len(p.waiting) > 0; p.going++ {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
	a.closePlace(org, p)
}

func (a *admission) closePlace(org string, p *orgPlaces) {
	if p.all--; p.all == 0 {
		delete(a.places.byOrg, org)
	}
}
