package scaler

import (
	"github.com/kici-go/kici/internal/ci"
)

// resources reads the forms of CF-13: flat {cpus, memory}, {requests}, {limits} or both. A dimension given on one side only
// counts for both.
func (r reader) resources(f field) ci.Claim {
	m := r.mapping(f, []string{"cpus", "memory", "requests", "limits"})
	flat := field{path: f.path}
	for _, k := range []string{"cpus", "memory"} {
		if m[k].present() {
			flat.node = m[k].node
		}
	}
	if flat.present() && (m["requests"].present() || m["limits"].present()) {
		r.fault(flat, "use either form", "cpus and memory cannot stand beside requests and limits")
		return ci.Claim{}
	}
	if flat.present() {
		both := r.amounts(m)
		return ci.Claim{Requests: both, Limits: both}
	}
	side := []string{"cpus", "memory"}
	requests := r.amounts(r.mapping(m["requests"], side))
	limits := r.amounts(r.mapping(m["limits"], side))
	claim := ci.Claim{Requests: requests, Limits: limits}.Or(ci.Claim{Requests: limits, Limits: requests})
	if claim.Requests.CPUMilli > claim.Limits.CPUMilli {
		r.fault(m["requests"], "", "requests more cpus than its limit")
	}
	if claim.Requests.MemBytes > claim.Limits.MemBytes {
		r.fault(m["requests"], "", "requests more memory than its limit")
	}
	return claim
}

func (r reader) amounts(m map[string]field) ci.Resources {
	return ci.Resources{CPUMilli: r.cpus(m["cpus"]), MemBytes: r.memory(m["memory"])}
}

func (r reader) cpus(f field) int64 {
	if !f.present() {
		return 0
	}
	n, err := r.number(f)
	if err != nil {
		r.fault(f, "", "%v", err)
		return 0
	}
	milli, err := ci.ParseCPUs(n)
	if err != nil {
		r.fault(f, "", "%v", err)
	}
	return milli
}

func (r reader) memory(f field) int64 {
	if !f.present() {
		return 0
	}
	b, err := ci.ParseMemory(r.text(f))
	if err != nil {
		r.fault(f, "", "%v", err)
	}
	return b
}

// cap reads {maxCpu, maxMemory}.
func (r reader) cap(f field) ci.Resources {
	m := r.mapping(f, []string{"maxCpu", "maxMemory"})
	out := ci.Resources{MemBytes: r.memory(m["maxMemory"])}
	if c := m["maxCpu"]; c.present() {
		n, err := r.number(c)
		if err != nil || n <= 0 || n > 1<<20 {
			r.fault(c, "", "must be a number above 0")
			return out
		}
		out.CPUMilli = int64(n * 1000)
	}
	return out
}
