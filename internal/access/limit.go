package access

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Failed logins allowed per address and minute (ADM-10), and how many addresses are remembered.
const (
	failuresAllowed = 20
	failureWindow   = time.Minute
	addressesKept   = 10_000
)

type addressKey struct{}

// WithAddress puts the caller's address (host, or host:port) into the context, for the limit on failed logins.
func WithAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, network(address))
}

// network is what the limit counts by: an IPv4 address, or the /64 that one IPv6 user has to himself.
func network(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.Prefix(64)
	return prefix.String()
}

func addressOf(ctx context.Context) string {
	a, _ := ctx.Value(addressKey{}).(string)
	return a
}

// failedLogin counts a refused token against the caller's address and returns what to answer.
func (s *Service) failedLogin(ctx context.Context, err error) error {
	address := addressOf(ctx)
	if address == "" || !errors.Is(err, ErrUnauthenticated) {
		return err
	}
	if s.limiter.failed(address, s.env.Now()) {
		return ErrRateLimited
	}
	return err
}

// throttled refuses, before looking at what was sent, an address that has failed too often.
func (s *Service) throttled(ctx context.Context) error {
	if address := addressOf(ctx); address != "" && s.limiter.over(address, s.env.Now()) {
		return ErrRateLimited
	}
	return nil
}

// limiter counts failures per address in windows of a minute.
type limiter struct {
	mu   sync.Mutex
	seen map[string]window
}

type window struct {
	start time.Time
	count int
}

// failed counts one failure and tells whether the address is over its limit.
func (l *limiter) failed(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.seen[address]
	if now.Sub(w.start) >= failureWindow {
		w = window{start: now}
	}
	w.count++
	if _, known := l.seen[address]; !known && len(l.seen) >= addressesKept {
		l.forget(now)
	}
	l.seen[address] = w
	return w.count > failuresAllowed
}

func (l *limiter) over(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.seen[address]
	return w.count >= failuresAllowed && now.Sub(w.start) < failureWindow
}

func (l *limiter) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for address, w := range l.seen {
		if now.Sub(w.start) >= failureWindow {
			delete(l.seen, address)
		}
	}
}

// forget makes room for a quarter of the addresses, so that it is seldom called: what is over first, else anybody, for
// memory is bounded whatever an outsider does.
func (l *limiter) forget(now time.Time) {
	for address, w := range l.seen {
		if now.Sub(w.start) >= failureWindow {
			delete(l.seen, address)
		}
	}
	for address := range l.seen {
		if len(l.seen) <= addressesKept*3/4 {
			return
		}
		delete(l.seen, address)
	}
}
