package dispatch

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Settings are the knobs of this room. DefaultSettings has the spec's values; those with a variable can be set by it, in
// milliseconds.
type Settings struct {
	Interval        time.Duration // between passes that nothing woke
	AckTimeout      time.Duration // KICI_DISPATCH_ACK_TIMEOUT_MS: dispatch → acknowledgement, at least 1 s (QUE-10)
	RecoveryGrace   time.Duration // KICI_RECOVERY_GRACE_MS: link lost → job requeued or failed (D17)
	SpawnTimeout    time.Duration // requested → registered, until the node sets its own deadline
	UnroutableGrace time.Duration // KICI_UNROUTABLE_GRACE_MS: QUE-14; 0 never ends a job for it
	JobStale        time.Duration // KICI_JOB_STALE_MS: without a job heartbeat (STL-1)
	CancelRedrive   time.Duration // CAN-5; after twice as long the orchestrator ends the jobs itself
	SweepInterval   time.Duration // NEED-8
	Window          int           // jobs read per shape and pass (D30)
	MovesPerWrite   int           // assignments and launches in one transaction
}

// DefaultSettings returns the spec's values.
func DefaultSettings() Settings {
	return Settings{
		Interval: time.Second, AckTimeout: 10 * time.Second, RecoveryGrace: 60 * time.Second, SpawnTimeout: 300 * time.Second,
		UnroutableGrace: 120 * time.Second, JobStale: 120 * time.Second,
		CancelRedrive: 240 * time.Second, SweepInterval: 60 * time.Second, Window: 500, MovesPerWrite: 100,
	}
}

// Limits are the part of the settings that may change while the server runs. They answer at once.
type Limits struct {
	UnroutableGrace time.Duration                    // Settings.UnroutableGrace
	AckTimeout      func(orgID string) time.Duration // Settings.AckTimeout of one organisation
	LaunchFailures  int64                            // in a row, from which a reason says where to look (MG-29); 0 is the usual number
}

func (l Limits) ackTimeout(orgID string) time.Duration { return max(l.AckTimeout(orgID), time.Second) }

func (d *Dispatcher) limits() Limits {
	if d.Limits != nil {
		return d.Limits()
	}
	return Limits{UnroutableGrace: d.Settings.UnroutableGrace, AckTimeout: func(string) time.Duration { return d.Settings.AckTimeout }}
}

// knob is one setting with a variable.
type knob struct {
	name  string
	field *time.Duration
	least time.Duration
}

func (s *Settings) knobs() []knob {
	return []knob{
		{"KICI_DISPATCH_ACK_TIMEOUT_MS", &s.AckTimeout, time.Second},
		{"KICI_RECOVERY_GRACE_MS", &s.RecoveryGrace, 0},
		{"KICI_UNROUTABLE_GRACE_MS", &s.UnroutableGrace, 0},
		{"KICI_JOB_STALE_MS", &s.JobStale, time.Second},
	}
}

// Variables names the variables of this room.
func Variables() []string {
	var s Settings
	var names []string
	for _, k := range s.knobs() {
		names = append(names, k.name)
	}
	return names
}

// Overlay sets what getenv has a value for. All mistakes are reported at once.
func (s *Settings) Overlay(getenv func(string) string) error {
	var errs []error
	for _, k := range s.knobs() {
		text := getenv(k.name)
		if text == "" {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 32)
		d := time.Duration(ms) * time.Millisecond
		if err != nil || d < k.least {
			errs = append(errs, fmt.Errorf("%s must be a number of milliseconds, at least %d, got %q", k.name, k.least.Milliseconds(), text))
			continue
		}
		*k.field = d
	}
	return errors.Join(errs...)
}
