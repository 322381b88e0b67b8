package scaler

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/fake"
	"github.com/kici-go/kici/internal/store/db"
)

const twoScalers = `version: 1
globalMaxAgents: 12
scalers:
  - {name: one, type: fake, maxAgents: 3, maxConcurrentSpawns: 4, labelSets: [{labels: [linux]}]}
  - {name: two, type: fake, maxAgents: 5, labelSets: [{labels: [gpu]}]}
`

func (r *rig) reload(config string) (ReloadPlan, error) {
	r.t.Helper()
	r.config = config
	plan, _, err := r.node.Reload(r.t.Context(), false)
	return plan, err
}

// reloads counts those with a result.
func (r *rig) reloads(result string) float64 {
	r.t.Helper()
	var m dto.Metric
	if err := r.node.metrics.reloads.WithLabelValues(result).Write(&m); err != nil {
		r.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// published are the rows that placement reads, by name.
func (r *rig) published() map[string]db.Scaler {
	r.t.Helper()
	rows, err := r.st.Read().NodeScalers(r.t.Context(), nodeID)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]db.Scaler{}
	for _, s := range rows {
		out[s.Name] = s
	}
	return out
}

// TestReload: what is added starts agents, what is changed has its new caps, what is removed retires and goes with its last agent, and
// comes back when it is named again (CF-17, CF-18, CF-21).
func TestReload(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tick()
		plan, err := r.reload(twoScalers)
		if err != nil || plan.Empty() {
			t.Fatalf("%+v %v", plan, err)
		}
		r.request("a", func(p *db.DispatchLaunchParams) { p.Scaler, p.LabelSet = "two", "gpu" })
		r.tick()
		r.want("a", "booting")
		if rows := r.published(); len(rows) != 2 || rows["one"].MaxAgents != 3 || !rows["two"].Ready {
			t.Errorf("published %+v", rows)
		}
		if self, err := r.st.Read().ClusterInstance(t.Context(), nodeID); err != nil || self.GlobalMaxAgents != 12 {
			t.Errorf("%+v %v", self, err)
		}
		r.register("a")
		if _, err := r.reload(oneScaler); err != nil {
			t.Fatal(err)
		}
		r.tick()
		if rows := r.published(); !rows["two"].Retiring || rows["one"].MaxAgents != 10 {
			t.Errorf("published %+v", rows)
		}
		r.want("a", "online") // its job goes on
		if plan, err := r.reload(twoScalers); err != nil || plan.Changes[2].Kind != ChangeResurrected {
			t.Fatalf("%+v %v", plan, err)
		}
		r.tick()
		if rows := r.published(); rows["two"].Retiring {
			t.Errorf("published %+v", rows)
		}
		if _, err := r.reload(oneScaler); err != nil {
			t.Fatal(err)
		}
		r.withdraw("a")
		r.ticks(3)
		r.want("a", "gone/withdrawn")
		if rows := r.published(); len(rows) != 1 {
			t.Errorf("published %+v", rows)
		}
		if n := r.reloads("success"); n != 4 {
			t.Errorf("%v reloads counted", n)
		}
	})
}

// TestXS8ReloadIsAllOrNothing: a mistake in the file, a change that needs a restart, and a backend that cannot be made leave everything as
// it was (CF-17, CF-18).
func TestXS8ReloadIsAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tick()
		before := r.published()["one"]
		r.host.OnReload = func(e backend.Entry) error {
			if e.Options.Bool("broken") || len(e.Sets) > 1 {
				return errors.New("the engine does not answer")
			}
			return nil
		}
		for name, c := range map[string]struct{ config, want string }{
			"a mistake":            {strings.Replace(twoScalers, "maxAgents: 5", "maxAgnets: 5", 1), "maxAgnets"},
			"another type":         {strings.Replace(oneScaler, "type: fake", "type: other", 1), "other"},
			"one cannot be made":   {strings.Replace(twoScalers, "[{labels: [linux]}]", "[{labels: [linux]}, {labels: [arm]}]", 1), "scaler one: the engine does not answer"},
			"no file":              {"", "the file is empty"},
			"a label set in two":   {strings.Replace(twoScalers, "gpu", "linux", 1), "offered by both"},
			"a cap below the rule": {strings.Replace(twoScalers, "maxAgents: 5", "maxAgents: 0", 1), "maxAgents"},
		} {
			_, err := r.reload(c.config)
			if !errors.Is(err, ErrReload) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			r.tick()
			if rows := r.published(); len(rows) != 1 || rows["one"] != before {
				t.Errorf("%s: published %+v", name, rows)
			}
		}
		failed, attempted := r.reloads("failed"), r.reloads("attempted")
		if failed != 6 || attempted != 6 {
			t.Errorf("%v failed of %v", failed, attempted)
		}
		r.request("a")
		r.tick()
		r.want("a", "booting")
	})
}

// TestXS12RolesAreReadOnce: what placement offers and what agents carry comes from one place, so a reload changes both together (CF-22).
func TestXS12RolesAreReadOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tick()
		if _, err := r.reload(strings.Replace(oneScaler, "maxAgents: 10", "maxAgents: 10, roles: [builder]", 1)); err != nil {
			t.Fatal(err)
		}
		r.tick()
		var spec placement.ScalerSpec
		if err := json.Unmarshal([]byte(r.published()["one"].Spec), &spec); err != nil {
			t.Fatal(err)
		}
		set := spec.LabelSets[0]
		for _, labels := range [][]string{set.Enriched, set.AgentLabels} {
			if !slices.Contains(labels, "kici:role:builder") || slices.Contains(labels, "kici:role:init-runner") {
				t.Errorf("%v", labels)
			}
		}
	})
}

// TestDryRunOfAReload says what would change, and changes nothing.
func TestDryRunOfAReload(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.tick()
		r.config = twoScalers
		plan, _, err := r.node.Reload(t.Context(), true)
		if err != nil || plan.Empty() || plan.Changes[2].Kind != ChangeAdded {
			t.Errorf("%+v %v", plan, err)
		}
		r.tick()
		if rows := r.published(); len(rows) != 1 || rows["one"].MaxAgents != 10 {
			t.Errorf("published %+v", rows)
		}
	})
}

// TestReloadDuringALaunch: a launch that is under way ends with the entry that it began with; one that has not begun and whose label set
// is gone is given back without counting against the scaler.
func TestReloadDuringALaunch(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		r.host.OnCreate = func(context.Context, backend.Spec) error {
			close(begun)
			<-goOn
			return nil
		}
		r.request("a")
		if err := r.node.tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-begun
		r.request("b")
		if _, err := r.reload(strings.Replace(oneScaler, "labels: [linux]", "labels: [arm]", 1)); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		r.host.OnCreate = nil
		r.ticks(2)
		r.want("a", "booting")
		r.want("b", "gone/launch-failed")
		if b := r.backoff(); b.Failures != 0 {
			t.Errorf("armed %+v", b)
		}
		r.wantThings("a")
	})
}

// TestXS9PreparationOfAnAddedScalerFails degrades that one alone (CF-19).
func TestXS9PreparationOfAnAddedScalerFails(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.host.OnPrepare = func(scaler string) error {
			if scaler == "two" {
				return errors.New("no bridge")
			}
			return nil
		}
		r.tick()
		if _, err := r.reload(twoScalers); err != nil {
			t.Fatal(err)
		}
		r.tick()
		if rows := r.published(); rows["two"].Ready || rows["two"].NotReady != "no bridge" || !rows["one"].Ready {
			t.Errorf("published %+v", rows)
		}
	})
}

var _ backend.Reloader = (*fake.Backend)(nil)
