package obs

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics of one server, named as cli-obs.md names them. A room gets the whole struct and uses its own
// fields; a test makes one with NewMetrics. Labels are bounded (OBS-17): never an id of a run, job, commit or repository.
type Metrics struct {
	Registry *prometheus.Registry

	// Ingress.
	WebhooksReceived  *prometheus.CounterVec // source, event
	WebhooksProcessed *prometheus.CounterVec // result
	IngestShed        *prometheus.CounterVec // reason: deliveries that were refused with 429
	IngestAdmitted    prometheus.Counter
	IngestInFlight    prometheus.Gauge       // requests being received
	IngestWaiting     prometheus.Gauge       // accepted and not finished, in the whole cluster
	PipelineFailures  *prometheus.CounterVec // phase
	DedupHits         prometheus.Counter
	TriggerMatch      prometheus.Histogram

	// Runs.
	Executions        *prometheus.CounterVec // status
	ExecutionDuration prometheus.Histogram
	Steps             *prometheus.CounterVec // status
	RefusedStatus     *prometheus.CounterVec // rejected_status: a late write that lost (STM-5)
	Checks            *prometheus.CounterVec // operation: commit statuses posted (PIPE-7)
	CheckFailures     *prometheus.CounterVec // reason

	// Logs.
	LogChunks   prometheus.Counter
	LogBytes    *prometheus.CounterVec // source
	LogFailures prometheus.Counter     // storage errors (XC-134)
	LogDropped  prometheus.Counter     // bytes lost to them

	// Queue.
	QueueDepth *prometheus.GaugeVec // status

	QueueByLabel *prometheus.GaugeVec // status, label
	Unroutable   prometheus.Counter
	StaleFound   prometheus.Counter

	// Schedules.
	ScheduleFires    prometheus.Counter
	ScheduleFailures *prometheus.CounterVec // reason: invalid, error
	ScheduleTick     prometheus.Histogram

	// Cluster and fleet.
	AgentsActive     prometheus.Gauge
	AgentDisconnects *prometheus.CounterVec // reason
	AgentRefusals    *prometheus.CounterVec // reason
	Draining         prometheus.Gauge
	DataFree         prometheus.Gauge // XC-151
	IsLeader         prometheus.Gauge
	ConfigVersion    prometheus.Gauge     // of the cluster's settings that hold here (CLU-27)
	Listening        *prometheus.GaugeVec // channel: whether notifications arrive
	LeaseTerm        prometheus.Gauge

	Events EventMetrics

	// Scaler: what the node's own metrics do not cover.
	AdoptionFailures prometheus.Counter
}

// ShedReasons and those below it are the values of labels.
var (
	ShedReasons       = []string{"in_flight", "bytes", "rate", "cap_full", "max_sojourn", "queue_full"}
	DisconnectReasons = []string{"closed", "lost", "heartbeat", "superseded", "rate", "invalid", "ended", "not_acked", "shutdown"}
	RefusalReasons    = []string{"handshake", "token", "protocol", "labels", "identity", "unavailable"}
	CheckReasons      = []string{"unreachable", "rate_limited", "denied", "not_found", "refused", "gone"}
)

const namespace = "kici_orch"

// NewMetrics returns a fresh set. Counters stand at zero for every known value of their labels from the start (OBS-18).
func NewMetrics() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	m.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.ingress()
	m.runs()
	m.queue()
	m.schedules()
	m.fleet()
	m.scaler()
	m.events()
	return m
}

// Handler serves the registry as Prometheus text.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

func (m *Metrics) ingress() {
	m.WebhooksReceived = m.counters("webhooks_received_total", "Deliveries accepted.", "source", "event")
	m.WebhooksProcessed = m.counters("webhooks_processed_total", "Deliveries processed.", "result")
	zero(m.WebhooksProcessed, "processed", "skipped", "lockfile_missing", "lockfile_corrupt", "failed", "shed")
	m.IngestShed = m.counters("ingest_shed_total", "Deliveries refused with 429, to come again.", "reason")
	zero(m.IngestShed, ShedReasons...)
	m.IngestAdmitted = m.counter("ingest_admitted_total", "Deliveries that came past the limits and were stored.")
	m.IngestInFlight = m.gauge("ingest_inflight", "Requests with deliveries being received.")
	m.IngestWaiting = m.gauge("ingest_overflow_buffered", "Deliveries that are stored and not finished, in the whole cluster.")
	m.PipelineFailures = m.counters("webhook_pipeline_failures_total", "Deliveries whose processing failed.", "phase")
	zero(m.PipelineFailures, "normalize", "resolve", "lock", "match", "create", "globals")
	m.DedupHits = m.counter("dedup_hits_total", "Repeated deliveries.")
	m.TriggerMatch = m.histogram("trigger_match_duration_seconds", "Matching one delivery.", prometheus.ExponentialBuckets(0.0001, 4, 9))
}

