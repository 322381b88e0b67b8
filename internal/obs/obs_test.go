package obs

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLoggerCarriesRequestID(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log.With("component", "x").InfoContext(WithRequestID(t.Context(), "r-1"), "hello", "run_id", "7")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("not a terminal, so JSON is expected: %v in %s", err, b.String())
	}
	for k, want := range map[string]string{"request_id": "r-1", "component": "x", "run_id": "7", "msg": "hello"} {
		if line[k] != want {
			t.Errorf("%s = %v, want %s", k, line[k], want)
		}
	}
}

func TestLoggerOptions(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, LogOptions{Format: "text", Level: "warn"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "a", 1)
	if out := b.String(); strings.Contains(out, "quiet") || !strings.Contains(out, "loud a=1") || strings.Contains(out, "\x1b") {
		t.Errorf("got %q", out)
	}
	for _, o := range []LogOptions{{Format: "xml"}, {Level: "shout"}} {
		if _, err := NewLogger(&b, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	h := RequestIDs(func() string { return "new" }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(RequestID(r.Context())))
	}))
	for sent, want := range map[string]string{
		"": "new", "mine-1": "mine-1", "two words": "new", "a\"b": "new", strings.Repeat("x", 200): "new", "ü": "new",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set(RequestIDHeader, sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Header().Get(RequestIDHeader) != want || w.Body.String() != want {
			t.Errorf("sent %q: header %q, context %q, want %q", sent, w.Header().Get(RequestIDHeader), w.Body, want)
		}
	}
}

// OBS-18: what can be counted is there at zero before it happens.
func TestMetricsStartAtZero(t *testing.T) {
	w := httptest.NewRecorder()
	NewMetrics().Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`kici_orch_executions_total{status="failed"} 0`,
		`kici_orch_dedup_hits_total 0`,
		`kici_orch_agents_active 0`,
		`kici_orchestrator_draining 0`,
		`kici_orch_scaler_adoption_lookup_failures_total 0`,
		`kici_orch_non_monotonic_job_status_writes_total{rejected_status="success"} 0`,
		`kici_orch_dispatch_queue_depth{status="queued"} 0`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
}
