// Package github is the dialect of GitHub and GitHub Enterprise: a repository's webhook, and a token for the REST API.
package github

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strings"

	"github.com/kici-go/kici/internal/source"
)

// Kind is the kind of these sources.
const Kind = source.KindGitHub

const (
	public     = "https://github.com"
	publicAPI  = "https://api.github.com"
	apiVersion = "2022-11-28"
)

// Dialect is how GitHub speaks.
type Dialect struct{}

// Kind implements forge.Dialect.
func (Dialect) Kind() string { return Kind }

// Public implements forge.Dialect.
func (Dialect) Public() string { return public }

// APIBase implements forge.Dialect.
func (Dialect) APIBase(web string) string {
	if strings.EqualFold(web, public) {
		return publicAPI
	}
	return web + "/api/v3" // GitHub Enterprise Server
}

// Header pins the version of the API.
func (Dialect) Header() map[string]string {
	return map[string]string{"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": apiVersion}
}

// CloneURL implements forge.Dialect.
func (Dialect) CloneURL(web, repo string, ssh bool) string {
	if u, err := url.Parse(web); ssh && err == nil {
		return "git@" + u.Hostname() + ":" + repo + ".git"
	}
	return web + "/" + repo + ".git"
}

// CloneUser implements forge.Dialect: GitHub reads the token only, but wants a name before it.
func (Dialect) CloneUser() string { return "x-access-token" }

// The headers of a delivery.
const (
	headerEvent     = "X-GitHub-Event"
	headerDelivery  = "X-GitHub-Delivery"
	headerSignature = "X-Hub-Signature-256"
	headerSHA1      = "X-Hub-Signature"
)

// Verify checks the signature over the raw bytes. SHA-1 is refused (ING-7).
func (Dialect) Verify(secret string, r source.Request) error {
	given := r.Header.Get(headerSignature)
	switch {
	case source.VerifySignature(secret, given, r.Body):
		return nil
	case given == "" && r.Header.Get(headerSHA1) != "":
		return fmt.Errorf("%w: it carries only an SHA-1 signature, which is not accepted; GitHub sends %s as well when the webhook has a secret", source.ErrUnauthorized, headerSignature)
	case given == "":
		return fmt.Errorf("%w: it has no %s; give the webhook the source's secret", source.ErrUnauthorized, headerSignature)
	}
	return source.ErrUnauthorized
}

// Read names event and delivery. The body may be a form, as GitHub's older webhooks send it; what is kept is its JSON.
func (Dialect) Read(r source.Request) (source.Received, error) {
	event, id := r.Header.Get(headerEvent), r.Header.Get(headerDelivery)
	if event == "" || id == "" {
		return source.Received{}, fmt.Errorf("%w: the headers %s and %s are required: is this GitHub?", source.ErrInvalid, headerEvent, headerDelivery)
	}
	headers := source.StoredHeaders(r.Header, source.Stripped...)
	body, err := payload(r)
	if err != nil {
		return source.Received{}, err
	}
	headers["content-type"] = "application/json"
	var b struct {
		Action string `json:"action"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return source.Received{}, fmt.Errorf("%w: the body is not GitHub's JSON: %w", source.ErrInvalid, err)
	}
	return source.Received{Delivery: source.Delivery{ID: id, Event: event, Action: b.Action, Headers: headers, Body: body}}, nil
}

func payload(r source.Request) ([]byte, error) {
	body := r.Body
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil || !form.Has("payload") {
			return nil, fmt.Errorf("%w: the form has no field `payload`; set the webhook's content type to application/json", source.ErrInvalid)
		}
		body = []byte(form.Get("payload"))
	}
	if t := bytes.TrimLeft(body, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return nil, fmt.Errorf("%w: the body is not a JSON object", source.ErrInvalid)
	}
	return body, nil
}
