package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of fetches.
const (
	firstFetch  = 10 * time.Minute // of a mirror that is empty
	laterFetch  = 2 * time.Minute
	remakePause = time.Hour // between two times that a mirror is found damaged and made anew
)

// want is a commit, with the full ref that it was seen on if known.
type want struct{ sha, ref string }

// flight is one fetch that several may wait for.
type flight struct {
	done    chan struct{}
	err     error // after done
	waiters int   // guarded by the mirror's mu
	cancel  context.CancelFunc
}

// flightKey has the credential too: nobody is refused for another's, or served by it.
type flightKey struct {
	sha    string
	remote Remote
}

// read runs f once the mirror has every wanted commit. Files that a partial mirror is without are fetched, and f runs again; what
// cannot be in a whole mirror makes it anew, once an hour at most.
func (m *Mirror) read(ctx context.Context, remote Remote, wants []want, f func(*Repo) error) error {
	for attempt := 0; ; attempt++ {
		for _, w := range wants {
			if err := m.ensure(ctx, remote, w); err != nil {
				return err
			}
		}
		err := m.local(func() error { return f(m.repo) })
		if err == nil || attempt == 2 || ctx.Err() != nil {
			return err
		}
		lost, _ := errors.AsType[*missing](err)
		switch {
		case lost != nil && len(lost.blobs) > 0:
			err = m.fetchBlobs(ctx, remote, wants[0], lost.blobs)
		case errors.Is(err, ErrNotFound), damaged(err):
			err = m.renew(ctx, remote, wants[0], err)
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}

// ensure fetches a commit that is missing. All who want the same one at the same time share a fetch; it ends when none of them waits
// any more.
func (m *Mirror) ensure(ctx context.Context, remote Remote, w want) error {
	if m.err != nil {
		return m.err
	}
	if err := CheckSHA(w.sha); err != nil {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if m.has(ctx, w.sha) {
		return nil
	}
	key := flightKey{w.sha, remote}
	m.mu.Lock()
	fl := m.flights[key]
	if fl == nil {
		fl = m.takeOff(context.WithoutCancel(ctx), key, w)
	}
	fl.waiters++
	m.mu.Unlock()
	select {
	case <-fl.done:
		return fl.err
	case <-ctx.Done():
		m.leave(key, fl)
		return gaveUp(ctx)
	}
}

// takeOff starts a fetch. The caller holds mu.
func (m *Mirror) takeOff(ctx context.Context, key flightKey, w want) *flight {
	ctx, cancel := context.WithCancel(ctx)
	fl := &flight{done: make(chan struct{}), cancel: cancel}
	m.flights[key] = fl
	go func() {
		defer cancel()
		fl.err = m.write(ctx, func(ctx context.Context) error {
			if m.has(ctx, w.sha) { // came along with another
				return nil
			}
			return m.fetchSound(ctx, key.remote, w)
		})
		m.mu.Lock()
		if m.flights[key] == fl {
			delete(m.flights, key)
		}
		m.mu.Unlock()
		close(fl.done)
	}()
	return fl
}

// leave takes one waiter off a fetch; the last one ends it, and stays until git is gone.
func (m *Mirror) leave(key flightKey, fl *flight) {
	m.mu.Lock()
	fl.waiters--
	last := fl.waiters == 0
	if last && m.flights[key] == fl {
		delete(m.flights, key) // whoever comes now starts another
	}
	m.mu.Unlock()
	if last {
		fl.cancel()
		<-fl.done
	}
}

// has reports whether the commit is here. Trees came with it, and all of its history. What cannot be read is not here.
func (m *Mirror) has(ctx context.Context, sha string) bool {
	return m.kind(ctx, sha+"^{commit}") == "commit"
}

// kind of an object, "" when it is not here.
func (m *Mirror) kind(ctx context.Context, name string) (kind string) {
	if !m.exists() {
		return ""
	}
	_ = m.local(func() error {
		return m.repo.with(ctx, func(rd *reader) error {
			got, err := rd.get(maxCommitBytes, name)
			if err == nil {
				kind = got[0].kind
			}
			return err
		})
	})
	return kind
}

// write runs f as the mirror's only writer, and as one of the few fetches of this process.
func (m *Mirror) write(ctx context.Context, f func(context.Context) error) error {
	for _, turn := range []chan struct{}{m.writing, m.set.fetches} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return gaveUp(ctx)
		}
	}
	if err := m.set.prepare(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return f(ctx)
}

// fetchSound fetches into a mirror, and once more into a new one when the old turns out to be damaged.
func (m *Mirror) fetchSound(ctx context.Context, remote Remote, w want) error {
	limit := laterFetch
	if !m.exists() {
		limit = firstFetch
	} else if m.packs() > manyPacksNow {
		if err := m.repack(ctx); err != nil {
			m.set.o.Log.Warn("repack mirror", "mirror", m.id, "err", err)
		}
	}
	err := m.fetchWithin(ctx, remote, w, limit)
	if damaged(err) && m.mayRemake() {
		m.set.o.Log.Warn("mirror is damaged and made anew", "mirror", m.id, "err", remote.explain(err))
		if err = m.removeDir(); err == nil {
			err = m.fetchWithin(ctx, remote, w, firstFetch)
		}
	}
	return remote.explain(err)
}

func (m *Mirror) mayRemake() bool {
	now := m.set.o.Now()
	if !m.remade.IsZero() && now.Sub(m.remade) < remakePause {
		return false
	}
	m.remade = now
	return true
}

func (m *Mirror) fetchWithin(ctx context.Context, remote Remote, w want, limit time.Duration) error {
	timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: the fetch took longer than %s", ErrUnreachable, limit))
	defer cancel()
	if err := m.makeReady(timed, len(w.sha)); err != nil {
		return err
	}
	m.unsure = true
	err := m.fetchCommit(timed, remote, w)
	switch {
	case ctx.Err() != nil:
		return gaveUp(ctx)
	case err != nil || m.has(timed, w.sha):
	case m.kind(timed, w.sha) != "": // not a commit
		err = fmt.Errorf("%s: %w", w.sha, ErrNotFound)
	default: // git thinks that it is here
		err = &missing{name: w.sha}
	}
	m.unsure = err != nil
	return err
}

// fetchCommit asks for the commit alone, with its history; where the server refuses that, for all branches and tags.
func (m *Mirror) fetchCommit(ctx context.Context, remote Remote, w want) error {
	err := m.fetch(ctx, remote, nil, "+"+w.sha+":refs/kici/"+w.sha)
	if !refusesCommit(err) {
		return err
	}
	specs := []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"}
	if strings.HasPrefix(w.ref, "refs/") && !strings.HasPrefix(w.ref, "refs/heads/") && !strings.HasPrefix(w.ref, "refs/tags/") {
		specs = append(specs, "+"+w.ref+":refs/kici/"+w.sha)
	}
	err = m.fetch(ctx, remote, nil, append([]string{"--prune"}, specs...)...)
	if refusesCommit(err) && len(specs) > 2 { // a pull request's ref may be gone by now
		err = m.fetch(ctx, remote, nil, append([]string{"--prune"}, specs[:2]...)...)
	}
	if err == nil && m.kind(ctx, w.sha) == "" {
		err = fmt.Errorf("%s: %w", w.sha, ErrNotFound)
	}
	return err
}

// fetchBlobs gets files of a commit by their ids, in one command. Where the server refuses, the mirror is made anew without a
// filter.
func (m *Mirror) fetchBlobs(ctx context.Context, remote Remote, w want, ids []string) error {
	return m.write(ctx, func(ctx context.Context) error {
		timed, cancel := context.WithTimeoutCause(ctx, laterFetch, fmt.Errorf("%w: the fetch took longer than %s", ErrUnreachable, laterFetch))
		defer cancel()
		err := m.fetch(timed, remote, ids)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return gaveUp(ctx)
		case !refusesCommit(err):
			return remote.explain(err)
		}
		m.set.o.Log.Info("the server gives out no single files; mirror is made anew with all of them", "mirror", m.id)
		if err := m.removeDir(); err != nil {
			return err
		}
		if err := m.makeReady(ctx, len(w.sha)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.dir, wholeFile), nil, 0o600); err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return remote.explain(m.fetchWithin(ctx, remote, w, firstFetch))
	})
}

