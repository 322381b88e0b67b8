package dispatch

import (
	"strings"
	"testing"
	"time"
)

func TestOverlay(t *testing.T) {
	s := DefaultSettings()
	env := map[string]string{"KICI_DISPATCH_ACK_TIMEOUT_MS": "1500", "KICI_UNROUTABLE_GRACE_MS": "0"}
	if err := s.Overlay(func(n string) string { return env[n] }); err != nil {
		t.Fatal(err)
	}
	if s.AckTimeout != 1500*time.Millisecond || s.UnroutableGrace != 0 || s.RecoveryGrace != time.Minute {
		t.Fatalf("%+v", s)
	}
	env = map[string]string{"KICI_DISPATCH_ACK_TIMEOUT_MS": "999", "KICI_RECOVERY_GRACE_MS": "1m"}
	err := s.Overlay(func(n string) string { return env[n] })
	if err == nil || !strings.Contains(err.Error(), "at least 1000") || !strings.Contains(err.Error(), `got "1m"`) {
		t.Fatalf("got %v", err)
	}
	if len(Variables()) != 4 {
		t.Fatal(Variables())
	}
}
