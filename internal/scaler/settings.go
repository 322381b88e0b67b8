package scaler

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Settings are the knobs of the node's loop; the zero value is not usable, see DefaultSettings. Those with a variable can be set by
// it, in milliseconds.
type Settings struct {
	SpawnTimeout    time.Duration // KICI_SCALER_SPAWN_TIMEOUT_MS: bounds one Create (MG-14)
	RegisterTimeout time.Duration // from the start of Create to the registration, never less than the default (MG-24)
	TokenTTL        time.Duration // KICI_AGENT_TOKEN_TTL_MS: limits the first registration (D13)
	BackoffBase     time.Duration // KICI_SCALER_PROVISION_BACKOFF_BASE_MS (MG-27)
	BackoffMax      time.Duration // KICI_SCALER_PROVISION_BACKOFF_MAX_MS, at least the base
	Interval        time.Duration // KICI_SCALER_PENDING_SWEEP_INTERVAL_MS: between two looks when nothing happens
	DeleteTimeout   time.Duration // bounds one Delete
	MinFreeDisk     int64         // bytes on the disk of a scaler's agents below which it starts nothing, where its entry says no other
	RetireGrace     time.Duration // for how long a retired scaler's host is still looked at when its last agent is gone
}

// DefaultSettings are the specification's.
func DefaultSettings() Settings {
	return Settings{
		SpawnTimeout: 5 * time.Minute, RegisterTimeout: 5 * time.Minute, TokenTTL: time.Hour,
		BackoffBase: 30 * time.Second, BackoffMax: 15 * time.Minute,
		Interval: 10 * time.Second, DeleteTimeout: time.Minute, RetireGrace: 10 * time.Minute, MinFreeDisk: 256 << 20,
	}
}

// Limits are the part of the settings that may change while the server runs.
type Limits struct {
	SpawnTimeout            time.Duration // of the organisation
	TokenTTL                time.Duration
	BackoffBase, BackoffMax time.Duration
}

// limits are those that hold now for an organisation; "" asks for what is the cluster's.
func (n *Node) limits(orgID string) Limits {
	if n.d.Limits != nil {
		return n.d.Limits(orgID)
	}
	s := n.d.Settings
	return Limits{SpawnTimeout: s.SpawnTimeout, TokenTTL: s.TokenTTL, BackoffBase: s.BackoffBase, BackoffMax: s.BackoffMax}
}

const varBackoffMax = "KICI_SCALER_PROVISION_BACKOFF_MAX_MS"

type knob struct {
	name  string
	field *time.Duration
}

func (s *Settings) knobs() []knob {
	return []knob{
		{"KICI_SCALER_SPAWN_TIMEOUT_MS", &s.SpawnTimeout},
		{"KICI_AGENT_TOKEN_TTL_MS", &s.TokenTTL},
		{"KICI_SCALER_PROVISION_BACKOFF_BASE_MS", &s.BackoffBase},
		{varBackoffMax, &s.BackoffMax},
		{"KICI_SCALER_PENDING_SWEEP_INTERVAL_MS", &s.Interval},
	}
}

// leastSetting is the least that any of the variables may say.
const leastSetting = time.Second

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
		if err != nil || d < leastSetting {
			errs = append(errs, fmt.Errorf("%s must be a number of milliseconds, at least %d, got %q", k.name, leastSetting.Milliseconds(), text))
			continue
		}
		*k.field = d
	}
	if s.BackoffMax < s.BackoffBase {
		errs = append(errs, fmt.Errorf("%s must not be less than the base of the back-off, %d", varBackoffMax, s.BackoffBase.Milliseconds()))
	}
	s.RegisterTimeout = max(s.SpawnTimeout, DefaultSettings().RegisterTimeout)
	return errors.Join(errs...)
}
