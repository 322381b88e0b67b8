// Package gitlab is the dialect of GitLab, gitlab.com or one's own.
package gitlab

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
)

// Dialect implements forge.Dialect.
type Dialect struct{}

// Kind is the kind of these sources.
func (Dialect) Kind() string { return "gitlab" }

// Public is the web address of the public instance.
func (Dialect) Public() string { return "https://gitlab.com" }

// APIBase of the instance whose web interface is at web.
func (Dialect) APIBase(web string) string { return web + "/api/v4" }

// CloneURL of a repository. An instance whose SSH server listens at a port of its own needs the option cloneUrl.
func (Dialect) CloneURL(web, repo string, ssh bool) string {
	if u, err := url.Parse(web); ssh && err == nil {
		return "git@" + u.Hostname() + ":" + repo + ".git"
	}
	return web + "/" + repo + ".git"
}

// CloneUser goes with every kind of token.
func (Dialect) CloneUser() string { return "oauth2" }

const tokenHeader = "X-Gitlab-Token"

// Verify compares the token that GitLab sends with every delivery. It is no signature: whoever reads one delivery can make another,
// so the webhook's address must be https outside of one's own network.
func (Dialect) Verify(secret string, r source.Request) error {
	given := r.Header.Get(tokenHeader)
	if given == "" {
		return fmt.Errorf("%w: the request has no X-Gitlab-Token; give the webhook its secret token", source.ErrUnauthorized)
	}
	a, b := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(given)) // so that not even the length shows in the time taken
	if subtle.ConstantTimeCompare(a[:], b[:]) != 1 || secret == "" {
		return source.ErrUnauthorized
	}
	return nil
}

// Read takes event and delivery id from the headers. The event is named as in object_kind: "Tag Push Hook" is tag_push.
func (Dialect) Read(r source.Request) (source.Received, error) {
	event := r.Header.Get("X-Gitlab-Event")
	if event == "" {
		return source.Received{}, fmt.Errorf("%w: the header x-gitlab-event is missing", source.ErrInvalid)
	}
	id := deliveryID(r.Header, r.Body)
	if id == "" {
		return source.Received{}, fmt.Errorf("%w: the headers idempotency-key and x-gitlab-event-uuid are missing", source.ErrInvalid)
	}
	if body := bytes.TrimLeft(r.Body, " \t\r\n"); len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return source.Received{}, fmt.Errorf("%w: the body is not a JSON object", source.ErrInvalid)
	}
	event = strings.ToLower(strings.ReplaceAll(strings.TrimSuffix(event, " Hook"), " ", "_"))
	return source.Received{Delivery: source.Delivery{
		ID: source.Bound(id, source.MaxIDBytes), Event: source.Bound(event, source.MaxEventBytes),
		Headers: source.StoredHeaders(r.Header, append([]string{strings.ToLower(tokenHeader)}, source.Stripped...)...), Body: r.Body,
	}}, nil
}

// deliveryID is what stays the same when GitLab repeats a delivery, and differs between two. Of its three headers only
// Idempotency-Key is promised to be so (GitLab 17.4 and later). X-Gitlab-Webhook-UUID names the webhook, and is the same for all of its
// deliveries. X-Gitlab-Event-UUID names the event, but events that follow from a webhook's own API calls share one; older versions have
// nothing better, so that there the body, which a repetition does not change, tells them apart.
func deliveryID(h http.Header, body []byte) string {
	if key := h.Get("Idempotency-Key"); key != "" {
		return key
	}
	id := h.Get("X-Gitlab-Event-UUID")
	if id == "" {
		return ""
	}
	sum := sha256.Sum256(body)
	return id + "-" + hex.EncodeToString(sum[:8])
}

var _ forge.Dialect = Dialect{}
