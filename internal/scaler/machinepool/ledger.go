package machinepool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kici-go/kici/internal/ci"
)

// ErrFull says that a pool has no room now.
var ErrFull = errors.New("the machine pool has no room")

// version of the file's form.
const version = 1

// ledger is what the file of a pool says (ML-1).
type ledger struct {
	Version      int           `json:"version"`
	Cap          limits        `json:"cap"`
	Reservations []reservation `json:"reservations"`
}

// limits are a cap as it stands in the file; 0 is none.
type limits struct {
	MaxCPU    float64 `json:"maxCpu,omitempty"`
	MaxMemory int64   `json:"maxMemory,omitempty"` // bytes
}

// reservation is what one agent holds.
type reservation struct {
	InstanceID string  `json:"instanceId"`
	PID        int     `json:"pid"` // of the orchestrator, for people
	BootID     string  `json:"bootId"`
	AgentID    string  `json:"agentId"`
	CPUs       float64 `json:"cpus"`
	MemBytes   int64   `json:"memBytes"`
	ReservedAt int64   `json:"reservedAt"` // UTC ms
}

func limitsOf(r ci.Resources) limits {
	return limits{MaxCPU: float64(r.CPUMilli) / 1000, MaxMemory: r.MemBytes}
}

func (r reservation) resources() ci.Resources {
	return ci.Resources{CPUMilli: int64(math.Round(r.CPUs * 1000)), MemBytes: r.MemBytes}
}

// owner is who writes.
type owner struct {
	instance, boot string
	pid            int
}

func (o owner) reservation(agent string, ask ci.Resources, now int64) reservation {
	return reservation{
		InstanceID: o.instance, PID: o.pid, BootID: o.boot, AgentID: agent, CPUs: float64(ask.CPUMilli) / 1000, MemBytes: ask.MemBytes, ReservedAt: now,
	}
}

// settle makes the owner's reservations those of want, and drops those from before the machine was started (ML-5, ML-6). Another
// orchestrator's stay: its processes may not be seen from here. The caller's cap rules (ML-4).
func (l *ledger) settle(o owner, limit ci.Resources, want map[string]ci.Resources, now int64) (changed bool) {
	if l.Version != version || l.Cap != limitsOf(limit) {
		l.Version, l.Cap, changed = version, limitsOf(limit), true
	}
	have := map[string]bool{}
	kept := l.Reservations[:0]
	for _, r := range l.Reservations {
		_, wanted := want[r.AgentID]
		own := r.InstanceID == o.instance
		if own && (!wanted || have[r.AgentID]) || r.BootID != o.boot && !own {
			changed = true
			continue
		}
		if own {
			have[r.AgentID] = true
			if r.BootID != o.boot || r.resources() != want[r.AgentID] {
				r = o.reservation(r.AgentID, want[r.AgentID], r.ReservedAt)
				changed = true
			}
		}
		kept = append(kept, r)
	}
	l.Reservations = kept
	for agent, ask := range want {
		if !have[agent] {
			l.Reservations = append(l.Reservations, o.reservation(agent, ask, now))
			changed = true
		}
	}
	slices.SortStableFunc(l.Reservations, func(a, b reservation) int {
		return cmp.Or(cmp.Compare(a.ReservedAt, b.ReservedAt), cmp.Compare(a.InstanceID, b.InstanceID), cmp.Compare(a.AgentID, b.AgentID))
	})
	return changed
}

// reserve adds a reservation if the pool has room for it; one that is there is replaced. An agent that asks for nothing has one too (ML-7).
func (l *ledger) reserve(o owner, limit ci.Resources, agent string, ask ci.Resources, now int64) error {
	used := ci.Resources{}
	l.Reservations = slices.DeleteFunc(l.Reservations, func(r reservation) bool { return r.InstanceID == o.instance && r.AgentID == agent })
	for _, r := range l.Reservations {
		used.CPUMilli += r.resources().CPUMilli
		used.MemBytes += r.MemBytes
	}
	for _, d := range []struct {
		what              string
		used, asks, limit int64
	}{{"cpu", used.CPUMilli, ask.CPUMilli, limit.CPUMilli}, {"memory", used.MemBytes, ask.MemBytes, limit.MemBytes}} {
		if d.limit > 0 && d.asks > 0 && d.used+d.asks > d.limit {
			return fmt.Errorf("%w: of its %s %d of %d are in use, and the agent asks for %d", ErrFull, d.what, d.used, d.limit, d.asks)
		}
	}
	l.Reservations = append(l.Reservations, o.reservation(agent, ask, now))
	return nil
}

// use sums up what is reserved.
func (l *ledger) use(o owner) (u Use) {
	for _, r := range l.Reservations {
		into := &u.Others
		if r.InstanceID == o.instance {
			into = &u.Own
		}
		into.CPUMilli += r.resources().CPUMilli
		into.MemBytes += r.MemBytes
	}
	return u
}

// Use is what is reserved of a pool, by this node and by the other orchestrators of the machine.
type Use struct{ Own, Others ci.Resources }
