package fleet

import "time"

// Rates of one connection (AG-14). Heartbeats are exempt.
const (
	messageBurst = 200
	messageRate  = 100 // a second
	byteBurst    = 2 << 20
	byteRate     = 500 << 10
	floodLimit   = 5 * time.Second
)

// bucket is a token bucket that may go into debt, which the reader then waits for.
type bucket struct {
	level, burst, rate float64
}

func (b *bucket) take(n float64, elapsed time.Duration) (wait time.Duration) {
	b.level = min(b.burst, b.level+b.rate*elapsed.Seconds()) - n
	if b.level >= 0 {
		return 0
	}
	return time.Duration(-b.level / b.rate * float64(time.Second))
}

// limiter belongs to a session's reader.
type limiter struct {
	messages, bytes bucket
	last            time.Time
	floodSince      time.Time // zero while within the rate
}

func newLimiter(now time.Time) limiter {
	return limiter{
		messages: bucket{messageBurst, messageBurst, messageRate}, bytes: bucket{byteBurst, byteBurst, byteRate}, last: now,
	}
}

// take accounts for one message. It returns how long to wait before reading on, whether a flood begins with this one, and
// whether it has lasted so long that the connection must go.
func (l *limiter) take(size int, now time.Time) (wait time.Duration, begins, tooLong bool) {
	elapsed := now.Sub(l.last)
	l.last = now
	wait = max(l.messages.take(1, elapsed), l.bytes.take(float64(size), elapsed))
	if wait == 0 {
		l.floodSince = time.Time{}
		return 0, false, false
	}
	if l.floodSince.IsZero() {
		l.floodSince = now
		return wait, true, false
	}
	return wait, false, now.Sub(l.floodSince) > floodLimit
}
