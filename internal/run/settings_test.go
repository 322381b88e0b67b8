package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/run"
)

func TestOverlay(t *testing.T) {
	s := run.DefaultSettings()
	env := map[string]string{"KICI_QUEUE_TIMEOUT_MS": "5000", "KICI_QUEUE_MAX_DEPTH": "7"}
	if err := s.Overlay(func(n string) string { return env[n] }); err != nil || s.QueueTimeout != 5*time.Second || s.QueueMaxDepth != 7 {
		t.Fatalf("%+v, %v", s, err)
	}
	env = map[string]string{"KICI_QUEUE_TIMEOUT_MS": "-1", "KICI_QUEUE_MAX_DEPTH": "many"}
	err := s.Overlay(func(n string) string { return env[n] })
	if err == nil || !strings.Contains(err.Error(), "TIMEOUT") || !strings.Contains(err.Error(), `"many"`) {
		t.Fatalf("got %v", err)
	}
}
