package obs

import "github.com/prometheus/client_golang/prometheus"

// schedules are the metrics of the clock (CRN-1).
func (m *Metrics) schedules() {
	m.ScheduleFires = m.counter("cron_fires_total", "Instants of schedules that fired.")
	m.ScheduleFailures = m.counters("cron_failures_total", "Schedules that could not fire.", "reason")
	zero(m.ScheduleFailures, "invalid", "error")
	m.ScheduleTick = m.histogram("cron_tick_duration_seconds", "One look of the leader at what is due.", prometheus.ExponentialBuckets(0.0005, 4, 9))
}
