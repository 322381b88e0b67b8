package scaler

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store/db"
)

// metrics are the node's (MT).
type metrics struct {
	cpus, memory *prometheus.GaugeVec
	failures     *prometheus.CounterVec
	reloads      *prometheus.CounterVec
	diskFree     *prometheus.GaugeVec
	diskFloor    *prometheus.GaugeVec

	collected, collectedBytes *prometheus.CounterVec

	warmTarget, warmReady, warmInFlight *prometheus.GaugeVec
	warmSpawns, warmReaped              *prometheus.CounterVec
}

const globalLabel = "__global__"

func newMetrics(r prometheus.Registerer, leaks *backend.Leaks) (*metrics, error) {
	m := &metrics{
		cpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kici_orch_scaler_cpus_used", Help: "CPUs requested by live agents.",
		}, []string{"scaler", "scalerType"}),
		memory: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kici_orch_scaler_memory_bytes_used", Help: "Memory requested by live agents.",
		}, []string{"scaler", "scalerType"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kici_orch_scaler_spawn_failures_total", Help: "Agents that failed before they registered.",
		}, []string{"backend", "bound"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kici_orch_scaler_config_reloads_total", Help: "Reloads of scalers.yaml: attempted, success, failed.",
		}, []string{"result"}),
		diskFree: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kici_orch_scaler_disk_free_bytes", Help: "Free space of the disk on which a scaler's agents work.",
		}, []string{"scaler"}),
		diskFloor: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kici_orch_scaler_disk_floor_bytes", Help: "Free space below which a scaler starts nothing.",
		}, []string{"scaler"}),
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kici_orch_scaler_collected_total", Help: "Things that nobody needed and that were removed: image, workspace, program.",
		}, []string{"scaler", "kind"}),
		collectedBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kici_orch_scaler_collected_bytes_total", Help: "What they took, as far as that is known.",
		}, []string{"scaler", "kind"}),
	}
	pool := []string{"scaler", "labelSet"}
	m.warmTarget = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kici_orch_scaler_warm_pool_target", Help: "Agents that a warm pool should hold."}, pool)
	m.warmReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kici_orch_scaler_warm_pool_ready", Help: "Idle agents of a warm pool."}, pool)
	m.warmInFlight = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kici_orch_scaler_warm_pool_in_flight", Help: "Agents that are starting for a warm pool."}, pool)
	m.warmSpawns = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kici_orch_scaler_warm_pool_spawns_total", Help: "Agents started for warm pools."}, pool[:1])
	m.warmReaped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kici_orch_scaler_warm_pool_reaped_total", Help: "Idle agents of warm pools that were ended, as surplus or to make room."}, pool[:1])
	all := []prometheus.Collector{m.cpus, m.memory, m.failures, m.reloads, m.diskFree, m.diskFloor, m.collected, m.collectedBytes, m.warmTarget, m.warmReady, m.warmInFlight, m.warmSpawns, m.warmReaped}
	return m, registerAll(r, append(all, leakCounters(leaks)...)...)
}

// leakCounters show what is counted of leaks, every kind from the start.
func leakCounters(leaks *backend.Leaks) (out []prometheus.Collector) {
	for _, kind := range backend.Resources() {
		labels := prometheus.Labels{"kind": string(kind)}
		out = append(
			out,
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "kici_orch_scaler_leaks_found_total", Help: "Things of agents that belonged to no live agent, when they were found.", ConstLabels: labels,
			}, func() float64 { found, _ := leaks.Counts(kind); return float64(found) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "kici_orch_scaler_leaks_healed_total", Help: "Things of agents that belonged to no live agent and are gone again.", ConstLabels: labels,
			}, func() float64 { _, healed := leaks.Counts(kind); return float64(healed) }),
		)
	}
	return out
}

func registerAll(r prometheus.Registerer, all ...prometheus.Collector) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// pools republishes what warm pools hold; targets are by scaler and label set.
func (m *metrics) pools(targets map[[2]string]int64, rows []db.NodeAgentsRow) {
	m.warmTarget.Reset()
	m.warmReady.Reset()
	m.warmInFlight.Reset()
	for key, size := range targets {
		m.warmTarget.WithLabelValues(key[:]...).Set(float64(size))
		m.warmReady.WithLabelValues(key[:]...).Set(0)
		m.warmInFlight.WithLabelValues(key[:]...).Set(0)
	}
	for _, r := range rows {
		key := [2]string{r.Scaler, r.LabelSet}
		if _, pooled := targets[key]; !pooled || r.BoundJobID.Valid {
			continue
		}
		switch ci.AgentState(r.State) {
		case ci.AgentOnline:
			m.warmReady.WithLabelValues(key[:]...).Inc()
		case ci.AgentRequested, ci.AgentStarting, ci.AgentBooting:
			m.warmInFlight.WithLabelValues(key[:]...).Inc()
		}
	}
}

func (m *metrics) failure(backend string, bound bool) {
	m.failures.WithLabelValues(backend, strconv.FormatBool(bound)).Inc()
}

// use republishes usage from the rows.
func (m *metrics) use(scalers []ScalerID, rows []db.NodeAgentsRow) {
	cpus, memory := map[ScalerID]int64{}, map[ScalerID]int64{}
	var allCPU, allMemory int64
	for _, r := range rows {
		id := ScalerID{r.Scaler, r.Type}
		cpus[id] += r.CpuMilli
		memory[id] += r.MemBytes
		allCPU += r.CpuMilli
		allMemory += r.MemBytes
	}
	m.cpus.Reset()
	m.memory.Reset()
	for _, id := range scalers {
		m.cpus.WithLabelValues(id.Name, id.Type).Set(float64(cpus[id]) / 1000)
		m.memory.WithLabelValues(id.Name, id.Type).Set(float64(memory[id]))
	}
	m.cpus.WithLabelValues(globalLabel, "").Set(float64(allCPU) / 1000)
	m.memory.WithLabelValues(globalLabel, "").Set(float64(allMemory))
}
