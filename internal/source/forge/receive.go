package forge

import (
	"fmt"

	"github.com/kici-go/kici/internal/source"
)

const dedupMs = 24 * 60 * 60 * 1000

// Intake has no rate limit: only the forge knows the secret, and a burst of pushes is real work.
func (s *Source) Intake() source.Intake {
	return source.Intake{MaxBody: s.opts.MaxPayload, DedupMs: dedupMs, Secret: true}
}

// Verify accepts the current secret and, while it is being replaced, the one before. Both are always tried, so that the time tells
// nothing.
func (s *Source) Verify(r source.Request) error {
	var refused error
	tried, passed := 0, 0
	for _, key := range []string{source.SecretWebhook, source.SecretWebhookOld} {
		secret := s.cfg.Secrets[key]
		if secret == "" {
			continue
		}
		tried++
		if err := s.dialect.Verify(secret, r); err == nil {
			passed++
		} else if refused == nil {
			refused = err
		}
	}
	switch {
	case tried == 0:
		return fmt.Errorf("%w: source %s has no webhook secret", source.ErrMisconfigured, s.cfg.Name)
	case passed > 0:
		return nil
	}
	return refused
}

// Read names event and delivery as the forge's headers do.
func (s *Source) Read(r source.Request) (source.Received, error) {
	got, err := s.dialect.Read(r)
	if err != nil {
		return got, err
	}
	got.ID, got.Event = source.Bound(got.ID, source.MaxIDBytes), source.Bound(got.Event, source.MaxEventBytes)
	got.Action = source.Bound(got.Action, source.MaxEventBytes)
	delete(got.Headers, source.TriggerHeader)
	return got, nil
}
