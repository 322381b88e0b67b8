package baremetal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// scopes bounds agents by transient scope units of systemd (BM-7). The unit's name is in the record before there is a unit.
type scopes struct {
	m *manager
	b *Backend
}

const (
	slice      = "kici-scaler.slice"
	unitPrefix = "kici-agent-"
	unitSuffix = ".scope"
)

// unitName is the scope of an agent.
func unitName(id string) string { return unitPrefix + id + unitSuffix }

// describe is a scope's description. Only the node and scaler that it names take the unit for theirs.
func describe(id, scaler, node string) string {
	return fmt.Sprintf("kici agent %s of scaler %s on node %s", id, scaler, node)
}

// oomPolicySince is the version of systemd that knows OOMPolicy and the result oom-kill for scopes.
const oomPolicySince = 253

// stopWithin is how long systemd waits between TERM and KILL when it stops a scope by itself, as at a shutdown of the machine.
const stopWithin = 20 * time.Second

// properties are a scope's as a pure function of limits and systemd's version (BM-6, BM-7). The kernel kills a process that takes too
// much memory; what becomes of the step, the agent decides and tells.
func properties(l cgroup.Limits, version int) []sd.Property {
	var out []sd.Property
	add := func(name string, value any) {
		out = append(out, sd.Property{Name: name, Value: dbus.MakeVariant(value)})
	}
	add("Slice", slice)
	add("Delegate", true) // the agent makes leaves for its job and steps
	add("TimeoutStopUSec", uint64(stopWithin/time.Microsecond))
	if l.CPUMilli > 0 {
		add("CPUQuotaPerSecUSec", uint64(max(l.CPUMilli, 10))*1000)
	}
	if l.MemBytes > 0 {
		add("MemoryMax", uint64(l.MemBytes))
		add("MemorySwapMax", uint64(0))
	}
	if l.Tasks > 0 {
		add("TasksMax", uint64(l.Tasks))
	}
	if version >= oomPolicySince {
		add("OOMPolicy", "continue")
	}
	return out
}

// versionOf reads a manager's version: "252 (252.39-1~deb12u2)" as a D-Bus text; 0 when it is not understood.
func versionOf(text string) int {
	digits := strings.TrimLeft(text, `"v`)
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = digits[:i]
	}
	n, _ := strconv.Atoi(digits)
	return n
}

func (s *scopes) String() string { return "systemd (" + s.m.kind + " manager)" }

// plan implements limiter. The agent gets no leaf of the server's: the scope holds it together.
func (s *scopes) plan(id string, r *record) {
	r.Unit, r.Manager, r.Cgroup = unitName(id), s.m.kind, ""
}

func (s *scopes) hold(ctx context.Context, id string, r *record, l cgroup.Limits) error {
	err := s.m.do(ctx, func(ctx context.Context, c *sd.Conn, version int) error {
		props := append(properties(l, version),
			sd.PropDescription(describe(id, s.b.entry.Name, s.b.host.NodeID)), sd.PropPids(uint32(r.Pid)))
		done := make(chan string, 1)
		if _, err := c.StartTransientUnitContext(ctx, r.Unit, "fail", props, done); err != nil {
			return err
		}
		return finished(ctx, done)
	})
	if err != nil {
		return err
	}
	place, err := cgroup.PlaceOf(r.Pid)
	if err != nil {
		return err
	}
	if filepath.Base(place.Unified) != r.Unit {
		if filepath.Base(place.Legacy["memory"]) != r.Unit {
			return fmt.Errorf("the process is not in its scope but in %s", place.Unified)
		}
		return nil // a machine without v2
	}
	r.Cgroup = place.Unified
	if s.b.user != nil {
		return giveLeaf(r.Cgroup, s.b.user)
	}
	return nil
}

// finished waits for the end of a job of systemd.
func finished(ctx context.Context, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd says %q", result)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errNoSuchUnit is systemd's name for that error.
const errNoSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"

func hasName(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}

// stopUnit kills everything in a unit, also what has left the agent's process group, and removes the unit (BM-18).
func (m *manager) stopUnit(ctx context.Context, unit string) (found bool, err error) {
	err = m.do(ctx, func(ctx context.Context, c *sd.Conn, _ int) error {
		err := c.KillUnitWithTarget(ctx, unit, sd.All, 9)
		switch {
		case hasName(err, errNoSuchUnit):
			return nil
		case ctx.Err() != nil:
			return err
		} // any other error, as when no process is left, is for StopUnit to judge
		done := make(chan string, 1)
		_, err = c.StopUnitContext(ctx, unit, "replace", done)
		if hasName(err, errNoSuchUnit) { // it went with its last process
			found = true
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		if err := finished(ctx, done); err != nil {
			return err
		}
		if err := c.ResetFailedUnitContext(ctx, unit); err != nil && !hasName(err, errNoSuchUnit) {
			return err
		}
		return nil
	})
	return found, err
}

// loosenUnit takes a unit's limits away before everything in it is killed; what fails is no matter then.
func (m *manager) loosenUnit(ctx context.Context, unit string) {
	_ = m.do(ctx, func(ctx context.Context, c *sd.Conn, _ int) error {
		return c.SetUnitPropertiesContext(ctx, unit, true,
			sd.Property{Name: "TasksMax", Value: dbus.MakeVariant(uint64(1))}, sd.Property{Name: "MemoryMax", Value: dbus.MakeVariant(uint64(math.MaxUint64))})
	})
}

// unitResult says how a scope ended: "oom-kill", "success" and the like; ” when that is not known.
func (m *manager) unitResult(ctx context.Context, unit string) (result string) {
	_ = m.do(ctx, func(ctx context.Context, c *sd.Conn, _ int) error {
		p, err := c.GetUnitTypePropertyContext(ctx, unit, "Scope", "Result")
		if err == nil {
			result, _ = p.Value.Value().(string)
		}
		return err
	})
	return result
}

// orphanUnits finds scopes that bear this node's and scaler's names and have no record.
func (b *Backend) orphanUnits(ctx context.Context, known map[string]bool) (out []backend.Instance) {
	e := b.enforces()
	if e == nil {
		return nil
	}
	s, ok := e.limiter.(*scopes)
	if !ok {
		return nil
	}
	err := s.m.do(ctx, func(ctx context.Context, c *sd.Conn, _ int) error {
		units, err := c.ListUnitsByPatternsContext(ctx, nil, []string{unitPrefix + "*" + unitSuffix})
		for _, u := range units {
			id := strings.TrimSuffix(strings.TrimPrefix(u.Name, unitPrefix), unitSuffix)
			if known[id] || !agentID().MatchString(id) || u.Description != describe(id, b.entry.Name, b.host.NodeID) {
				continue
			}
			r := b.plan(id)
			r.Ready = true
			known[id] = true
			out = append(out, backend.Instance{
				AgentID: id, Launch: r.encode(), Running: u.ActiveState == "active", Detail: "unit " + u.Name, Holds: []backend.Resource{backend.Scope, backend.Process},
			})
		}
		return err
	})
	if err != nil {
		b.log.Warn("list scopes of agents", "err", err)
	}
	return out
}
