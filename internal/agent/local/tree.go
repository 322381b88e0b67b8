package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/wire"
)

// Mode is what of the tree jobs get.
type Mode int

// The modes.
const (
	Commit  Mode = iota + 1 // a clean checkout of HEAD, as on an agent
	Dirty                   // that, with what differs in the working tree over it
	InPlace                 // the working tree itself
)

// Tree is a checkout on this machine.
type Tree struct {
	Root    string // absolute
	Git     bool   // it is a git repository
	SHA     string // of HEAD, "" without a commit
	Branch  string // "" when HEAD is detached
	Default string // the default branch as origin has it, else main
	Name    string // owner/name, from origin's address; else the directory's name
	Title   string // first line of HEAD's message
	Author  string
	Changed bool // the working tree or the index differ from HEAD
}

// Inspect looks at a checkout. One that is no git repository, or has no commit, is not an error.
func Inspect(ctx context.Context, root string) (Tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Root: root, Default: "main", Name: filepath.Base(root)}
	top, err := t.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		if ctx.Err() != nil {
			return t, context.Cause(ctx)
		}
		return t, nil //nolint:nilerr // no repository, or no git
	}
	t.Git, t.Root = true, filepath.FromSlash(top)
	t.Name = filepath.Base(t.Root)
	t.SHA, _ = t.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	t.Branch, _ = t.git(ctx, "symbolic-ref", "--quiet", "--short", "HEAD")
	if head, err := t.git(ctx, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"); err == nil {
		t.Default = strings.TrimPrefix(head, "origin/")
	}
	if origin, err := t.git(ctx, "config", "--get", "remote.origin.url"); err == nil {
		if name := nameOf(origin); name != "" {
			t.Name = name
		}
	}
	if t.SHA != "" {
		status, err := t.git(ctx, "status", "--porcelain", "--no-renames")
		if err != nil {
			return t, err
		}
		t.Changed = status != ""
		text, err := t.git(ctx, "log", "-1", "--format=%an%n%s", t.SHA, "--")
		if err != nil {
			return t, err
		}
		t.Author, t.Title, _ = strings.Cut(text, "\n")
	}
	return t, nil
}

func (t Tree) git(ctx context.Context, args ...string) (string, error) {
	out, err := git.Run(ctx, git.Cmd{Dir: t.Root, SafeDirs: []string{t.Root}, Args: args})
	return strings.TrimSpace(string(out)), err
}

// nameOf is owner/name of an address such as https://host/acme/shop.git or git@host:acme/shop.
func nameOf(origin string) string {
	path := origin
	if u, err := url.Parse(origin); err == nil && u.Scheme != "" {
		path = u.Path
	} else if _, after, ok := strings.Cut(origin, ":"); ok {
		path = after
	}
	parts := strings.Split(strings.TrimSuffix(strings.Trim(filepath.ToSlash(path), "/"), ".git"), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// Check says why jobs cannot get what the mode asks for, with the cure.
func (t Tree) Check(m Mode) error {
	switch {
	case m == InPlace, m == Dirty && t.Git:
		return nil
	case !t.Git:
		return fmt.Errorf("%s is not a git repository; run in the directory itself with --in-place", t.Root)
	case t.SHA == "":
		return errors.New("the repository has no commit yet; commit, or run what is in the working tree with --dirty")
	}
	return nil
}

// checkout is what a job is told to check out.
func (t Tree) checkout(m Mode) *wire.Checkout {
	c := &wire.Checkout{URL: t.Root, SHA: t.SHA}
	if t.Branch != "" {
		c.Ref = "refs/heads/" + t.Branch
	}
	switch {
	case m == InPlace:
		c.SHA = "the working tree"
	case m == Dirty && t.SHA == "":
		c.SHA = "the working tree"
	}
	return c
}

// source says where a job works and how that is filled: "" and nil are the job's own workspace and git.
func (t Tree) source(m Mode) (workspace string, fill func(context.Context, string, io.Writer) error) {
	switch m {
	case InPlace:
		return t.Root, func(_ context.Context, dir string, log io.Writer) error {
			_, err := fmt.Fprintf(log, "Working in %s itself\n", dir)
			return err
		}
	case Dirty:
		return "", t.fillDirty
	}
	return "", nil
}
