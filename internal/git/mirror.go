package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// MirrorOptions say where mirrors live. Dir belongs to one process alone (the data directory is locked).
type MirrorOptions struct {
	Dir        string
	Repos      *Repos // reads the mirrors
	Now        func() time.Time
	Log        *slog.Logger
	MaxFetches int   // at the same time, over all mirrors; 0 is 4
	MaxBytes   int64 // of one mirror: a repository beyond it is ErrTooBig, and its mirror is removed; 0 is DefaultMirrorBytes
}

// DefaultMirrorBytes holds the histories, without their files, of the largest repositories that there are.
const DefaultMirrorBytes = 10 << 30

// Mirrors keeps a bare copy of the history of each remote repository: commits and trees whole, and of the files those that
// somebody has asked for, where the server can leave them out.
//
// A mirror's configuration names no remote; commands that fetch bring address and credential along. So nothing that reads a
// mirror can start a fetch, and a repository that moves keeps its mirror.
type Mirrors struct {
	o       MirrorOptions
	once    sync.Once
	onceErr error
	fetches chan struct{} // a token for each running fetch

	mu   sync.Mutex
	open map[string]*Mirror
}

// NewMirrors does no I/O.
func NewMirrors(o MirrorOptions) *Mirrors {
	if o.MaxFetches <= 0 {
		o.MaxFetches = 4
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMirrorBytes
	}
	return &Mirrors{o: o, fetches: make(chan struct{}, o.MaxFetches), open: map[string]*Mirror{}}
}

