package scaler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
)

// tapeKinds are a kind with a key that needs a restart, and another one.
func tapeKinds() []backend.Kind {
	k := fake.NewHost().Kind()
	k.Keys = []backend.Key{{Name: "socket", Type: backend.KeyString, Restart: true}, {Name: "colour", Type: backend.KeyString}}
	other := k
	other.Type = "tape"
	return []backend.Kind{k, other}
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := ParseConfig("scalers.yaml", []byte(text), LoadOptions{Kinds: tapeKinds()})
	if c == nil {
		t.Fatal(problems)
	}
	return c
}

func (c Change) String() string {
	s := fmt.Sprintf("%s %s", c.Kind, c.Name)
	for _, f := range c.Fields {
		s += fmt.Sprintf(" %s:%s→%s", f.Key, f.Old, f.New)
		if f.Restart {
			s += "(restart)"
		}
	}
	if c.Reason != "" {
		s += " because " + c.Reason
	}
	return s
}

// TestCompare is the plan of a reload (CF-18).
func TestCompare(t *testing.T) {
	const head = "version: 1\nglobalMaxAgents: 9\nscalers:\n"
	a := "  - {name: a, type: fake, maxAgents: 2, labelSets: [{labels: [x]}]}\n"
	b := "  - {name: b, type: fake, maxAgents: 2, socket: /s, colour: red, labelSets: [{labels: [y]}]}\n"
	for _, c := range []struct {
		name, have, next string
		retiring         []ScalerID
		want             []string
		refused          string
	}{
		{"nothing", head + a + b, head + a + b, nil, []string{"kept a", "kept b"}, ""},
		{"order only", head + a + b, head + b + a, nil, []string{"kept b", "kept a"}, ""},
		{
			"caps", head + a, strings.Replace(head, "9", "4", 1) + strings.Replace(a, "maxAgents: 2", "maxAgents: 1, resourceCap: {maxCpu: 1.5}", 1), nil,
			[]string{"kept  globalMaxAgents:9→4", "kept a maxAgents:2→1 resourceCap:→1.5 CPUs"},
			"",
		},
		{
			"label sets", head + a, head + strings.Replace(a, "[{labels: [x]}]", "[{labels: [x]}, {labels: [z]}]", 1), nil,
			[]string{"kept a labelSets[1].labels:→z"},
			"",
		},
		{
			"resources and environment of a set", head + a, head + strings.Replace(a, "labels: [x]", "labels: [x], resources: {cpus: 2, memory: 1g}, env: {TOKEN: s3cret}", 1), nil,
			[]string{"kept a labelSets[0].env:→TOKEN labelSets[0].resources.limits:→2 CPUs, 1.0 GiB labelSets[0].resources.requests:→2 CPUs, 1.0 GiB"},
			"",
		},
		{
			"a value of the environment", head + strings.Replace(a, "labels: [x]", "labels: [x], env: {TOKEN: s3cret}", 1), head + strings.Replace(a, "labels: [x]", "labels: [x], env: {TOKEN: other}", 1), nil,
			[]string{"kept a labelSets[0].env:TOKEN→TOKEN (other values)"},
			"",
		},
		{
			"a warm pool", head + strings.Replace(a, "labels: [x]", "labels: [x], resources: {cpus: 1}", 1), head + strings.Replace(a, "labelSets: [{labels: [x]", "warmPool: {enabled: true, size: 2}, labelSets: [{labels: [x], resources: {cpus: 1}", 1), nil,
			[]string{"kept a warmPool:→2 agents, surplus idle for 300 s"},
			"",
		},
		{"roles", head + a, head + strings.Replace(a, "maxAgents: 2", "maxAgents: 2, roles: []", 1), nil, []string{"kept a roles:builder,init-runner→none"}, ""},
		{
			"a key that needs a restart", head + b, head + strings.NewReplacer("/s", "/t", "red", "blue").Replace(b), nil,
			[]string{"kept b colour:red→blue socket:/s→/t(restart)"},
			"",
		},
		{"added and removed", head + a, head + b, nil, []string{"added b", "retired a"}, ""},
		{"comes back", head + a, head + a + b, []ScalerID{{"b", "fake"}}, []string{"kept a", "resurrected b"}, ""},
		{
			"another type", head + a, head + strings.Replace(a, "fake", "tape", 1), nil,
			[]string{"refused a because it is a of type fake now, and that cannot change while the server runs: restart it, or give the new one another name"},
			"scaler a: it is a of type fake now",
		},
		{
			"only the case of its name", head + a, head + strings.Replace(a, "name: a", "name: A", 1), nil,
			[]string{"refused A because it is a of type fake now, and that cannot change while the server runs: restart it, or give the new one another name"},
			"scaler A: ",
		},
		{
			"another type under the name of one that retires", head + a, head + a + strings.Replace(b, "fake", "tape", 1),
			[]ScalerID{{"b", "fake"}},
			[]string{"kept a", "refused b because agents of b of type fake, which is retiring, are still there: try again when they have ended"},
			"scaler b: agents of b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Compare(parsed(t, c.have), parsed(t, c.next), c.retiring, tapeKinds())
			var got []string
			for _, change := range p.Changes {
				got = append(got, change.String())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if !strings.HasPrefix(p.Refused(), c.refused) || (c.refused == "") != (p.Refused() == "") {
				t.Errorf("refused: %q", p.Refused())
			}
			if empty := c.name == "nothing" || c.name == "order only"; c.refused == "" && p.Empty() != empty {
				t.Errorf("empty: %v", p.Empty())
			}
		})
	}
}
