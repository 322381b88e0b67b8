package machinepool

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

var (
	me     = owner{"me", "boot", 1}
	others = owner{"other", "boot", 2}
	before = owner{"other", "an earlier boot", 3}
)

func cpu(n int64) ci.Resources { return ci.Resources{CPUMilli: 1000 * n} }

// names renders the reservations: "me/a=1".
func names(l *ledger) (out []string) {
	for _, r := range l.Reservations {
		out = append(out, fmt.Sprintf("%s/%s=%g", r.InstanceID, r.AgentID, r.CPUs))
	}
	return out
}

func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		have []reservation
		want map[string]ci.Resources
		out  []string
		same bool
	}{
		"nothing":                            {nil, nil, nil, true},
		"as it is":                           {[]reservation{me.reservation("a", cpu(1), 5)}, map[string]ci.Resources{"a": cpu(1)}, []string{"me/a=1"}, true},
		"ML-6 own without an agent":          {[]reservation{me.reservation("a", cpu(1), 5)}, nil, nil, false},
		"an agent without a reservation":     {nil, map[string]ci.Resources{"a": cpu(1)}, []string{"me/a=1"}, false},
		"another's stays, XS-18":             {[]reservation{others.reservation("b", cpu(2), 5)}, map[string]ci.Resources{}, []string{"other/b=2"}, true},
		"another's of an earlier boot XS-17": {[]reservation{before.reservation("b", cpu(2), 5)}, nil, nil, false},
		"own of an earlier boot, alive":      {[]reservation{{InstanceID: "me", BootID: "old", AgentID: "a", CPUs: 1}}, map[string]ci.Resources{"a": cpu(1)}, []string{"me/a=1"}, false},
		"twice":                              {[]reservation{me.reservation("a", cpu(1), 5), me.reservation("a", cpu(1), 6)}, map[string]ci.Resources{"a": cpu(1)}, []string{"me/a=1"}, false},
		"ML-7 asks for nothing":              {nil, map[string]ci.Resources{"a": {}}, []string{"me/a=0"}, false},
	} {
		l := &ledger{Version: version, Cap: limitsOf(cpu(4)), Reservations: c.have}
		if changed := l.settle(me, cpu(4), c.want, 9); changed == c.same || !reflect.DeepEqual(names(l), c.out) {
			t.Errorf("%s: %v, changed %v", name, names(l), changed)
		}
		if l.settle(me, cpu(4), c.want, 10) {
			t.Errorf("%s: it does not come to rest", name)
		}
	}
}

// The caller's cap rules, whatever stands in the file (ML-4, XS-13).
func TestXS13CapOfTheCaller(t *testing.T) {
	l := &ledger{Version: version, Cap: limitsOf(cpu(1)), Reservations: []reservation{others.reservation("b", cpu(1), 1)}}
	if !l.settle(me, cpu(4), nil, 2) || l.Cap != limitsOf(cpu(4)) {
		t.Errorf("%+v", l)
	}
	if err := l.reserve(me, cpu(4), "a", cpu(3), 3); err != nil {
		t.Error(err)
	}
	if err := l.reserve(me, cpu(4), "c", cpu(1), 3); !errors.Is(err, ErrFull) || len(l.Reservations) != 2 {
		t.Errorf("%v, %v", err, names(l))
	}
	if err := l.reserve(me, cpu(4), "a", cpu(3), 4); err != nil || len(l.Reservations) != 2 {
		t.Errorf("again: %v, %v", err, names(l))
	}
	if err := l.reserve(me, cpu(4), "d", ci.Resources{}, 4); err != nil || len(l.Reservations) != 3 {
		t.Errorf("an agent that asks for nothing: %v, %v", err, names(l))
	}
	if u := l.use(me); u.Own != cpu(3) || u.Others != cpu(1) {
		t.Errorf("%+v", u)
	}
}
