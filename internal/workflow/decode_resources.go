package workflow

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
)

var (
	resourcesKeys = keys{name: "resources", known: []string{"cpus", "memory", "requests", "limits"}}
	sideKeys      = keys{name: "resources", known: []string{"cpus", "memory"}}
)

// resources reads the four forms of CF-13: flat, requests, limits, or both; one side alone mirrors to the other.
func (d *decoder) resources(v value) *ci.Claim {
	var flat, requests, limits ci.Resources
	hasFlat, hasRequests, hasLimits := false, false, false
	if v.isNull() {
		return nil
	}
	d.object(v, resourcesKeys, func(key string, v value) {
		switch key {
		case "requests":
			hasRequests = true
			d.filters(v, sideKeys, func(key string, v value) { d.amount(key, v, &requests) })
		case "limits":
			hasLimits = true
			d.filters(v, sideKeys, func(key string, v value) { d.amount(key, v, &limits) })
		default:
			hasFlat = true
			d.amount(key, v, &flat)
		}
	})
	if hasFlat && (hasRequests || hasLimits) {
		d.errorf(v, "put cpus and memory into requests or limits", "resources mixes both forms")
		return nil
	}
	c := ci.Claim{Requests: requests, Limits: limits}
	switch {
	case hasFlat:
		c = ci.Claim{Requests: flat, Limits: flat}
	case !hasLimits:
		c.Limits = requests
	case !hasRequests:
		c.Requests = limits
	}
	if over(c.Requests.CPUMilli, c.Limits.CPUMilli) {
		d.errorf(v, "", "requests.cpus is above limits.cpus")
	}
	if over(c.Requests.MemBytes, c.Limits.MemBytes) {
		d.errorf(v, "", "requests.memory is above limits.memory")
	}
	if c == (ci.Claim{}) {
		return nil // CF-16
	}
	return &c
}

// over reports a request above its limit; an undeclared limit allows anything (CF-15).
func over(request, limit int64) bool { return limit > 0 && request > limit }

func (d *decoder) amount(key string, v value, r *ci.Resources) {
	if key == "cpus" {
		f, ok := d.number(v, 0, 256)
		if !ok {
			return
		}
		milli, err := ci.ParseCPUs(f)
		if err != nil {
			d.errorf(v, "", "%s", err)
		}
		r.CPUMilli = milli
		return
	}
	s, ok := d.word(v)
	if !ok {
		return
	}
	b, err := ci.ParseMemory(s)
	if err != nil {
		cure := ""
		if unit := strings.TrimRight(strings.ToLower(s), "ib"); unit != strings.ToLower(s) && unit != "" {
			cure = "write " + unit
		}
		d.errorf(v, cure, "%s", err)
	}
	r.MemBytes = b
}

const maxDuration = 24 * time.Hour

// duration reads 30s, 5m or a number of seconds as milliseconds.
func (d *decoder) duration(v value) int64 {
	s, ok := d.word(v)
	if !ok {
		return 0
	}
	ms, err := parseDuration(s)
	if err != nil {
		d.errorf(v, "write 30s, 5m or a number of seconds", "%s: %s", v.last(), err)
	}
	return ms
}

func parseDuration(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	dur, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration", short(s))
	case dur < 0 || dur > maxDuration:
		return 0, fmt.Errorf("a duration must be between 0 and %d hours", int(maxDuration.Hours()))
	}
	return dur.Milliseconds(), nil
}
