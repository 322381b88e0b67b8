package sim

import (
	"sync/atomic"
	"time"
)

// start is the instant at which the workload begins; everybody asks for it.
type start struct{ at atomic.Pointer[time.Time] }

func (s *start) set(t time.Time) { s.at.Store(&t) }

// pending reports whether it has not begun.
func (s *start) pending() bool { return s.at.Load() == nil }

// since is how long ago it was, 0 before it.
func (s *start) since() time.Duration {
	if t := s.at.Load(); t != nil {
		return time.Since(*t)
	}
	return 0
}
