// Package forge is the source whose repository lives on a forge: GitHub, Gitea (and Forgejo) or GitLab. What they share is
// here: the options, a mirror of the repository for reading commits, the HTTP client with its bounds, the rules for forks. What
// differs is a Dialect, one folder each.
package forge

import (
	"context"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// Dialect is how one kind of forge speaks: its webhooks and its API. It is stateless; what it needs comes as arguments.
type Dialect interface {
	Kind() string       // github, gitea, gitlab
	DefaultAPI() string // base address of the API of the public instance, "" when there is none
	// Verify authenticates a webhook under one secret in constant time; the source asks for each of its secrets.
	Verify(secret string, r source.Request) error
	// Read names the event and the delivery id of a verified request.
	Read(r source.Request) (source.Received, error)
	// Parse turns a delivery into an event, as far as its body tells: comment events have no commit yet. ErrIgnored and
	// ErrInvalid as in source.Source.
	Parse(d source.Delivery) (ci.Event, error)
	// CloneURL of a repository by HTTPS or SSH, made of the address of the web interface.
	CloneURL(web, repo string, ssh bool) string
	// CloneUser is the user name that goes with a token in HTTPS clones.
	CloneUser() string

	ReportStatus(ctx context.Context, api *API, repo string, s source.CommitStatus) error
	InstallHook(ctx context.Context, api *API, repo, address, secret string) error
	// DefaultBranch asks the API; it also proves that the token works.
	DefaultBranch(ctx context.Context, api *API, repo string) (string, error)
}

// Redelivers is implemented by dialects whose forge keeps a log of deliveries.
type Redelivers interface {
	Missed(ctx context.Context, api *API, repo, address string, since time.Time, limit int) ([]source.MissedDelivery, error)
	Redeliver(ctx context.Context, api *API, repo, address, id string) error
}

// Mirror reads commits of the repository (git.Mirror).
type Mirror interface {
	Resolve(ctx context.Context, c source.Clone, ref string) (source.Commit, error)
	Files(ctx context.Context, c source.Clone, sha string) ([]source.File, error)
	ChangedFiles(ctx context.Context, c source.Clone, before, after string) ([]string, error)
	IsAncestor(ctx context.Context, c source.Clone, a, b string) (bool, error)
	MergeBase(ctx context.Context, c source.Clone, a, b string) (string, error)
	Heads(ctx context.Context, c source.Clone) (map[string]string, error)
	DefaultBranch(ctx context.Context, c source.Clone) (string, error)
}

// Options is the kind's part of a stored source.
type Options struct {
	URL           string `json:"url,omitempty"`             // of the web interface, such as https://git.example.com; required but for the public instances
	APIURL        string `json:"apiUrl,omitempty"`          // made of URL when empty
	Repository    string `json:"repository"`                // owner/name (GitLab: with all its groups)
	Clone         string `json:"clone,omitempty"`           // https (default) or ssh
	CloneURL      string `json:"cloneUrl,omitempty"`        // made of URL and Repository when empty
	KnownHosts    string `json:"knownHosts,omitempty"`      // lines of known_hosts that pin the host's keys
	DefaultBranch string `json:"defaultBranch,omitempty"`   // asked from the forge when empty
	Forks         string `json:"forks,omitempty"`           // ignore (default) or run: pull requests from forks run with the base branch's workflows and without secrets (D10, LOCK-9)
	Statuses      string `json:"statuses,omitempty"`        // jobs (default: per workflow and job), workflows, off
	AllowPrivate  bool   `json:"allowPrivate,omitempty"`    // the forge may live at a private or loopback address, and redirect there
	MaxPayload    int64  `json:"maxPayloadBytes,omitempty"` // 0 is 25 MiB (ING-7)
}

// API is a client of one forge's API with one token: bounded, patient with rate limits, and closed to private addresses unless
// allowed. See api.go.
type API struct{}
