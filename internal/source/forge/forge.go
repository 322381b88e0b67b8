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
	Kind() string   // github, gitea, gitlab
	Public() string // web address of the public instance, "" when there is none
	// APIBase is the base address of the API of the instance whose web interface is at web.
	APIBase(web string) string
	// Verify authenticates a webhook under one secret in constant time; the source asks for each of its secrets.
	Verify(secret string, r source.Request) error
	// Read names the event and the delivery id of a verified request.
	Read(r source.Request) (source.Received, error)
	// Parse turns a delivery into an event, as far as its body tells. ErrIgnored and ErrInvalid as in source.Source; the event
	// that comes with ErrIgnored is kept with the delivery. It fills what the event's type needs, in the body's own words;
	// Source checks all of it:
	//
	//	push     Type "push", Ref (full: a tag's makes it a tag event), SHA (a commit, also of an annotated tag; zeros or
	//	         Deleted when the ref is gone), Before, Title
	//	pr       Type "pr", Action in GitHub's words (opened, synchronize, closed, …), Number, Title, SHA and SourceBranch of
	//	         the head, BaseSHA ("" when the body does not tell) and TargetBranch of the base, Ref (refs/pull/7/head), Fork
	//	comment  Type "comment", Action in GitHub's words (created, edited, deleted), Number, Title, Comment, CommentOn (issue or pr)
	//	always   Repo (owner/name as the body has it), DefaultBranch when the body has it, Actor, Payload
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
	Redeliver(ctx context.Context, api *API, repo, id string) error
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
	KnownHosts() string // keys of hosts that were accepted at first sight, so that agents need not meet them anew
}
