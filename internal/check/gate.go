package check

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/source"
)

// When a status that could not be posted is tried again, and for how long.
const (
	firstBackoff = 5 * time.Second
	maxBackoff   = 10 * time.Minute
	maxRetryAt   = 2 * time.Hour // a forge that asks for more is asked sooner
	maxAttempts  = 5             // refusals that only a person can mend
	giveUpAfter  = 24 * time.Hour
)

// reason is what a failed post means, in the words of the metric's label (obs.CheckReasons).
type reason string

const (
	reasonAway     reason = "unreachable"  // passes by itself; concerns the source
	reasonLimited  reason = "rate_limited" // passes at a known time; concerns the source
	reasonDenied   reason = "denied"       // the credential; concerns the source
	reasonNotFound reason = "not_found"    // the repository or the commit; concerns the run
	reasonRefused  reason = "refused"      // this status
	reasonGone     reason = "gone"         // there is no such source any more
)

var errGone = errors.New("the source was deleted, or shows no statuses")

func reasonOf(err error) reason {
	switch {
	case errors.Is(err, errGone):
		return reasonGone
	case !source.RetryTime(err).IsZero():
		return reasonLimited
	case errors.Is(err, source.ErrDenied):
		return reasonDenied
	case errors.Is(err, source.ErrNotFound):
		return reasonNotFound
	case errors.Is(err, source.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return reasonAway
	}
	return reasonRefused
}

// passes reports whether waiting alone can help.
func (r reason) passes() bool { return r == reasonAway || r == reasonLimited }

// ofSource reports whether every status of the source would fail the same way.
func (r reason) ofSource() bool { return r.passes() || r == reasonDenied }

// ofRun reports whether every status of the run would.
func (r reason) ofRun() bool { return r != reasonRefused }

// backoff doubles from firstBackoff to maxBackoff, less up to a quarter that depends on the key, so that what failed together is
// not tried together.
func backoff(failures int64, key string) time.Duration {
	wait := maxBackoff
	if failures = max(failures, 1); failures < 8 {
		wait = firstBackoff << (failures - 1)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key + strconv.FormatInt(failures, 10)))
	return wait - time.Duration(h.Sum32()%1000)*wait/4000
}

// gates remember which sources cannot be posted to for now. They save requests, and nothing else depends on them: after a restart the
// first post finds out again.
type gates struct {
	mu     sync.Mutex
	closed map[string]gate // by routing key
}

type gate struct {
	until    time.Time
	failures int64
	err      error // the last
}

// check returns until when the source is closed and why; a nil error for an open one.
func (g *gates) check(key string, now time.Time) (time.Time, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.closed[key]; ok && now.Before(c.until) {
		return c.until, c.err
	}
	return time.Time{}, nil
}

// shut notes a failure of the source and returns when to try again. Posts that fail side by side count once.
func (g *gates) shut(key string, now time.Time, err error) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.closed[key]
	if !now.Before(c.until) {
		c.failures++
	}
	c.err = err
	until := now.Add(backoff(c.failures, key))
	if at := source.RetryTime(err); at.After(until) {
		until = at
		if latest := now.Add(maxRetryAt); until.After(latest) {
			until = latest
		}
	}
	if until.After(c.until) {
		c.until = until
	}
	g.closed[key] = c
	return c.until
}

// open notes a success.
func (g *gates) open(key string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.closed[key]; ok && !now.Before(c.until) {
		delete(g.closed, key)
	}
}

// reset opens all: some source was changed.
func (g *gates) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.closed)
}
