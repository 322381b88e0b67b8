package ci

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Resources is an amount of compute. Zero means "not declared".
type Resources struct {
	CPUMilli int64 `json:"cpuMilli,omitempty" yaml:"-"` // thousandths of a CPU
	MemBytes int64 `json:"memBytes,omitempty" yaml:"-"`
}

// IsZero reports whether nothing is declared.
func (r Resources) IsZero() bool { return r == Resources{} }

// Claim is what a job or label set asks for: requests are billed to caps, limits go to the backend (SC-23).
type Claim struct {
	Requests Resources `json:"requests,omitzero"`
	Limits   Resources `json:"limits,omitzero"`
}

// Or fills each undeclared field of c from d, field by field (SC-23).
func (c Claim) Or(d Claim) Claim {
	or := func(a, b int64) int64 {
		if a > 0 {
			return a
		}
		return b
	}
	return Claim{
		Requests: Resources{or(c.Requests.CPUMilli, d.Requests.CPUMilli), or(c.Requests.MemBytes, d.Requests.MemBytes)},
		Limits:   Resources{or(c.Limits.CPUMilli, d.Limits.CPUMilli), or(c.Limits.MemBytes, d.Limits.MemBytes)},
	}
}

// ErrMemory is returned by ParseMemory for text that is not a number followed by k, m or g.
var ErrMemory = errors.New("memory must be a number followed by k, m or g, such as 512m")

// ParseMemory reads a number with k, m or g in either case, powers of 1024, floored to bytes (CF-13).
func ParseMemory(s string) (int64, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	if len(s) < 2 {
		return 0, fmt.Errorf("%q: %w", s, ErrMemory)
	}
	shift := map[byte]uint{'k': 10, 'm': 20, 'g': 30}[s[len(s)-1]]
	f, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if shift == 0 || err != nil || math.IsNaN(f) || f <= 0 || f > 1<<20 {
		return 0, fmt.Errorf("%q: %w", s, ErrMemory)
	}
	return int64(f * float64(int64(1)<<shift)), nil
}

// ParseCPUs reads a number of CPUs in (0, 256] as thousandths (CF-13).
func ParseCPUs(f float64) (int64, error) {
	if math.IsNaN(f) || f <= 0 || f > 256 {
		return 0, fmt.Errorf("cpus must be above 0 and at most 256, got %v", f)
	}
	return int64(math.Ceil(f * 1000)), nil
}
