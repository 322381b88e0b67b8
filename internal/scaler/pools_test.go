package scaler

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/machinepool"
	"github.com/kici-go/kici/internal/store/storetest"
)

const pooled = `version: 1
globalMaxAgents: 20
machinePools:
  - {name: box, cap: {maxCpu: 2}}
scalers:
  - {name: one, type: fake, maxAgents: 10, machinePool: box, labelSets: [{labels: [linux]}]}
`

// neighbour is another orchestrator on the machine.
func (r *rig) neighbour() *machinepool.Pools {
	return machinepool.New(machinepool.Options{Dirs: []string{r.pools}, Instance: "another", Boot: "boot", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

// use is what is reserved of the pool, as the neighbour sees it: its own, and this node's.
func (r *rig) use(own map[string]machinepool.Claim) machinepool.Use {
	r.t.Helper()
	use, err := r.neighbour().Settle(r.t.Context(), map[string]ci.Resources{"box": {CPUMilli: 2000}}, own)
	if err != nil {
		r.t.Fatal(err)
	}
	return use["box"]
}

// An agent has its room in the machine pool before it is started and until nothing of it is left; what others have taken is told to
// placement, and refuses a launch that it did not know of.
func TestMachinePool(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), pooled)
	r.request("a1")
	r.ticks(2)
	if got := r.use(nil).Others.CPUMilli; got != 1000 || !slices.Contains(r.host.Running(), "a1") {
		t.Fatalf("%d reserved, %v runs", got, r.host.Running())
	}
	theirs := map[string]machinepool.Claim{"b": {Pool: "box", Ask: ci.Resources{CPUMilli: 1000}}}
	r.use(theirs)
	r.request("a2") // decided before the node has seen what the neighbour took
	r.tick()
	failed, err := r.st.Read().ReadScalerFailures(t.Context(), 0, "default")
	if err != nil || slices.Contains(r.host.Running(), "a2") || len(failed) != 1 || !strings.Contains(failed[0].Error, "the machine pool has no room") {
		t.Errorf("%v run: %+v %v", r.host.Running(), failed, err)
	}
	var spec placement.ScalerSpec
	rows, err := r.st.Read().NodeScalers(t.Context(), nodeID)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(rows[0].Spec), &spec); err != nil || spec.Pool.Others.CPUMilli != 1000 || spec.Pool.Cap.CPUMilli != 2000 {
		t.Errorf("published %+v %v", spec.Pool, err)
	}
	r.withdraw("a1")
	r.ticks(3)
	if got := r.use(theirs).Others.CPUMilli; got != 0 {
		t.Errorf("%d are reserved for nobody", got)
	}
}

// A process that dies between the reservation and the row leaves nothing behind: the next one compares with the ledger (ML-6).
func TestXS14ReservationWithoutRow(t *testing.T) {
	r := newRig(t, storetest.SQLiteDatabase(t), pooled)
	if err := r.node.d.Pools.Reserve(t.Context(), "box", ci.Resources{CPUMilli: 2000}, "a1", ci.Resources{CPUMilli: 2000}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.tick()
	if got := r.use(nil).Others.CPUMilli; got != 0 {
		t.Errorf("%d are reserved for nobody", got)
	}
}