// wholeFile marks a mirror that has the files of all commits.
const wholeFile = "kici-whole"

func (m *Mirror) whole() bool {
	_, err := os.Stat(filepath.Join(m.dir, wholeFile))
	return err == nil || !lazyFetchStops()
}

// lazyFetchStops reports whether this machine's git knows GIT_NO_LAZY_FETCH. Without it the helper for plain file servers, which
// looks for objects that were left out on purpose, would fetch them by a fetch of its own, whose helper does the same, without end.
var lazyFetchStops = sync.OnceValue(func() bool {
	out, err := Run(context.Background(), Cmd{Args: []string{"version"}})
	return err == nil && knowsNoLazyFetch(string(out))
})

func knowsNoLazyFetch(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "git version %d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	since, ok := map[int]int{39: 4, 40: 2, 41: 1, 42: 2, 43: 4, 44: 1}[minor] // releases that got it later
	return major > 2 || major == 2 && (minor >= 45 || ok && patch >= since)
}

// fetch runs git fetch with options and refspecs, or for objects by id. The pack that comes is kept as it is, so that it appears
// whole or not at all. A mirror that grows beyond its bound meanwhile is removed.
func (m *Mirror) fetch(ctx context.Context, remote Remote, ids []string, args ...string) error {
	with, done, err := m.reach(remote)
	if err != nil {
		return err
	}
	defer done()
	with.Config = append(with.Config, "fetch.unpackLimit=1", "remote.origin.url="+Redact(remote.URL))
	with.Args = []string{"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-show-forced-updates", "--force"}
	if !m.whole() {
		with.Config = append(with.Config, promisor...)
		with.Args = append(with.Args, "--filter=blob:none")
	}
	with.Args = append(with.Args, remote.localServer()...)
	if ids != nil {
		with.Config = append(with.Config, "fetch.negotiationAlgorithm=noop")
		with.Args = append(with.Args, "--stdin")
		with.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	}
	if len(args) > 0 && args[0] == "--prune" {
		with.Args, args = append(with.Args, args[0]), args[1:]
	}
	with.Args = append(with.Args, "--end-of-options", "origin")
	with.Args = append(with.Args, args...)
	with.Env = append(with.Env, "GIT_DIR="+m.dir, "GIT_NO_LAZY_FETCH=1")
	watched, stop := m.bounded(ctx)
	_, err = Run(watched, with)
	if big := stop(); big != nil {
		m.set.o.Log.Error("mirror removed: the repository is too large", "mirror", m.id, "limit_bytes", m.set.o.MaxBytes)
		return errors.Join(big, m.removeDir())
	}
	return err
}

