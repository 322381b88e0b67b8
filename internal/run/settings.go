package run

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Settings are the knobs of this room. DefaultSettings has the spec's values; those with a variable can be set by it.
type Settings struct {
	QueueTimeout        time.Duration // KICI_QUEUE_TIMEOUT_MS: how long a job may wait for an agent (QUE-3); 0 is for ever
	QueueMaxDepth       int64         // KICI_QUEUE_MAX_DEPTH: waiting jobs beyond which a new one fails with "queue full" (QUE-2, D16); 0 is no bound
	ConcurrencyWait     time.Duration // KICI_CONCURRENCY_WAIT_TIMEOUT_MS: how long a run or job may wait for its concurrency group (CON-4); 0 is for ever
	MaxDispatchAttempts int64         // requeues at which a job fails (QUE-11)
	RejectRest          time.Duration // an agent that refused a job gets none for so long
	MaxChainDepth       int64         // lifecycle events at this depth are not written (EVT-5)
	EventTTL            time.Duration // of lifecycle events (EVT-7)
	ServerURL           string        // kici.server_url in expressions; '' when unknown
}

// DefaultSettings returns the spec's values.
func DefaultSettings() Settings {
	return Settings{
		QueueTimeout: time.Hour, QueueMaxDepth: 50_000, ConcurrencyWait: time.Hour, MaxDispatchAttempts: 5, RejectRest: 10 * time.Second, MaxChainDepth: 10,
		EventTTL: 7 * 24 * time.Hour,
	}
}

// Limits are the part of the settings that may change while the server runs.
func (s Settings) Limits() Limits {
	return Limits{QueueTimeout: s.QueueTimeout, QueueMaxDepth: s.QueueMaxDepth, ConcurrencyWait: s.ConcurrencyWait, EventTTL: s.EventTTL}
}

const (
	varQueueTimeout    = "KICI_QUEUE_TIMEOUT_MS"
	varQueueMaxDepth   = "KICI_QUEUE_MAX_DEPTH"
	varConcurrencyWait = "KICI_CONCURRENCY_WAIT_TIMEOUT_MS"
)

// Variables names the variables of this room.
func Variables() []string { return []string{varQueueTimeout, varQueueMaxDepth, varConcurrencyWait} }

// Overlay sets what getenv has a value for. All mistakes are reported at once.
func (s *Settings) Overlay(getenv func(string) string) error {
	var errs []error
	number := func(name string, set func(int64)) {
		text := getenv(name)
		if text == "" {
			return
		}
		n, err := strconv.ParseInt(text, 10, 40)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%s must be a whole number from 0, got %q", name, text))
			return
		}
		set(n)
	}
	number(varQueueTimeout, func(n int64) { s.QueueTimeout = time.Duration(n) * time.Millisecond })
	number(varQueueMaxDepth, func(n int64) { s.QueueMaxDepth = n })
	number(varConcurrencyWait, func(n int64) { s.ConcurrencyWait = time.Duration(n) * time.Millisecond })
	return errors.Join(errs...)
}
