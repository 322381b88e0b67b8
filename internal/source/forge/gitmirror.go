package forge

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
)

// GitMirror reads commits through a mirror that git keeps.
type GitMirror struct{ Mirror *git.Mirror }

func remote(c source.Clone) git.Remote {
	return git.Remote{URL: c.URL, Username: c.Username, Password: c.Password, SSHKey: c.SSHKey, KnownHosts: c.KnownHosts}
}

// Resolve implements Mirror.
func (m GitMirror) Resolve(ctx context.Context, c source.Clone, ref string) (source.Commit, error) {
	got, err := m.Mirror.Resolve(ctx, remote(c), ref)
	if err != nil {
		return source.Commit{}, translate(err)
	}
	return source.Commit{SHA: got.SHA, Title: got.Title, Author: got.Author, Ref: got.Ref}, nil
}

// workflowFiles are the committed files that workflows are made of.
var workflowFiles = git.FileQuery{
	Dirs: []string{".kici", ".kici/workflows"}, MaxBytes: source.MaxFileBytes, MaxFiles: source.MaxFiles,
	Match: func(p string) bool {
		dir, file := path.Split(p)
		ext := path.Ext(file)
		return p == ".kici/kici.lock.json" || dir == ".kici/workflows/" && (ext == ".yaml" || ext == ".yml")
	},
}

// Files implements Mirror.
func (m GitMirror) Files(ctx context.Context, c source.Clone, sha string) ([]source.File, error) {
	found, err := m.Mirror.Files(ctx, remote(c), sha, workflowFiles)
	if err != nil {
		return nil, translate(err)
	}
	files := make([]source.File, len(found))
	for i, f := range found {
		files[i] = source.File(f)
	}
	return files, nil
}

// ChangedFiles implements Mirror.
func (m GitMirror) ChangedFiles(ctx context.Context, c source.Clone, before, after string) ([]string, error) {
	files, err := m.Mirror.ChangedFiles(ctx, remote(c), before, after, source.MaxChangedFiles)
	return files, translate(err)
}

// IsAncestor implements Mirror.
func (m GitMirror) IsAncestor(ctx context.Context, c source.Clone, a, b string) (bool, error) {
	yes, err := m.Mirror.IsAncestor(ctx, remote(c), a, b)
	return yes, translate(err)
}

// MergeBase implements Mirror.
func (m GitMirror) MergeBase(ctx context.Context, c source.Clone, a, b string) (string, error) {
	at, err := m.Mirror.MergeBase(ctx, remote(c), a, b)
	return at, translate(err)
}

// Heads implements Mirror.
func (m GitMirror) Heads(ctx context.Context, c source.Clone) (map[string]string, error) {
	heads, err := m.Mirror.Heads(ctx, remote(c))
	return heads, translate(err)
}

// DefaultBranch implements Mirror.
func (m GitMirror) DefaultBranch(ctx context.Context, c source.Clone) (string, error) {
	branch, err := m.Mirror.DefaultBranch(ctx, remote(c))
	return branch, translate(err)
}

// KnownHosts implements Mirror.
func (m GitMirror) KnownHosts() string { return m.Mirror.KnownHosts() }

// translate gives git's errors the contract's meaning, and says it once.
func translate(err error) error {
	for _, pair := range []struct{ from, to error }{
		{git.ErrTooBig, source.ErrTooLarge},
		{git.ErrDenied, source.ErrDenied},
		{git.ErrHostKey, source.ErrDenied},
		{git.ErrUnreachable, source.ErrUnreachable},
		{git.ErrNotFound, source.ErrNotFound},
	} {
		if errors.Is(err, pair.from) {
			return translated{pair.to, err, pair.from.Error() + ": "}
		}
	}
	return err
}

// translated is an error of the contract in git's words.
type translated struct {
	kind, cause error
	prefix      string // git's own sentence for the same
}

// Error implements error.
func (t translated) Error() string {
	return fmt.Sprintf("%v: %s", t.kind, strings.TrimPrefix(t.cause.Error(), t.prefix))
}

// Unwrap gives both.
func (t translated) Unwrap() []error { return []error{t.kind, t.cause} }

var _ Mirror = GitMirror{}
