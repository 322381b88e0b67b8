package obs

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// EventMetrics are those of internal events. Names of user events are bounded by Label (OBS-17).
type EventMetrics struct {
	Dispatched *prometheus.CounterVec   // event_name: events whose routing succeeded
	Retries    *prometheus.CounterVec   // event_name
	Dead       *prometheus.CounterVec   // event_name, reason
	DeadDepth  prometheus.Gauge         // dead letters now
	Attempts   *prometheus.HistogramVec // event_name, result: attempts that it took
	Expired    prometheus.Counter       // leases that ran out
	CatchUp    prometheus.Counter       // looks at what waits that failed
	Unmatched  *prometheus.CounterVec   // event_name, reason: reserved events that nobody answered (EVT-26)
	Lost       prometheus.Counter       // events that expired before they were routed
	Refused    *prometheus.CounterVec   // code: events that were not written

	names *names
}

// EventRefusals are the values of Refused's label.
var EventRefusals = []string{"invalid_name", "reserved_name", "invalid_payload", "invalid_target", "not_the_owner", "chain_depth", "rate_limit"}

func (m *Metrics) events() {
	e := &m.Events
	e.Dispatched = m.counters("event_dispatch_success_total", "Internal events routed.", "event_name")
	e.Retries = m.counters("event_retry_total", "Attempts at routing an internal event that failed and are repeated.", "event_name")
	e.Dead = m.counters("event_dlq_total", "Internal events that became dead letters.", "event_name", "reason")
	e.DeadDepth = m.gauge("event_dlq_depth", "Dead letters.")
	e.Attempts = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "event_attempts", Help: "Attempts that routing an internal event took.", Buckets: []float64{1, 2, 3, 4, 5, 8},
	}, []string{"event_name", "result"})
	m.Registry.MustRegister(e.Attempts)
	e.Expired = m.counter("event_lease_expirations_total", "Leases of internal events that ran out.")
	e.CatchUp = m.counter("event_catch_up_failures_total", "Looks at the internal events that wait which failed.")
	e.Unmatched = m.counters("event_unmatched_total", "Events of the orchestrator that no workflow answered.", "event_name", "reason")
	for _, name := range []string{"kici.scaler.scale-up", "kici.scaler.scale-down"} {
		e.Unmatched.WithLabelValues(name, "no-registration")
	}
	e.Lost = m.counter("event_expired_unprocessed_total", "Internal events that expired before they were routed.")
	e.Refused = m.counters("event_refused_total", "Internal events refused at their emission.", "code")
	zero(e.Refused, EventRefusals...)
	e.names = &names{most: 200, seen: map[string]bool{}}
}

// Label is the name of an event as a label: the orchestrator's own names, and the first 200 others.
func (e *EventMetrics) Label(name string) string {
	if strings.HasPrefix(name, "__") || strings.HasPrefix(name, "kici.") {
		return name
	}
	return e.names.label(name)
}

// names bounds the values of a label.
type names struct {
	mu   sync.Mutex
	most int
	seen map[string]bool
}

func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.seen[name]:
		return name
	case len(n.seen) >= n.most:
		return "other"
	}
	n.seen[name] = true
	return name
}
