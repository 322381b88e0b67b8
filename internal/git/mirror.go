package git

import (
	"context"
	"log/slog"
	"time"
)

// MirrorOptions say where mirrors live. Dir belongs to one process alone.
type MirrorOptions struct {
	Dir        string
	Repos      *Repos // reads the mirrors
	Now        func() time.Time
	Log        *slog.Logger
	MaxFetches int // at the same time, over all mirrors; 0 is 4
}

// Mirrors keeps a bare copy of the history of each remote repository.
type Mirrors struct{ o MirrorOptions }

// NewMirrors does no I/O.
func NewMirrors(o MirrorOptions) *Mirrors { return &Mirrors{o: o} }

// Open returns the mirror of a source's repository, made at its first use. It does no I/O; an id that is no plain name makes every
// method fail with ErrName.
func (m *Mirrors) Open(id string) *Mirror { return &Mirror{id: id} }

// Sweep removes mirrors that nobody has used for 30 days and repacks those of many packs. Run it daily.
func (m *Mirrors) Sweep(ctx context.Context) error { return nil }

// Remove deletes a mirror and the host keys that it has learned: its source is gone.
func (m *Mirrors) Remove(ctx context.Context, id string) error { return nil }

// Mirror is a bare copy of one repository. It is safe for concurrent use. Handles of the same id share their state.
type Mirror struct{ id string }

// Resolve returns the commit that ref names: HEAD, a full ref, a branch, a tag, or a commit id of 7 digits or more.
func (m *Mirror) Resolve(ctx context.Context, remote Remote, ref string) (Commit, error) {
	return Commit{}, ErrUnreachable
}

// Files is Repo.Files of a commit that is fetched when it is missing.
func (m *Mirror) Files(ctx context.Context, remote Remote, sha string, q FileQuery) ([]File, error) {
	return nil, ErrUnreachable
}

// ChangedFiles is Repo.ChangedFiles.
func (m *Mirror) ChangedFiles(ctx context.Context, remote Remote, before, after string, limit int) ([]string, error) {
	return nil, ErrUnreachable
}

// IsAncestor is Repo.IsAncestor.
func (m *Mirror) IsAncestor(ctx context.Context, remote Remote, a, b string) (bool, error) {
	return false, ErrUnreachable
}

// MergeBase is Repo.MergeBase.
func (m *Mirror) MergeBase(ctx context.Context, remote Remote, a, b string) (string, error) {
	return "", ErrUnreachable
}

// Heads lists branches and tags with their commits, by full ref; it asks the remote.
func (m *Mirror) Heads(ctx context.Context, remote Remote) (map[string]string, error) {
	return nil, ErrUnreachable
}

// DefaultBranch returns the short name of the branch that the remote's HEAD names; it asks the remote.
func (m *Mirror) DefaultBranch(ctx context.Context, remote Remote) (string, error) {
	return "", ErrUnreachable
}

// KnownHosts returns the host keys that were accepted at first sight, for others who clone the same repository; "" when none were.
func (m *Mirror) KnownHosts() string { return "" }
