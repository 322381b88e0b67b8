package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How mirrors are kept small.
const (
	unusedFor    = 30 * 24 * time.Hour
	neededFor    = 2 * time.Hour // a use is noted hourly
	manyPacks    = 50            // a sweep repacks beyond this
	manyPacksNow = 200           // the next fetch repacks beyond this, without waiting for a sweep
	keptCommits  = 200           // commits fetched by id that git is told to keep; older ones stay if they are part of a newer one's history
	repackTime   = 10 * time.Minute
)

// Suffixes of a mirror's directory while it is made, and while it is removed.
const (
	freshSuffix = ".new"
	oldSuffix   = ".old"
)

// IDs lists the mirrors that exist.
func (s *Mirrors) IDs() ([]string, error) {
	entries, err := os.ReadDir(s.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".git"); ok && mirrorID().MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Sweep removes mirrors that nobody has used for 30 days and repacks those of more than 50 packs. It waits for fetches of the
// mirror that it looks at. git keeps readers going while it repacks: they find objects in the new pack. A removal waits for them.
// Run it hourly. The error joins what went wrong with single mirrors.
func (s *Mirrors) Sweep(ctx context.Context) error {
	ids, err := s.IDs()
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, s.Open(id).sweep(ctx))
	}
	return errors.Join(append(errs, s.sweepHalves(ctx))...)
}

// sweepHalves removes what a process that was killed has left of a mirror that it made or removed. The mirror's writer does that too, when
// there is one again; a source that has gone has none.
func (s *Mirrors) sweepHalves(ctx context.Context) error {
	entries, err := os.ReadDir(s.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		suffix := filepath.Ext(e.Name())
		id := strings.TrimSuffix(e.Name(), suffix)
		if suffix != freshSuffix && suffix != oldSuffix || !e.IsDir() || !mirrorID().MatchString(id) {
			continue
		}
		errs = append(errs, s.Open(id).write(ctx, func(context.Context) error { // so nobody is at it
			path := filepath.Join(s.o.Dir, e.Name())
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			s.o.Log.Info("removed half of a mirror", "mirror", id, "path", path)
			return os.RemoveAll(path)
		}))
	}
	return errors.Join(errs...)
}

// MakeRoom removes mirrors from a disk that is too full, the longest unused first, until full reports false. They are fetched again when
// somebody needs them; those that were used in the last two hours stay.
func (s *Mirrors) MakeRoom(ctx context.Context, full func() bool) error {
	ids, err := s.IDs()
	errs := []error{err}
	unused := map[string]time.Duration{}
	for _, id := range ids {
		if unused[id], err = s.Open(id).unused(); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(unused[b], unused[a]) })
	for _, id := range ids {
		if unused[id] < neededFor || !full() {
			break
		}
		m := s.Open(id)
		errs = append(errs, m.write(ctx, func(context.Context) error {
			if now, err := m.unused(); err != nil || now < neededFor {
				return err
			}
			s.o.Log.Warn("mirror removed: the disk is full; it is fetched again when it is needed", "mirror", id, "hours_unused", int(unused[id].Hours()))
			return m.removeDir()
		}))
	}
	return errors.Join(errs...)
}

// unused is for how long nobody has used a mirror.
func (m *Mirror) unused() (time.Duration, error) {
	info, err := os.Stat(filepath.Join(m.dir, usedFile))
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(m.dir)
	}
	if err != nil {
		return 0, fmt.Errorf("look at mirror %s: %w", m.id, err)
	}
	return m.set.o.Now().Sub(info.ModTime()), nil
}

func (m *Mirror) sweep(ctx context.Context) error {
	return m.write(ctx, func(ctx context.Context) error {
		unused, err := m.unused()
		if err != nil {
			return err
		}
		if unused > unusedFor {
			m.set.o.Log.Info("mirror removed: unused", "mirror", m.id, "days", int(unused.Hours()/24))
			return m.removeDir()
		}
		if m.packs() > manyPacks {
			return m.repack(ctx)
		}
		return nil
	})
}

// Remove deletes a mirror and the host keys that it has learned: its source is gone.
func (s *Mirrors) Remove(ctx context.Context, id string) error {
	m := s.Open(id)
	if m.err != nil {
		return m.err
	}
	return m.write(ctx, func(context.Context) error {
		err := os.Remove(m.known())
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, m.removeDir())
	})
}

