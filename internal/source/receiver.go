package source

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Request is one HTTP request to a source's webhook address. Body is bounded by Intake.MaxBody; nothing in it is verified yet.
type Request struct {
	Header http.Header
	Body   []byte
	Client netip.Addr // of the socket, or of the forwarding header of a trusted proxy (ING-11)
}

// Intake says how much a source takes in.
type Intake struct {
	MaxBody int64
	RPM     int      // requests a minute; 0 is no limit
	Allowed []string // event names; empty is all (ING-2)
	DedupMs int64    // how long an idempotency key is remembered
	Secret  bool     // the sender must know the shared secret "webhook"
}

// Receiver is implemented by sources whose deliveries come by webhook. Its methods do no I/O.
type Receiver interface {
	Intake() Intake
	// Verify authenticates the request in constant time. ErrUnauthorized says no; ErrMisconfigured that no request can pass.
	Verify(Request) error
	// Read makes the delivery of a verified request: event name and sender's id, credentials stripped from the headers.
	// ErrInvalid says what is wrong with it.
	Read(Request) (Received, error)
}

// Received is a verified delivery that is not stored yet.
type Received struct {
	Delivery      // ID is "" when the sender gave none
	Keyed    bool // ID is an idempotency key, remembered for Intake.DedupMs only (ING-20)
}

// Ancestor is implemented by sources that can compare commits: it reports whether commit a can be reached from b.
type Ancestor interface {
	IsAncestor(ctx context.Context, a, b string) (bool, error)
}

// Located is implemented by sources whose repository is a directory of this machine.
type Located interface {
	Path() string
}

// Limited is implemented by sources that may start only the workflows of one repository ("" is any).
type Limited interface {
	Repository() string
}

// The errors of Verify.
var (
	ErrUnauthorized  = errors.New("the request is not signed by this source's secret")
	ErrMisconfigured = errors.New("the source is misconfigured")
)

// SignatureHeader carries Sign's result where a source names no other header (ING-10).
const SignatureHeader = "X-Signature-256"

// Sign returns "sha256=<hex>" of the body under the secret.
func Sign(secret string, body []byte) string {
	return "sha256=" + hex.EncodeToString(mac(secret, body))
}

// VerifySignature reports in constant time whether signature, with or without "sha256=", is that of the body.
func VerifySignature(secret, signature string, body []byte) bool {
	const prefix = "sha256="
	if len(signature) > len(prefix) && signature[:len(prefix)] == prefix {
		signature = signature[len(prefix):]
	}
	given, err := hex.DecodeString(signature)
	return hmac.Equal(given, mac(secret, body)) && err == nil && secret != ""
}

func mac(secret string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(body)
	return h.Sum(nil)
}

// Payload is the body that kici itself sends for a push: its hooks, `source trigger` and local sources understand it. The names
// are those of the forges.
type Payload struct {
	Ref     string        `json:"ref"` // full ref
	Before  string        `json:"before,omitempty"`
	After   string        `json:"after"`
	Deleted bool          `json:"deleted,omitempty"`
	Pusher  PayloadPusher `json:"pusher,omitzero"`
}

// PayloadPusher is who pushed.
type PayloadPusher struct {
	Name string `json:"name,omitempty"`
}

// DecodeOptions reads a source's options strictly: an unknown field is an error that names it.
func DecodeOptions(c Config, into any) error {
	if len(c.Options) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(c.Options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("options of source %s: %s", c.Name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Stripped are the headers that are never stored (ING-2). Adapters add the one that carries their credential.
var Stripped = []string{"authorization", "cookie", "set-cookie", "proxy-authorization", "x-api-key", "x-auth-token"}

// Bounds of stored headers: what is beyond is left out.
const (
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// StoredHeaders returns h with lower-case names, one value each, without those of strip and within bounds.
func StoredHeaders(h http.Header, strip ...string) map[string]string {
	kept, size := make(map[string]string, len(h)), 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		value := strings.ToValidUTF8(strings.Join(h[name], ", "), "\ufffd")
		size += len(name) + len(value)
		if lower := strings.ToLower(name); !slices.Contains(strip, lower) {
			kept[lower] = value
		}
		if len(kept) == maxHeaders || size > maxHeaderBytes {
			break
		}
	}
	return kept
}

// SenderID returns the id that a sender without a header of its own gave (ING-13), bounded; "" for none.
func SenderID(h http.Header) string {
	for _, name := range []string{"X-Delivery-Id", "X-Request-Id"} {
		if id := h.Get(name); id != "" {
			return Bound(id, MaxIDBytes)
		}
	}
	return ""
}

// Bounds of what a sender may name.
const (
	MaxIDBytes    = 256
	MaxEventBytes = 100
)

// Bound returns s as valid text of at most limit bytes. A longer one keeps its identity through a digest.
func Bound(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\ufffd")
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return strings.ToValidUTF8(s[:limit-33], "") + "~" + hex.EncodeToString(sum[:16])
}

// CheckPayload says what no expression could read of an event's payload: JSON allows numbers of any size, the values of an expression
// do not. ErrInvalid says so.
func CheckPayload(payload json.RawMessage) error {
	var v map[string]any
	if err := json.Unmarshal(payload, &v); err != nil {
		return fmt.Errorf("%w: body: %w", ErrInvalid, err)
	}
	return nil
}
