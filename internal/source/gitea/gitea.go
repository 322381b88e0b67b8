// Package gitea is the dialect of Gitea and of Forgejo, which sends the same under names of its own beside Gitea's.
package gitea

import (
	"bytes"
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
func (Dialect) Kind() string { return "gitea" }

// Public is empty: no instance is the public one.
func (Dialect) Public() string { return "" }

// APIBase of the instance whose web interface is at web.
func (Dialect) APIBase(web string) string { return web + "/api/v1" }

// CloneURL of a repository. An instance whose SSH server listens at a port of its own needs the option cloneUrl.
func (Dialect) CloneURL(web, repo string, ssh bool) string {
	if u, err := url.Parse(web); ssh && err == nil {
		return "git@" + u.Hostname() + ":" + repo + ".git"
	}
	return web + "/" + repo + ".git"
}

// CloneUser may be anything where the password is a token.
func (Dialect) CloneUser() string { return "kici" }

// The prefixes under which one request carries the same thing several times, newest name first.
var prefixes = []string{"X-Forgejo-", "X-Gitea-", "X-Gogs-"}

func header(h http.Header, name string) string {
	for _, p := range prefixes {
		if v := h.Get(p + name); v != "" {
			return v
		}
	}
	return ""
}

// Verify checks the HMAC of the body in constant time. X-Hub-Signature (SHA-1) is never looked at.
func (Dialect) Verify(secret string, r source.Request) error {
	signature := header(r.Header, "Signature")
	if signature == "" {
		signature = r.Header.Get("X-Hub-Signature-256")
	}
	switch {
	case strings.TrimPrefix(signature, "sha256=") == "":
		return fmt.Errorf("%w: the request has no signature; give the webhook its secret", source.ErrUnauthorized)
	case !source.VerifySignature(secret, signature, r.Body):
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") { // its signature is of something else
			return fmt.Errorf("%w: the webhook sends a form; set its content type to application/json", source.ErrUnauthorized)
		}
		return source.ErrUnauthorized
	}
	return nil
}

// Read takes event and delivery id from the headers. A replay from the forge's delivery list has an id of its own.
func (Dialect) Read(r source.Request) (source.Received, error) {
	event, id := header(r.Header, "Event"), header(r.Header, "Delivery")
	if event == "" {
		return source.Received{}, fmt.Errorf("%w: the header x-gitea-event (or x-forgejo-event) is missing", source.ErrInvalid)
	}
	if id == "" {
		return source.Received{}, fmt.Errorf("%w: the header x-gitea-delivery (or x-forgejo-delivery) is missing", source.ErrInvalid)
	}
	if body := bytes.TrimLeft(r.Body, " \t\r\n"); len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return source.Received{}, fmt.Errorf("%w: the body is not a JSON object", source.ErrInvalid)
	}
	return source.Received{Delivery: source.Delivery{
		ID: source.Bound(id, source.MaxIDBytes), Event: source.Bound(event, source.MaxEventBytes),
		Headers: source.StoredHeaders(r.Header, source.Stripped...), Body: r.Body,
	}}, nil
}

var _ forge.Dialect = Dialect{}