func (m *Metrics) runs() {
	m.Executions = m.counters("executions_total", "Runs that ended.", "status")
	zero(m.Executions, "success", "failed", "cancelled")
	m.ExecutionDuration = m.histogram("execution_duration_seconds", "Runs from creation to end.", prometheus.ExponentialBuckets(0.25, 2, 16))
	m.Steps = m.counters("steps_total", "Steps that ended.", "status")
	zero(m.Steps, "success", "failed", "skipped", "cancelled")
	m.RefusedStatus = m.counters("non_monotonic_job_status_writes_total", "Status writes that came after a terminal one.", "rejected_status")
	zero(m.RefusedStatus, "running", "success", "failed", "cancelled", "skipped")
	m.Checks = m.counters("github_check_run_total", "Commit statuses posted, to any forge.", "operation")
	zero(m.Checks, "create", "update", "complete")
	m.CheckFailures = m.counters("github_check_run_failures_total", "Commit statuses that could not be posted.", "reason")
	zero(m.CheckFailures, CheckReasons...)
	m.LogChunks = m.counter("log_chunks_received_total", "Log requests of agents.")
	m.LogBytes = m.counters("log_bytes_stored_total", "Bytes of step logs stored.", "source")
	zero(m.LogBytes, "agent")
	m.LogFailures = m.counter("log_storage_failures_total", "Log writes that the storage refused.")
	m.LogDropped = m.counter("log_bytes_dropped_total", "Bytes of step logs lost because the storage kept refusing them.")
}

func (m *Metrics) queue() {
	m.QueueDepth = m.gauges("dispatch_queue_depth", "Open jobs.", "status")
	for _, s := range []string{"pending", "queued", "running", "recovering", "cancelling"} {
		m.QueueDepth.WithLabelValues(s)
	}
	m.QueueByLabel = m.gauges("dispatch_queue_depth_by_label", "Open jobs by label that they ask for; one with two counts twice.", "status", "label")
	m.Unroutable = m.counter("unroutable_fast_failed_total", "Jobs ended because nothing could run them.")
	m.StaleFound = m.counter("stale_runs_detected_total", "Runs found stale.")
}

func (m *Metrics) fleet() {
	m.AgentsActive = m.gauge("agents_active", "Agents connected to this server.")
	m.AgentDisconnects = m.counters("agent_disconnects_total", "Sessions of agents that ended.", "reason")
	zero(m.AgentDisconnects, DisconnectReasons...)
	m.AgentRefusals = m.counters("agent_refusals_total", "Registrations refused.", "reason")
	zero(m.AgentRefusals, RefusalReasons...)
	m.DataFree = m.gauge("data_dir_free_bytes", "Free space where the data directory is.")
	m.IsLeader = m.gauge("cluster_is_leader", "1 while this server leads.")
	m.LeaseTerm = m.gauge("cluster_lease_term", "Term of the lease this server last held.")
	m.ConfigVersion = m.gauge("config_version", "Version of the cluster's settings that holds here.")
	m.Listening = m.gauges("pg_listen_connected", "1 while notifications arrive; always on SQLite.", "channel")
	m.Draining = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kici_orchestrator_draining", Help: "1 while this server takes no new work.",
	})
	m.Registry.MustRegister(m.Draining)
}

func (m *Metrics) scaler() {
	m.AdoptionFailures = m.counter("scaler_adoption_lookup_failures_total", "Registrations whose row could not be read.")
}

// CounterOf registers a counter that somebody else counts.
func (m *Metrics) CounterOf(name, help string, value func() int64) {
	m.Registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, func() float64 { return float64(value()) }))
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.Registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.Registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.Registry.MustRegister(g)
	return g
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.Registry.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	m.Registry.MustRegister(h)
	return h
}

func zero(c *prometheus.CounterVec, values ...string) {
	for _, v := range values {
		c.WithLabelValues(v)
	}
}
