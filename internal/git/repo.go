package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Bounds of single objects. What is larger is refused with ErrTooBig.
const (
	maxCommitBytes = 1 << 20
	maxTreeBytes   = 16 << 20
	batchNames     = 200 // requests in flight; keeps the request pipe from filling
)

// Repo reads one repository of this machine from its objects, never from a work tree (D23). It is safe for concurrent use.
type Repo struct {
	pool *Repos
	path string
}

// Commit is what a reader wants to know of a commit.
type Commit struct {
	SHA    string
	Ref    string // the full ref that was resolved, "" when it was given by id
	Tree   string
	Title  string // first line of the message
	Author string
	Email  string
}

// File is one committed file. Mode is git's octal text; the data of a symbolic link is its target.
type File struct {
	Path, Mode string
	Data       []byte
}

// The modes of tree entries that matter here.
const (
	ModeTree      = "40000"
	ModeSymlink   = "120000"
	ModeSubmodule = "160000"
)

// Path returns where the repository is.
func (r *Repo) Path() string { return r.path }

// gitDir finds the git directory: path itself when bare, else path/.git (which may be a file of a linked work tree; git
// follows it). It never looks above path.
func (r *Repo) gitDir() (dir string, bare bool, err error) {
	dotGit := filepath.Join(r.path, ".git")
	switch _, err := os.Stat(dotGit); {
	case err == nil:
		return dotGit, false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", false, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if _, err := os.Stat(filepath.Join(r.path, "HEAD")); err != nil {
		if _, err := os.Stat(r.path); err != nil {
			return "", false, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return "", false, fmt.Errorf("%w: %s is not a git repository", ErrUnreachable, r.path)
	}
	return r.path, true, nil
}

func (r *Repo) with(ctx context.Context, f func(*reader) error) error {
	dir, _, err := r.gitDir()
	if err != nil {
		return err
	}
	return r.pool.with(ctx, dir, f)
}

// Check verifies that objects can be read. An empty repository is fine.
func (r *Repo) Check(ctx context.Context) error {
	return r.with(ctx, func(rd *reader) error {
		_, err := rd.get(maxCommitBytes, "HEAD")
		return err
	})
}

// Resolve returns the commit that ref names: HEAD, a full ref, a branch, a tag, or a commit id of 7 digits or more. ref is
// hostile input. A branch wins over a tag of the same name, and both over an abbreviated id.
func (r *Repo) Resolve(ctx context.Context, ref string) (Commit, error) {
	names, err := candidates(ref)
	if err != nil {
		return Commit{}, err
	}
	requests := make([]string, len(names))
	for i, name := range names {
		requests[i] = name + "^{commit}"
	}
	var c Commit
	err = r.with(ctx, func(rd *reader) error {
		found, err := rd.get(maxCommitBytes*int64(len(requests)), requests...)
		if err != nil {
			return err
		}
		for i, o := range found {
			if o.kind == "commit" {
				c = parseCommit(o)
				if strings.HasPrefix(names[i], "refs/") {
					c.Ref = names[i]
				}
				return nil
			}
		}
		return fmt.Errorf("%q: %w", ref, ErrNotFound)
	})
	return c, err
}

// candidates lists the names under which ref may be found, best first. All are free of white space and revision syntax.
func candidates(ref string) ([]string, error) {
	if ref == "HEAD" {
		return []string{"HEAD"}, nil
	}
	if CheckSHA(ref) == nil {
		return []string{ref}, nil
	}
	// refs/heads/ in front makes a leading dash harmless; CheckRef wants the name as it will be used.
	full := ref
	if !strings.HasPrefix(ref, "refs/") {
		full = "refs/heads/" + ref
	}
	if err := CheckRef(full); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if full == ref {
		return []string{ref}, nil
	}
	names := []string{full, "refs/tags/" + ref}
	if len(ref) >= 7 && len(ref) < 64 && strings.Trim(ref, "0123456789abcdef") == "" {
		names = append(names, ref)
	}
	return names, nil
}

func parseCommit(o object) Commit {
	c := Commit{SHA: o.id}
	header, message, _ := bytes.Cut(o.data, []byte("\n\n"))
	for line := range strings.SplitSeq(string(header), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			c.Tree = value
		case "author":
			name, rest, _ := strings.Cut(value, " <")
			email, _, _ := strings.Cut(rest, ">")
			c.Author, c.Email = clean(name, 200), clean(email, 200)
		}
	}
	title, _, _ := strings.Cut(strings.TrimLeft(string(message), "\n"), "\n")
	c.Title = clean(title, 300)
	return c
}

// clean makes hostile text one printable line of at most limit bytes.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if s = strings.TrimSpace(s); len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// FileQuery selects files of some directories of a commit.
type FileQuery struct {
	Dirs     []string               // slash-separated, parents first; sub-directories are not entered
	Match    func(path string) bool // files to read
	MaxBytes int64                  // all data together
	MaxFiles int
}

// Files returns the matching files of the commit, in git's order. A name of Dirs that is there but is no directory (a file, a
// symbolic link, a submodule) is returned as a File of that mode: the caller decides. No such directory is no files; no such
// commit is ErrNotFound. It takes two round trips: the directories, the files.
func (r *Repo) Files(ctx context.Context, sha string, q FileQuery) ([]File, error) {
	if err := CheckSHA(sha); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	var files []File
	err := r.with(ctx, func(rd *reader) error {
		w := walk{rd: rd, q: q, sha: sha, trees: map[string][]treeEntry{}}
		if err := w.list(); err != nil {
			return err
		}
		var err error
		files, err = w.read()
		return err
	})
	return files, err
}

