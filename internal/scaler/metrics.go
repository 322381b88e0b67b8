package scaler

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kici-go/kici/internal/store/db"
)

// metrics are the node's (MT).
type metrics struct {
	cpus, memory *prometheus.GaugeVec
	failures     *prometheus.CounterVec
	reloads      *prometheus.CounterVec
}

const globalLabel = "__global__"

func newMetrics(r prometheus.Registerer) (*metrics, error) {
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
	}
	return m, errors.Join(r.Register(m.cpus), r.Register(m.memory), r.Register(m.failures), r.Register(m.reloads))
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
