// Package generic is the webhook of anything that can send an HTTP request: it has no repository of its own; its
// deliveries start the registered workflows whose generic_webhook trigger names it (ING-25).
package generic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// Kind is the kind of these sources.
const Kind = "generic"

// The ways to authenticate a sender (ING-2).
const (
	HMAC   = "hmac_sha256"
	Bearer = "bearer_token"
	IPs    = "ip_allowlist"
	None   = "none"
)

// Options is the kind's part of a stored source. Field names and defaults are ING-2's.
type Options struct {
	VerificationMethod   string       `json:"verificationMethod,omitempty"` // "" is hmac_sha256
	VerificationConfig   Verification `json:"verificationConfig,omitzero"`
	EventTypeHeader      string       `json:"eventTypeHeader,omitempty"`
	EventTypePath        string       `json:"eventTypePath,omitempty"` // dotted path into a JSON body
	IdempotencyKeyHeader string       `json:"idempotencyKeyHeader,omitempty"`
	IdempotencyKeyPath   string       `json:"idempotencyKeyPath,omitempty"`
	DedupWindowSeconds   int64        `json:"dedupWindowSeconds,omitempty"` // 0 is 300
	MaxPayloadBytes      int64        `json:"maxPayloadBytes,omitempty"`    // 0 is 1 MiB
	AllowedEvents        []string     `json:"allowedEvents,omitempty"`      // none is all
	StripHeaders         []string     `json:"stripHeaders,omitempty"`       // besides those always stripped
	RateLimitRPM         *int         `json:"rateLimitRpm,omitempty"`       // absent is 600; 0 is no limit
	Repository           string       `json:"repository,omitempty"`         // start only workflows of this repository
}

// Verification is the configuration of the method.
type Verification struct {
	HeaderName string   `json:"headerName,omitempty"` // hmac: x-signature-256; bearer: authorization
	AllowedIPs []string `json:"allowedIps,omitempty"` // addresses and CIDRs
}

// Defaults and bounds (ING-2, ING-8).
const (
	defaultDedup   = 300
	defaultMaxBody = 1 << 20
	maxMaxBody     = 10 << 20
	defaultRPM     = 600
)

// Source is one generic webhook.
type Source struct {
	cfg     source.Config
	opts    Options
	secret  string
	old     string // before a rotation, "" for none
	allowed []netip.Prefix
}

// New checks the options.
func New(cfg source.Config) (*Source, error) {
	var o Options
	if err := source.DecodeOptions(cfg, &o); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	allowed, _ := prefixes(o.VerificationConfig.AllowedIPs)
	return &Source{cfg: cfg, opts: o, secret: cfg.Secrets[source.SecretWebhook], old: cfg.Secrets[source.SecretWebhookOld], allowed: allowed}, nil
}

// NeedsSecret reports whether the method verifies with a shared secret.
func (o Options) NeedsSecret() bool {
	m := o.method()
	return m == HMAC || m == Bearer
}

func (o Options) method() string {
	if o.VerificationMethod == "" {
		return HMAC
	}
	return o.VerificationMethod
}

// Validate says everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains([]string{HMAC, Bearer, IPs, None}, o.method()) {
		fail("verificationMethod is %s, %s, %s or %s, not %q", HMAC, Bearer, IPs, None, o.VerificationMethod)
	}
	if _, err := prefixes(o.VerificationConfig.AllowedIPs); err != nil {
		errs = append(errs, err)
	}
	if o.method() == IPs && len(o.VerificationConfig.AllowedIPs) == 0 {
		fail("ip_allowlist needs verificationConfig.allowedIps")
	}
	for name, header := range map[string]string{
		"verificationConfig.headerName": o.VerificationConfig.HeaderName,
		"eventTypeHeader":               o.EventTypeHeader, "idempotencyKeyHeader": o.IdempotencyKeyHeader,
	} {
		if strings.ContainsAny(header, " \t\r\n:") {
			fail("%s %q is not a header name", name, header)
		}
	}
	if o.DedupWindowSeconds < 0 || o.DedupWindowSeconds > 30*24*3600 {
		fail("dedupWindowSeconds is between 1 and 2592000")
	}
	if o.MaxPayloadBytes < 0 || o.MaxPayloadBytes > maxMaxBody {
		fail("maxPayloadBytes is between 1 and %d", maxMaxBody)
	}
	if o.RateLimitRPM != nil && *o.RateLimitRPM < 0 {
		fail("rateLimitRpm must not be negative; 0 is no limit")
	}
	return errors.Join(errs...)
}

func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("allowedIps: %q is neither an address nor a network such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// Intake gives the limits with their defaults.
func (s *Source) Intake() source.Intake {
	in := source.Intake{MaxBody: defaultMaxBody, RPM: defaultRPM, Allowed: s.opts.AllowedEvents, DedupMs: defaultDedup * 1000, Secret: s.opts.NeedsSecret()}
	if s.opts.MaxPayloadBytes > 0 {
		in.MaxBody = s.opts.MaxPayloadBytes
	}
	if s.opts.RateLimitRPM != nil {
		in.RPM = *s.opts.RateLimitRPM
	}
	if s.opts.DedupWindowSeconds > 0 {
		in.DedupMs = s.opts.DedupWindowSeconds * 1000
	}
	return in
}

// Normalize makes a generic_webhook event whose payload is the body as JSON (ING-12). Which commit runs is decided by the
// registration that it starts.
func (s *Source) Normalize(_ context.Context, d source.Delivery) (ci.Event, error) {
	payload, err := asJSON(d.Headers["content-type"], d.Body)
	return ci.Event{
		Type: "generic_webhook", Name: d.Event, Action: d.Action, Source: s.cfg.Name, Payload: payload,
		Actor: s.cfg.Name,
	}, err
}

// Repository is the only one whose workflows this source may start, "" for any.
func (s *Source) Repository() string { return s.opts.Repository }

// HasRepo is false; none of the methods below can answer.
func (s *Source) HasRepo() bool { return false }

var errNoRepo = fmt.Errorf("a generic source has no repository: %w", source.ErrNotFound)

// Resolve always fails.
func (s *Source) Resolve(context.Context, string) (source.Commit, error) {
	return source.Commit{}, errNoRepo
}

// Files always fails.
func (s *Source) Files(context.Context, string) ([]source.File, error) { return nil, errNoRepo }

// ChangedFiles always fails.
func (s *Source) ChangedFiles(context.Context, string, string) ([]string, error) {
	return nil, errNoRepo
}

// DefaultBranch always fails.
func (s *Source) DefaultBranch(context.Context) (string, error) { return "", errNoRepo }

// Clone always fails.
func (s *Source) Clone(context.Context) (source.Clone, error) { return source.Clone{}, errNoRepo }

// Check verifies that a request could pass.
func (s *Source) Check(context.Context) error {
	if s.opts.NeedsSecret() && s.secret == "" {
		return fmt.Errorf("%w: source %s has no webhook secret", source.ErrMisconfigured, s.cfg.Name)
	}
	return nil
}

func (s *Source) header(name, fallback string) string {
	if name == "" {
		name = fallback
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}
