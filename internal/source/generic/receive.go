package generic

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/source"
)

// Verify authenticates the request by the configured method, secrets in constant time (ING-10, ING-11).
func (s *Source) Verify(r source.Request) error {
	if s.opts.NeedsSecret() && s.secret == "" {
		return fmt.Errorf("%w: source %s has no webhook secret", source.ErrMisconfigured, s.cfg.Name)
	}
	ok := false
	switch s.opts.method() {
	case HMAC:
		signature := r.Header.Get(s.header(s.opts.VerificationConfig.HeaderName, source.SignatureHeader))
		ok = source.VerifySignature(s.secret, signature, r.Body) || source.VerifySignature(s.old, signature, r.Body)
	case Bearer:
		given := bearer(r.Header.Get(s.header(s.opts.VerificationConfig.HeaderName, "Authorization")))
		ok = sameSecret(s.secret, given) || s.old != "" && sameSecret(s.old, given)
	case IPs:
		for _, p := range s.allowed {
			ok = ok || p.Contains(r.Client.Unmap())
		}
	case None:
		ok = true
	}
	if !ok {
		return source.ErrUnauthorized
	}
	return nil
}

func bearer(value string) string {
	if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(token)
	}
	return value
}

// sameSecret compares digests, so that not even the length shows in the time taken.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Read finds event name and delivery id (ING-12, ING-13).
func (s *Source) Read(r source.Request) (source.Received, error) {
	var body any
	parse := func() any { // once, and only when some path needs it
		if body == nil {
			text, _ := asJSON(r.Header.Get("Content-Type"), r.Body)
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.UseNumber()
			_ = dec.Decode(&body)
		}
		return body
	}
	pick := func(header, path string) string {
		if header != "" {
			if v := r.Header.Get(header); v != "" {
				return v
			}
		}
		if path == "" {
			return ""
		}
		return lookup(parse(), path)
	}
	event := pick(s.opts.EventTypeHeader, s.opts.EventTypePath)
	if event == "" {
		event = r.Header.Get("X-Event-Type")
	}
	if event == "" {
		event = "default"
	}
	out := source.Received{Delivery: source.Delivery{Event: source.Bound(event, source.MaxEventBytes), Body: r.Body}}
	if key := pick(s.opts.IdempotencyKeyHeader, s.opts.IdempotencyKeyPath); key != "" {
		out.ID, out.Keyed = source.Bound(key, source.MaxIDBytes), true
	} else {
		out.ID = source.SenderID(r.Header)
	}
	out.Headers = source.StoredHeaders(r.Header, s.stripped()...)
	return out, nil
}

func (s *Source) stripped() []string {
	strip := append([]string(nil), source.Stripped...)
	for _, h := range append(s.opts.StripHeaders, s.opts.VerificationConfig.HeaderName) {
		strip = append(strip, strings.ToLower(h))
	}
	return strip
}

// asJSON returns the body as a JSON object: an object as it is, other JSON as {"value"}, form fields as an object, anything
// else as {"body"} (ING-12).
func asJSON(contentType string, body []byte) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(body)
	if json.Valid(trimmed) {
		if trimmed[0] == '{' {
			return json.RawMessage(trimmed), nil
		}
		return encode(map[string]json.RawMessage{"value": trimmed})
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/x-www-form-urlencoded" {
		fields, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, fmt.Errorf("%w: form body: %w", source.ErrInvalid, err)
		}
		object := make(map[string]any, len(fields))
		for k, v := range fields {
			if object[k] = v; len(v) == 1 {
				object[k] = v[0]
			}
		}
		return encode(object)
	}
	return encode(map[string]string{"body": strings.ToValidUTF8(string(body), "\ufffd")})
}

func encode(v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", source.ErrInvalid, err)
	}
	return text, nil
}

// lookup follows a dotted path such as $.issue.labels.0.name and returns the scalar there as text, "" for none.
func lookup(v any, path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	for part := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			v = node[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(node) {
				return ""
			}
			v = node[i]
		default:
			return ""
		}
	}
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}