var mirrorID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`) })

// Open returns the mirror of a source's repository, made at its first use. It does no I/O; an id that is no plain name makes every
// method fail with ErrName.
func (s *Mirrors) Open(id string) *Mirror {
	if !mirrorID().MatchString(id) {
		return &Mirror{set: s, err: fmt.Errorf("%w: mirror %q", ErrName, id)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.open[id]
	if m == nil {
		dir := filepath.Join(s.o.Dir, id+".git")
		m = &Mirror{
			set: s, id: id, dir: dir, repo: s.o.Repos.Open(dir), writing: make(chan struct{}, 1), unsure: true,
			flights: map[flightKey]*flight{},
		}
		s.open[id] = m
	}
	return m
}

// prepare makes the directory, and removes keys that a killed process has left.
func (s *Mirrors) prepare() error {
	s.once.Do(func() {
		keys := s.keys()
		s.onceErr = errors.Join(os.RemoveAll(keys), os.MkdirAll(keys, 0o700))
	})
	return s.onceErr
}

func (s *Mirrors) keys() string { return filepath.Join(s.o.Dir, ".keys") }

// Mirror is a bare copy of one repository. It is safe for concurrent use; handles of the same id are the same.
//
// Errors are ErrNotFound (the remote does not have it), ErrUnreachable, ErrDenied, ErrHostKey, ErrTooBig and ErrName.
type Mirror struct {
	set  *Mirrors
	id   string
	dir  string
	repo *Repo
	err  error // of the id

	dirs    sync.RWMutex  // held for reading by readers, for writing while the directory goes away
	writing chan struct{} // holds a token while somebody fetches, repacks or removes; guards unsure, remade
	unsure  bool          // the last writer may have left locks and halves of packs
	remade  time.Time     // when it was last found damaged

	mu      sync.Mutex
	flights map[flightKey]*flight
	used    time.Time // when use was last noted on disk
}

// Resolve returns the commit that ref names: HEAD, a full ref, a branch, a tag, or a commit id of 7 digits or more. A full id
// that the mirror has costs no network; every other name is asked of the remote.
func (m *Mirror) Resolve(ctx context.Context, remote Remote, ref string) (Commit, error) {
	if CheckSHA(ref) == nil {
		return m.commit(ctx, remote, want{sha: ref})
	}
	names, err := candidates(ref)
	if err != nil {
		return Commit{}, err
	}
	tips, err := m.tips(ctx, remote, names...)
	if err != nil {
		return Commit{}, err
	}
	for _, name := range names {
		if sha := tips[name]; sha != "" {
			c, err := m.commit(ctx, remote, want{sha: sha, ref: name})
			if name != "HEAD" {
				c.Ref = name
			}
			return c, err
		}
	}
	if short := names[len(names)-1]; names[0] != ref && short == ref {
		return m.abbreviated(ctx, remote, short)
	}
	return Commit{}, fmt.Errorf("%q: %w", ref, ErrNotFound)
}

func (m *Mirror) commit(ctx context.Context, remote Remote, w want) (c Commit, err error) {
	err = m.read(ctx, remote, []want{w}, func(r *Repo) error {
		c, err = r.Resolve(ctx, w.sha)
		return err
	})
	return c, err
}

// abbreviated looks for a commit by the beginning of its id, in what is here and then in the default branch.
func (m *Mirror) abbreviated(ctx context.Context, remote Remote, short string) (Commit, error) {
	var c Commit
	find := func(r *Repo) (err error) {
		c, err = r.Resolve(ctx, short)
		if err == nil && c.Ref != "" { // a name in the mirror, not an id
			return fmt.Errorf("%q: %w", short, ErrNotFound)
		}
		return err
	}
	if m.exists() {
		if err := m.local(func() error { return find(m.repo) }); err == nil {
			return c, nil
		}
	}
	tips, err := m.tips(ctx, remote, "HEAD")
	if err != nil {
		return Commit{}, err
	}
	if tips["HEAD"] == "" {
		return Commit{}, fmt.Errorf("%q: %w", short, ErrNotFound)
	}
	if err := m.ensure(ctx, remote, want{sha: tips["HEAD"], ref: "HEAD"}); err != nil {
		return Commit{}, err
	}
	err = m.local(func() error { return find(m.repo) })
	return c, err
}

// Files is Repo.Files of a commit that is fetched when it is missing.
func (m *Mirror) Files(ctx context.Context, remote Remote, sha string, q FileQuery) (files []File, err error) {
	err = m.read(ctx, remote, []want{{sha: sha}}, func(r *Repo) error {
		files, err = r.Files(ctx, sha, q)
		return err
	})
	return files, err
}

// ChangedFiles is Repo.ChangedFiles. The default branch that a new branch is compared with is the remote's.
func (m *Mirror) ChangedFiles(ctx context.Context, remote Remote, before, after string, limit int) (changed []string, err error) {
	wants := []want{{sha: after}}
	if IsZero(before) {
		if before, err = m.branchPoint(ctx, remote, after); err != nil {
			return nil, err
		}
	}
	if before != "" {
		wants = append(wants, want{sha: before})
	}
	err = m.read(ctx, remote, wants, func(r *Repo) error {
		changed, err = r.compare(ctx, before, after, limit)
		return err
	})
	return changed, err
}

// branchPoint is Repo.branchPoint with the remote's default branch.
func (m *Mirror) branchPoint(ctx context.Context, remote Remote, sha string) (string, error) {
	tips, err := m.tips(ctx, remote, "HEAD")
	if err != nil {
		return "", err
	}
	if tip := tips["HEAD"]; tip != "" && tip != sha {
		return m.MergeBase(ctx, remote, tip, sha)
	}
	return "", nil
}

// IsAncestor is Repo.IsAncestor.
func (m *Mirror) IsAncestor(ctx context.Context, remote Remote, a, b string) (yes bool, err error) {
	err = m.read(ctx, remote, []want{{sha: a}, {sha: b}}, func(r *Repo) error {
		yes, err = r.IsAncestor(ctx, a, b)
		return err
	})
	return yes, err
}

// MergeBase is Repo.MergeBase.
func (m *Mirror) MergeBase(ctx context.Context, remote Remote, a, b string) (base string, err error) {
	err = m.read(ctx, remote, []want{{sha: a}, {sha: b}}, func(r *Repo) error {
		base, err = r.MergeBase(ctx, a, b)
		return err
	})
	return base, err
}

// KnownHosts returns the host keys that were accepted at first sight, for others who clone the same repository; "" when none were.
func (m *Mirror) KnownHosts() string {
	if m.err != nil {
		return ""
	}
	if info, err := os.Stat(m.known()); err != nil || info.Size() > 1<<20 {
		return ""
	}
	text, _ := os.ReadFile(m.known())
	return string(text)
}

// known is the file that ssh itself writes. It outlives the mirror: forgetting a host's key means trusting the next one.
func (m *Mirror) known() string { return filepath.Join(m.set.o.Dir, m.id+".known_hosts") }

// exists: a directory without HEAD is nothing to git.
func (m *Mirror) exists() bool {
	_, err := os.Stat(filepath.Join(m.dir, "HEAD"))
	return err == nil
}

// local runs something that reads the directory, which stays meanwhile.
func (m *Mirror) local(f func() error) error {
	m.dirs.RLock()
	defer m.dirs.RUnlock()
	m.noteUse()
	return f()
}

// usedFile is touched at most hourly; Sweep looks at it.
const usedFile = "kici-used"

func (m *Mirror) noteUse() {
	now := m.set.o.Now()
	m.mu.Lock()
	due := now.Sub(m.used) >= time.Hour
	if due {
		m.used = now
	}
	m.mu.Unlock()
	if !due {
		return
	}
	path := filepath.Join(m.dir, usedFile)
	if err := os.Chtimes(path, now, now); errors.Is(err, fs.ErrNotExist) && m.exists() {
		if err := os.WriteFile(path, nil, 0o600); err == nil {
			_ = os.Chtimes(path, now, now)
		}
	}
}