type walk struct {
	rd    *reader
	q     FileQuery
	sha   string
	trees map[string][]treeEntry // by directory
	found []treeEntry            // name is the whole path
}

// list reads the directories and picks the files.
func (w *walk) list() error {
	names := []string{w.sha + "^{commit}"}
	for _, dir := range w.q.Dirs {
		names = append(names, w.sha+":"+dir)
	}
	got, err := w.rd.get(maxTreeBytes, names...)
	if err != nil {
		return err
	}
	if got[0].kind != "commit" {
		return fmt.Errorf("%s: %w", w.sha, ErrNotFound)
	}
	for i, dir := range w.q.Dirs {
		if err := w.directory(dir, got[i+1]); err != nil {
			return err
		}
	}
	if len(w.found) > w.q.MaxFiles {
		return fmt.Errorf("more than %d files: %w", w.q.MaxFiles, ErrTooBig)
	}
	return nil
}

func (w *walk) directory(dir string, o object) error {
	if o.kind != "tree" {
		e, err := w.entry(dir)
		if err == nil && e.mode != "" {
			w.found = append(w.found, treeEntry{mode: e.mode, name: dir, id: e.id})
		}
		return err
	}
	entries, err := parseTree(o.data, len(w.sha)/2)
	w.trees[dir] = entries
	for _, e := range entries {
		if full := path.Join(dir, e.name); e.mode != ModeTree && w.q.Match(full) {
			w.found = append(w.found, treeEntry{mode: e.mode, name: full, id: e.id})
		}
	}
	return err
}

// entry finds what a name that is no readable directory is, by its parent; the zero entry when it is not there at all.
func (w *walk) entry(name string) (treeEntry, error) {
	parent := path.Dir(name)
	entries, known := w.trees[parent]
	if parent == "." {
		got, err := w.rd.get(maxTreeBytes, w.sha+"^{tree}")
		if err != nil {
			return treeEntry{}, err
		}
		if entries, err = parseTree(got[0].data, len(w.sha)/2); err != nil || got[0].kind != "tree" {
			return treeEntry{}, &missing{name: "the tree of " + w.sha}
		}
	} else if !known {
		return treeEntry{}, nil // its parent is not there, or not a directory
	}
	for _, e := range entries {
		switch {
		case e.name != path.Base(name):
		case e.mode == ModeTree:
			return e, &missing{name: name}
		default:
			return e, nil
		}
	}
	return treeEntry{}, nil
}

// missing says that the repository lacks an object which its own commits name.
type missing struct {
	name  string   // of one, for people
	blobs []string // the ids of all, when they are files: a partial clone is without them
}

func (e *missing) Error() string {
	return fmt.Sprintf("%s: %s is missing from its objects", ErrUnreachable, e.name)
}

func (e *missing) Unwrap() error { return ErrUnreachable }

func (w *walk) read() ([]File, error) {
	files := make([]File, len(w.found))
	var lost missing
	room := w.q.MaxBytes
	for start := 0; start < len(files); start += batchNames {
		batch := w.found[start:min(start+batchNames, len(files))]
		var names []string
		for _, e := range batch {
			names = append(names, e.id)
		}
		got, err := w.rd.get(room, names...)
		if err != nil {
			return nil, err
		}
		for i, o := range got {
			if o.kind == "" && batch[i].mode != ModeSubmodule {
				lost.name, lost.blobs = batch[i].name, append(lost.blobs, batch[i].id)
			}
			files[start+i] = File{Path: batch[i].name, Mode: batch[i].mode, Data: o.data}
			room -= int64(len(o.data))
		}
	}
	if lost.name != "" {
		return nil, &lost
	}
	return files, nil
}

// DefaultBranch returns the short name of the branch that HEAD names in a bare repository. In one with a work tree HEAD is
// whatever somebody has checked out, so origin's HEAD, main and master come first.
func (r *Repo) DefaultBranch(ctx context.Context) (string, error) {
	dir, bare, err := r.gitDir()
	if err != nil {
		return "", err
	}
	if !bare {
		if b := r.usualBranch(ctx, dir); b != "" {
			return b, nil
		}
	}
	return symbolicRef(ctx, dir, "HEAD", "refs/heads/")
}

func (r *Repo) usualBranch(ctx context.Context, dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "refs", "remotes", "origin", "HEAD")); err == nil {
		if b, err := symbolicRef(ctx, dir, "refs/remotes/origin/HEAD", "refs/remotes/origin/"); err == nil {
			return b
		}
	}
	for _, b := range []string{"main", "master"} {
		if c, err := r.Resolve(ctx, "refs/heads/"+b); err == nil && c.Ref != "" {
			return b
		}
	}
	return ""
}

// symbolicRef reads the file that most repositories have and asks git where it is something else.
func symbolicRef(ctx context.Context, dir, name, prefix string) (string, error) {
	text, _ := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	target, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	if !ok || target == "refs/heads/.invalid" { // reftable's placeholder
		out, err := Run(ctx, Cmd{Args: []string{"symbolic-ref", "--quiet", name}, Env: append([]string{"GIT_DIR=" + dir}, readOnly...)})
		if err != nil {
			return "", fmt.Errorf("%s: %w: %w", name, ErrNotFound, err)
		}
		target = strings.TrimSpace(string(out))
	}
	branch, ok := strings.CutPrefix(target, prefix)
	if !ok || CheckRef(target) != nil {
		return "", fmt.Errorf("%s names %q: %w", name, target, ErrNotFound)
	}
	return branch, nil
}