// promisor tells commands that objects may be missing. It is never in the mirror's own configuration, where it would let readers
// fetch them.
var promisor = []string{"remote.origin.promisor=true", "remote.origin.partialclonefilter=blob:none"}

// renew makes a damaged mirror anew for a reader.
func (m *Mirror) renew(ctx context.Context, remote Remote, w want, why error) error {
	return m.write(ctx, func(ctx context.Context) error {
		if !m.mayRemake() {
			return why
		}
		m.set.o.Log.Warn("mirror is damaged and made anew", "mirror", m.id, "err", why)
		if err := m.removeDir(); err != nil {
			return err
		}
		return remote.explain(m.fetchWithin(ctx, remote, w, firstFetch))
	})
}

// damaged: git says that its own objects or files are wrong, or lacks some, or a reader died of them.
func damaged(err error) bool {
	if _, lacks := errors.AsType[*missing](err); lacks || errors.Is(err, errDied) {
		return true
	}
	for line := range strings.Lines(stderrOf(err)) {
		if strings.HasPrefix(line, "remote:") || containsAny(line, "from remote repository", "askpass") {
			continue
		}
		if containsAny(line, "bad object", "corrupt", "unable to read", "Could not read",
			"bad config", "not a git repository", "does not point to a valid object", "did not send all necessary objects",
			"index unavailable", "is far too short", "unable to parse", "unexpected line", "invalid object", "bad revision",
			"mismatched algorithms", "cannot lock ref", "bad signature", "could not open pack", "error: packfile", "does not match index") {
			return true
		}
	}
	return false
}
