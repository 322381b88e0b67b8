package scaler

import (
	"context"
	"errors"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
)

// leakMetric reads one counter as Prometheus does; a kind that is not there is an error.
func leakMetric(t *testing.T, g prometheus.Gatherer, name string, kind backend.Resource) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel()
			if f.GetName() == name && slices.ContainsFunc(labels, func(l *dto.LabelPair) bool { return l.GetName() == "kind" && l.GetValue() == string(kind) }) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Errorf("there is no %s{kind=%q}", name, kind)
	return -1
}

// What has no row is counted by what it is made of, once however often it is seen, and once more when nothing of it is left.
func TestLeaksAreCountedByKind(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		cfg, _ := ParseConfig("scalers.yaml", []byte(r.config), LoadOptions{Kinds: []backend.Kind{r.host.Kind()}})
		deps := r.deps(cfg)
		deps.Metrics = registry
		deps.Host.Leaks = new(backend.Leaks)
		node, err := New(deps)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		r.node = node
		want := func(when string, kind backend.Resource, found, healed float64) {
			t.Helper()
			if f, h := leakMetric(t, registry, "kici_orch_scaler_leaks_found_total", kind), leakMetric(t, registry, "kici_orch_scaler_leaks_healed_total", kind); f != found || h != healed {
				t.Errorf("%s: %s found %v healed %v, want %v and %v", when, kind, f, h, found, healed)
			}
		}
		for _, kind := range backend.Resources() {
			want("at the start", kind, 0, 0)
		}
		r.host.OnDelete = func(context.Context, backend.Ref) error { return errors.New("it clings") }
		r.host.Put("one", backend.Instance{AgentID: "lost", Running: true, Holds: []backend.Resource{backend.Container, backend.Volume, backend.Volume}})
		r.request("kept")
		r.ticks(3)
		r.register("kept")
		want("while it clings", backend.Container, 1, 0)
		want("while it clings", backend.Volume, 2, 0)
		r.later(deleteRetryMax)
		r.ticks(2)
		want("while it clings still", backend.Container, 1, 0)
		r.host.OnDelete = nil
		r.later(deleteRetryMax)
		r.ticks(2)
		want("when it is gone", backend.Container, 1, 1)
		want("when it is gone", backend.Volume, 2, 2)
		r.wantThings("kept")
		r.host.OnDelete = func(context.Context, backend.Ref) error { return errors.New("it clings") }
		r.host.Put("one", backend.Instance{AgentID: "flighty", Holds: []backend.Resource{backend.Process}})
		r.tick()
		want("a flighty one", backend.Process, 1, 0)
		r.host.OnDelete = nil
		r.host.Kill("kept", "") // and it ends in the ordinary way, which is no leak
		if err := r.hostDelete("flighty"); err != nil {
			t.Fatal(err)
		}
		r.ticks(2)
		want("when it went by itself", backend.Process, 1, 1)
		want("in the end", backend.Container, 1, 1)
		want("nobody", backend.Token, 0, 0)
	})
}

// hostDelete removes a thing behind the node's back.
func (r *rig) hostDelete(id string) error {
	b, err := r.host.Kind().New(backend.Entry{Name: "one"}, backend.Host{})
	if err != nil {
		return err
	}
	return b.Delete(r.t.Context(), backend.Ref{AgentID: id})
}

// What is only known to be the node's is found by each of its scalers, and ended once.
func TestRemnantOfTwoScalersIsEndedOnce(t *testing.T) {
	thing := backend.Instance{AgentID: "x", Holds: []backend.Resource{backend.Cgroup}}
	v := View{Scalers: map[ScalerID]ScalerView{
		{"one", fake.Type}: {Listed: true, Things: []backend.Instance{thing}}, {"two", fake.Type}: {Listed: true, Things: []backend.Instance{thing}},
	}}
	for range 20 { // maps have no order
		if p := Reconcile(v); len(p.Actions) != 1 || p.Actions[0].Scaler.Name != "one" || !slices.Equal(p.Actions[0].Holds, thing.Holds) {
			t.Fatalf("%+v", p.Actions)
		}
	}
	v.Rows = []Row{{ID: "x", Scaler: ScalerID{"two", fake.Type}, State: "ending", Launch: []byte(`{"pid":1}`)}}
	if p := Reconcile(v); len(p.Actions) != 1 || p.Actions[0].Scaler.Name != "two" || p.Actions[0].Was == "" {
		t.Errorf("%+v", p.Actions)
	}
}