// removeDir takes the directory away from readers at once and then removes it. The caller is the writer.
func (m *Mirror) removeDir() error {
	old := filepath.Join(m.set.o.Dir, m.id+oldSuffix)
	err := os.RemoveAll(old)
	if err == nil {
		m.dirs.Lock()
		err = os.Rename(m.dir, old)
		m.dirs.Unlock()
	}
	m.mu.Lock()
	m.used = time.Time{}
	m.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = errors.Join(err, os.RemoveAll(old)); err != nil {
		return fmt.Errorf("%w: remove mirror: %w", ErrUnreachable, err)
	}
	return nil
}

// makeReady makes a mirror that is not there, and tidies one whose last writer did not come to its end. The caller is the writer.
func (m *Mirror) makeReady(ctx context.Context, digits int) error {
	if m.exists() {
		if m.unsure {
			m.tidy()
		}
		return nil
	}
	fresh := filepath.Join(m.set.o.Dir, m.id+freshSuffix)
	if err := errors.Join(os.RemoveAll(fresh), m.removeDir()); err != nil {
		return fmt.Errorf("%w: make mirror: %w", ErrUnreachable, err)
	}
	format := "sha1"
	if digits == 64 {
		format = "sha256"
	}
	if _, err := Run(ctx, Cmd{Args: []string{
		"init", "--quiet", "--bare", "--object-format=" + format, "--initial-branch=main", "--end-of-options", fresh,
	}}); err != nil {
		return fmt.Errorf("%w: make mirror: %w", ErrUnreachable, err)
	}
	if err := os.Rename(fresh, m.dir); err != nil {
		return fmt.Errorf("%w: make mirror: %w", ErrUnreachable, err)
	}
	return nil
}

// tidy removes locks and halves of packs that a killed git has left. Nobody else writes here.
func (m *Mirror) tidy() {
	_ = filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return nil //nolint:nilerr // what cannot be looked at is git's to complain about
		case e.IsDir():
			if filepath.Base(filepath.Dir(path)) == "objects" && len(name) == 2 {
				return fs.SkipDir
			}
		case strings.HasSuffix(name, ".lock"), name == "gc.pid", strings.HasPrefix(name, "tmp_"), strings.HasPrefix(name, ".tmp-"):
			_ = os.Remove(path)
		}
		return nil
	})
}

// packs counts them.
func (m *Mirror) packs() int {
	entries, _ := os.ReadDir(filepath.Join(m.dir, "objects", "pack"))
	n := 0
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".pack" {
			n++
		}
	}
	return n
}

// repack puts all packs into one, all refs into one file, and drops what no kept commit needs and is older than two weeks. The
// caller is the writer.
func (m *Mirror) repack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, repackTime)
	defer cancel()
	if m.unsure {
		m.tidy()
	}
	if err := m.forgetCommits(ctx); err != nil {
		return fmt.Errorf("forget old commits: %w", err)
	}
	_, err := m.maintain(ctx, "", "gc", "--quiet", "--prune=2.weeks.ago")
	return err
}

// forgetCommits drops the refs of commits that were fetched by id, but for the newest.
func (m *Mirror) forgetCommits(ctx context.Context) error {
	out, err := m.maintain(ctx, "", "for-each-ref", "--sort=-committerdate", "--format=%(refname)", "refs/kici/")
	if err != nil {
		return err
	}
	refs := strings.Fields(string(out))
	if len(refs) <= keptCommits {
		return nil
	}
	var gone strings.Builder
	for _, ref := range refs[keptCommits:] {
		gone.WriteString("delete " + ref + "\n")
	}
	_, err = m.maintain(ctx, gone.String(), "update-ref", "--stdin")
	return err
}

// maintain runs a command in the mirror that talks to nobody.
func (m *Mirror) maintain(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	c := Cmd{Args: args, Stdin: strings.NewReader(stdin), Env: append([]string{"GIT_DIR=" + m.dir}, readOnly...)}
	if !m.whole() {
		c.Config = promisor
	}
	return Run(ctx, c)
}
