// Package local is the source whose repository is a directory of this machine, bare or with a work tree. Deliveries come from
// its git hooks (`kici webhook send`) or from `kici source trigger`; commits are read from git objects only (D23).
package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
)

// Kind is the kind of these sources.
const Kind = "local"

// Options is the kind's part of a stored source.
type Options struct {
	Path            string `json:"path"`                    // absolute
	DefaultBranch   string `json:"defaultBranch,omitempty"` // "" asks the repository
	MaxPayloadBytes int64  `json:"maxPayloadBytes,omitempty"`
}

// Source is one local repository.
type Source struct {
	cfg     source.Config
	opts    Options
	repo    *git.Repo
	webhook string // secret
	old     string // before a rotation, "" for none
}

// New checks the options; it does not look at the repository, which may be away for now.
func New(cfg source.Config, repos *git.Repos) (*Source, error) {
	var o Options
	if err := source.DecodeOptions(cfg, &o); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, opts: o, repo: repos.Open(o.Path), webhook: cfg.Secrets[source.SecretWebhook], old: cfg.Secrets[source.SecretWebhookOld]}, nil
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	switch {
	case o.Path == "":
		return errors.New("path is required: the absolute path of a git repository on the server's machine")
	case !filepath.IsAbs(o.Path):
		return fmt.Errorf("path %q is relative: give the absolute path on the server's machine", o.Path)
	case strings.ContainsAny(o.Path, "\x00\n\r"):
		return fmt.Errorf("path %q contains a control character", o.Path)
	case o.MaxPayloadBytes < 0:
		return errors.New("maxPayloadBytes must not be negative")
	}
	if o.DefaultBranch != "" {
		if err := git.CheckRef("refs/heads/" + o.DefaultBranch); err != nil {
			return fmt.Errorf("defaultBranch: %w", err)
		}
	}
	return nil
}

// HasRepo is true.
func (s *Source) HasRepo() bool { return true }

// Path returns the repository's directory.
func (s *Source) Path() string { return s.opts.Path }

// Resolve returns the commit that ref names.
func (s *Source) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	c, err := s.repo.Resolve(ctx, ref)
	if err != nil {
		return source.Commit{}, s.translate(err)
	}
	return source.Commit{SHA: c.SHA, Title: c.Title, Author: c.Author, Ref: c.Ref}, nil
}

// Files returns .kici/kici.lock.json and .kici/workflows/*.{yaml,yml} at sha.
func (s *Source) Files(ctx context.Context, sha string) ([]source.File, error) {
	found, err := s.repo.Files(ctx, sha, git.FileQuery{
		Dirs: []string{".kici", ".kici/workflows"}, MaxBytes: source.MaxFileBytes, MaxFiles: source.MaxFiles,
		Match: func(p string) bool {
			dir, file := filepath.Split(p)
			ext := filepath.Ext(file)
			return p == ".kici/kici.lock.json" || dir == ".kici/workflows/" && (ext == ".yaml" || ext == ".yml")
		},
	})
	if err != nil {
		return nil, s.translate(err)
	}
	files := make([]source.File, len(found))
	for i, f := range found {
		files[i] = source.File(f)
	}
	return files, nil
}

// ChangedFiles lists what differs between two commits.
func (s *Source) ChangedFiles(ctx context.Context, before, after string) ([]string, error) {
	files, err := s.repo.ChangedFiles(ctx, before, after, source.MaxChangedFiles)
	return files, s.translate(err)
}

// IsAncestor reports whether commit a can be reached from b.
func (s *Source) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	yes, err := s.repo.IsAncestor(ctx, a, b)
	return yes, s.translate(err)
}

// DefaultBranch is the configured one, or the repository's.
func (s *Source) DefaultBranch(ctx context.Context) (string, error) {
	if s.opts.DefaultBranch != "" {
		return s.opts.DefaultBranch, nil
	}
	b, err := s.repo.DefaultBranch(ctx)
	return b, s.translate(err)
}

// Clone is the repository's file address; it needs no credential.
func (s *Source) Clone(context.Context) (source.Clone, error) {
	if strings.Contains(s.opts.Path, "%") { // git would decode it in an address
		return source.Clone{URL: s.opts.Path}, nil
	}
	return source.Clone{URL: "file://" + s.opts.Path}, nil
}

// Check verifies that the repository can be read.
func (s *Source) Check(ctx context.Context) error { return s.translate(s.repo.Check(ctx)) }

// translate gives git's errors the contract's meaning.
func (s *Source) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, git.ErrTooBig):
		return fmt.Errorf("%w: %w", source.ErrTooLarge, err)
	case errors.Is(err, git.ErrUnreachable):
		return unreachable{err}
	case errors.Is(err, git.ErrNotFound):
		return fmt.Errorf("%w: %w", source.ErrNotFound, err)
	}
	return err
}

// unreachable is a source.ErrUnreachable whose sentence does not say twice that there is no way to the repository.
type unreachable struct{ cause error }

// Error implements error.
func (u unreachable) Error() string {
	return source.ErrUnreachable.Error() + ": " + strings.TrimPrefix(u.cause.Error(), git.ErrUnreachable.Error()+": ")
}

// Unwrap gives both.
func (u unreachable) Unwrap() []error { return []error{source.ErrUnreachable, u.cause} }
