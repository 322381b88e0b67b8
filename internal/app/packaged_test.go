package app

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// What packaging/ asks of Prometheus must be what a server offers: a renamed metric is an alert that never fires.
func TestPackagedMetricsExist(t *testing.T) {
	s, _ := boot(t, Options{})
	_, text := get(t, s.URL()+"/metrics")
	offered := map[string]bool{"up": true}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`).FindAllStringSubmatch(text, -1) {
		offered[m[1]] = true
		if m[2] == "histogram" {
			offered[m[1]+"_bucket"] = true
		}
	}
	// These have no value before the first delivery, failure, or look of the node.
	for _, late := range []string{
		"kici_orch_webhooks_received_total", "kici_orch_scaler_spawn_failures_total", "kici_orch_scaler_cpus_used", "kici_orch_scaler_memory_bytes_used", "kici_orch_scaler_disk_free_bytes", "kici_orch_scaler_disk_floor_bytes",
	} {
		offered[late] = true
	}
	name := regexp.MustCompile(`\b(?:kici|process|go)_[a-z0-9_]+`)
	for _, file := range []string{"prometheus/kici.rules.yml", "grafana/kici.json"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "packaging", file))
		if err != nil {
			t.Fatal(err)
		}
		used := slices.Compact(slices.Sorted(slices.Values(name.FindAllString(string(data), -1))))
		if len(used) < 5 {
			t.Errorf("%s: only %d metrics found: the pattern is wrong", file, len(used))
		}
		for _, metric := range used {
			if !offered[metric] {
				t.Errorf("%s asks for %s, which no server offers", file, metric)
			}
		}
	}
}
