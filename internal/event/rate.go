package event

import (
	"sync"
	"time"
)

// limiter counts user events of this node in a sliding window, by routing key and name (EVT-6). Names are the emitter's choice, so
// the events of a routing key are counted together as well: it may emit ten times the limit, whatever it calls them. The bound on
// what is remembered follows from that: each key holds at most its limit.
type limiter struct {
	mu      sync.Mutex
	windows map[string][]int64 // by key: UTC ms of what was admitted, oldest first
	swept   int64
}

const (
	rateWindow  = time.Minute
	rateOverall = 10     // times the limit, for all names of a routing key
	rateKeys    = 20_000 // remembered at once; beyond it new names are refused until some are quiet
)

func newLimiter() *limiter { return &limiter{windows: map[string][]int64{}} }

// take admits one event, or says after how long it may come again.
func (l *limiter) take(routingKey, name string, limit int, now int64) (wait time.Duration) {
	if limit <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	own, all := routingKey+":"+name, routingKey
	if w := max(l.wait(own, limit, now), l.wait(all, limit*rateOverall, now)); w > 0 {
		return w
	}
	if len(l.windows) >= rateKeys && l.windows[own] == nil {
		return rateWindow
	}
	l.windows[own] = append(l.windows[own], now)
	l.windows[all] = append(l.windows[all], now)
	return 0
}

// give takes back what was admitted at that instant and not emitted.
func (l *limiter) give(routingKey, name string, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range []string{routingKey + ":" + name, routingKey} {
		w := l.windows[key]
		for i := len(w) - 1; i >= 0; i-- {
			if w[i] == at {
				l.windows[key] = append(w[:i:i], w[i+1:]...)
				break
			}
		}
	}
}

// wait drops what has left the window and says how long until there is room. Call it with mu held.
func (l *limiter) wait(key string, limit int, now int64) time.Duration {
	w := l.windows[key]
	cut := 0
	for cut < len(w) && w[cut] <= now-rateWindow.Milliseconds() {
		cut++
	}
	if cut == len(w) {
		delete(l.windows, key)
		return 0
	}
	w = w[cut:]
	l.windows[key] = w
	if len(w) < limit {
		return 0
	}
	return max(time.Duration(w[len(w)-limit]+rateWindow.Milliseconds()-now)*time.Millisecond, time.Millisecond)
}

// sweep forgets quiet keys, at most once a window. Call it with mu held.
func (l *limiter) sweep(now int64) {
	if now-l.swept < rateWindow.Milliseconds() && now >= l.swept {
		return
	}
	l.swept = now
	for key, w := range l.windows {
		if len(w) == 0 || w[len(w)-1] <= now-rateWindow.Milliseconds() || w[0] > now { // the clock was set back
			delete(l.windows, key)
		}
	}
}
