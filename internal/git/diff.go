package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
)

// maxDiffTrees bounds the directories that a comparison reads.
const maxDiffTrees = 20_000

// ChangedFiles lists the paths that differ between two commits, at most limit of them (ErrTooBig beyond). An empty or
// all-zero before means a branch that is new: it is compared with where it left the default branch, or with nothing.
func (r *Repo) ChangedFiles(ctx context.Context, before, after string, limit int) ([]string, error) {
	if IsZero(before) {
		var err error
		if before, err = r.branchPoint(ctx, after); err != nil {
			return nil, err
		}
	}
	return r.compare(ctx, before, after, limit)
}

// compare is ChangedFiles with what to compare with decided; before "" is the empty tree.
func (r *Repo) compare(ctx context.Context, before, after string, limit int) ([]string, error) {
	if err := CheckSHA(after); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if before != "" {
		if err := CheckSHA(before); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
	}
	var changed []string
	err := r.with(ctx, func(rd *reader) error {
		d := diff{rd: rd, idBytes: len(after) / 2, limit: limit}
		from := ""
		if before != "" {
			from = before + "^{tree}"
		}
		err := d.trees(from, after+"^{tree}", "")
		changed = d.changed
		return err
	})
	return changed, err
}

// IsZero reports whether sha is the null id that hooks use for "no commit", or empty.
func IsZero(sha string) bool { return strings.Trim(sha, "0") == "" }

// branchPoint returns the merge base of sha and the default branch; "" when sha is the default branch's own or has none.
func (r *Repo) branchPoint(ctx context.Context, sha string) (string, error) {
	branch, err := r.DefaultBranch(ctx)
	if err != nil {
		return "", nil //nolint:nilerr // no default branch: everything is new
	}
	tip, err := r.Resolve(ctx, "refs/heads/"+branch)
	if errors.Is(err, ErrNotFound) || tip.SHA == sha {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return r.MergeBase(ctx, tip.SHA, sha)
}

// MergeBase returns the best common ancestor of two commits, "" when they have none.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	if err := checkBoth(a, b); err != nil {
		return "", err
	}
	out, err := r.run(ctx, "merge-base", "--end-of-options", a, b)
	if exitCode(err) == 1 {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

func checkBoth(a, b string) error {
	for _, sha := range []string{a, b} {
		if err := CheckSHA(sha); err != nil {
			return fmt.Errorf("%w: %w", ErrNotFound, err)
		}
	}
	return nil
}

// IsAncestor reports whether commit a can be reached from commit b.
func (r *Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if err := checkBoth(a, b); err != nil {
		return false, err
	}
	_, err := r.run(ctx, "merge-base", "--is-ancestor", "--end-of-options", a, b)
	if exitCode(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

func (r *Repo) run(ctx context.Context, args ...string) ([]byte, error) {
	dir, _, err := r.gitDir()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	out, err := Run(ctx, Cmd{Args: args, Env: append([]string{"GIT_DIR=" + dir}, readOnly...)})
	var failed *Error
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &failed) && failed.ExitCode == 1:
		return nil, err
	case errors.As(err, &failed) && failed.ExitCode == 128 && strings.Contains(failed.Stderr, "Not a valid"):
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func exitCode(err error) int {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.ExitCode
	}
	return 0
}

type diff struct {
	rd      *reader
	idBytes int
	limit   int
	read    int
	changed []string
}

// trees compares two trees by name ("" is the empty tree), entering only sub-trees that differ.
func (d *diff) trees(from, to, dir string) error {
	a, err := d.entries(from)
	if err != nil {
		return err
	}
	b, err := d.entries(to)
	if err != nil {
		return err
	}
	old := make(map[string]treeEntry, len(a))
	for _, e := range a {
		old[e.name] = e
	}
	for _, e := range b {
		was := old[e.name]
		delete(old, e.name)
		if was.id != e.id || was.mode != e.mode {
			if err := d.entry(was, e, path.Join(dir, e.name)); err != nil {
				return err
			}
		}
	}
	for _, e := range a {
		if _, gone := old[e.name]; gone {
			if err := d.entry(e, treeEntry{}, path.Join(dir, e.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *diff) entries(name string) ([]treeEntry, error) {
	if name == "" {
		return nil, nil
	}
	if d.read++; d.read > maxDiffTrees {
		return nil, fmt.Errorf("more than %d directories differ: %w", maxDiffTrees, ErrTooBig)
	}
	got, err := d.rd.get(maxTreeBytes, name)
	if err != nil {
		return nil, err
	}
	if commit, isCommit := strings.CutSuffix(name, "^{tree}"); got[0].kind != "tree" && isCommit {
		return nil, fmt.Errorf("%s: %w", commit, ErrNotFound)
	} else if got[0].kind != "tree" {
		return nil, &missing{name: "tree " + name}
	}
	return parseTree(got[0].data, d.idBytes)
}

// entry records a name that differs. Where it is a tree on either side, the files below it are what changed.
func (d *diff) entry(from, to treeEntry, name string) error {
	var fromTree, toTree string
	if from.mode == ModeTree {
		fromTree = from.id
	}
	if to.mode == ModeTree {
		toTree = to.id
	}
	if fromTree == "" && toTree == "" || from.mode != "" && fromTree == "" || to.mode != "" && toTree == "" {
		if len(d.changed) >= d.limit {
			return fmt.Errorf("more than %d files differ: %w", d.limit, ErrTooBig)
		}
		d.changed = append(d.changed, name)
	}
	if fromTree == "" && toTree == "" {
		return nil
	}
	return d.trees(fromTree, toTree, name)
}
