package scaler

import (
	"strings"
	"testing"
	"time"
)

func TestOverlay(t *testing.T) {
	from := func(env map[string]string) func(string) string { return func(n string) string { return env[n] } }
	s := DefaultSettings()
	if err := s.Overlay(from(nil)); err != nil || s != DefaultSettings() {
		t.Errorf("nothing set: %+v, %v", s, err)
	}
	set := map[string]string{}
	for _, name := range Variables() {
		set[name] = "600000"
	}
	if err := s.Overlay(from(set)); err != nil {
		t.Fatal(err)
	}
	const d = 10 * time.Minute
	want := Settings{SpawnTimeout: d, RegisterTimeout: d, TokenTTL: d, BackoffBase: d, BackoffMax: d, Interval: d, DeleteTimeout: time.Minute, RetireGrace: 10 * time.Minute, MinFreeDisk: 256 << 20}
	if s != want {
		t.Errorf("got %+v", s)
	}
	s = DefaultSettings()
	if err := s.Overlay(from(map[string]string{"KICI_SCALER_SPAWN_TIMEOUT_MS": "1000"})); err != nil || s.RegisterTimeout != 5*time.Minute {
		t.Errorf("MG-24: %v, %v", s.RegisterTimeout, err)
	}
	for name, value := range map[string]string{
		"KICI_SCALER_SPAWN_TIMEOUT_MS": "5s", "KICI_AGENT_TOKEN_TTL_MS": "999", "KICI_SCALER_PROVISION_BACKOFF_MAX_MS": "2000",
	} {
		s := DefaultSettings()
		if err := s.Overlay(from(map[string]string{name: value})); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
