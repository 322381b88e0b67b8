// Package source is the contract with the places where repositories live: it turns a verified delivery into a
// normalised event and answers questions about commits. Every adapter passes sourcetest.
package source

import (
	"context"
	"errors"

	"github.com/kici-go/kici/internal/ci"
)

// Config is one stored source, with its secrets opened.
type Config struct {
	ID, OrgID, Kind, Name, RoutingKey, Repo string
	Options                                 []byte            // JSON, by kind
	Secrets                                 map[string]string // webhook, token, …
}

// Delivery is one verified request.
type Delivery struct {
	ID      string // sender's id
	Event   string
	Action  string
	Headers map[string]string // lower-case names, credentials stripped
	Body    []byte
}

// Source is one configured origin. Implementations are safe for concurrent use.
type Source interface {
	// Normalize turns a delivery into an event. ErrIgnored says that it is of no interest, with the reason.
	Normalize(context.Context, Delivery) (ci.Event, error)
	// HasRepo reports whether commits can be read; the methods below need it.
	HasRepo() bool
	// Resolve returns the full commit id of a branch, tag, full ref or (abbreviated) commit id. ref is hostile input.
	Resolve(ctx context.Context, ref string) (Commit, error)
	// Files returns the committed files under .kici (workflows and lock) at sha, read from git objects (D23).
	Files(ctx context.Context, sha string) ([]File, error)
	// ChangedFiles lists paths that differ between two commits; before may be empty or all zeros (a new branch).
	ChangedFiles(ctx context.Context, before, after string) ([]string, error)
	// DefaultBranch of the repository.
	DefaultBranch(context.Context) (string, error)
	// Clone says how an agent gets the repository.
	Clone(context.Context) (Clone, error)
	// Check verifies that the origin can be reached; creation never needs it.
	Check(context.Context) error
}

// Commit is what a run shows of a commit. Ref is the full ref that was resolved, "" when it was named by its id.
type Commit struct{ SHA, Title, Author, Ref string }

// File is one committed file. Symlinks are not followed; Mode tells (git's octal mode text).
type File struct {
	Path, Mode string
	Data       []byte
}

// Clone is an address and, when needed, a credential: user and password for HTTPS, key and host keys for SSH.
type Clone struct {
	URL, Username, Password string
	SSHKey                  string // private key in OpenSSH's or PEM form
	KnownHosts              string // lines of known_hosts; "" accepts a host's key at first sight and keeps to it
}

// The errors that policy needs to tell apart (LOCK-4, LOCK-5).
var (
	ErrIgnored     = errors.New("event is not of interest")
	ErrNotFound    = errors.New("no such commit or file")
	ErrUnreachable = errors.New("the repository cannot be reached") // retry the delivery
	ErrInvalid     = errors.New("invalid delivery")                 // never retry
	ErrTooLarge    = errors.New("larger than the limit")            // never retry; of Files: a corrupt lock (LOCK-3)
	ErrDenied      = errors.New("the credential was refused")       // revoked, expired, or without the right: a person must act
)

// Bounds of Files: what exceeds one is ErrTooLarge (LOCK-6).
const (
	MaxFileBytes = 5 << 20 // all files together
	MaxFiles     = 1000
)

// MaxChangedFiles bounds ChangedFiles; beyond it the list is unknown (ErrTooLarge) and path filters pass (WF-15).
const MaxChangedFiles = 3000
