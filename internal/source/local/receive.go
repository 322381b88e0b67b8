package local

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/source"
)

const (
	defaultMaxBody = 1 << 20
	dedupMs        = 24 * 60 * 60 * 1000
)

// Intake has no rate limit: only holders of the secret get in, and a burst of pushes is real work.
func (s *Source) Intake() source.Intake {
	limit := s.opts.MaxPayloadBytes
	if limit == 0 {
		limit = defaultMaxBody
	}
	return source.Intake{MaxBody: limit, DedupMs: dedupMs, Secret: true}
}

// Verify checks the HMAC of the body.
func (s *Source) Verify(r source.Request) error {
	if s.webhook == "" {
		return fmt.Errorf("%w: source %s has no webhook secret", source.ErrMisconfigured, s.cfg.Name)
	}
	signature := r.Header.Get(source.SignatureHeader)
	if !source.VerifySignature(s.webhook, signature, r.Body) && !source.VerifySignature(s.old, signature, r.Body) {
		return source.ErrUnauthorized
	}
	return nil
}

// Read needs a JSON object and the header x-event-type (ING-12).
func (s *Source) Read(r source.Request) (source.Received, error) {
	event := r.Header.Get("X-Event-Type")
	if event == "" {
		return source.Received{}, fmt.Errorf("%w: the header x-event-type is missing (push or pull_request)", source.ErrInvalid)
	}
	if body := bytes.TrimLeft(r.Body, " \t\r\n"); len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return source.Received{}, fmt.Errorf("%w: the body is not a JSON object", source.ErrInvalid)
	}
	return source.Received{Delivery: source.Delivery{
		ID: source.SenderID(r.Header), Event: source.Bound(event, source.MaxEventBytes),
		Headers: source.StoredHeaders(r.Header, source.Stripped...), Body: r.Body,
	}}, nil
}
