package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/git"
)

// mirrors are those of one process.
type mirrors struct {
	*git.Mirrors
	dir string
	log *syncBuffer
	now func() time.Time
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newMirrors(t *testing.T, dir string) *mirrors {
	t.Helper()
	return newMirrorsOf(t, dir, 0)
}

func newMirrorsOf(t *testing.T, dir string, maxBytes int64) *mirrors {
	t.Helper()
	repos := git.NewRepos(git.ReposOptions{})
	t.Cleanup(repos.Close)
	m := &mirrors{dir: dir, log: &syncBuffer{}, now: time.Now}
	m.Mirrors = git.NewMirrors(git.MirrorOptions{
		Dir: dir, Repos: repos, Now: func() time.Time { return m.now() }, Log: slog.New(slog.NewTextHandler(m.log, nil)), MaxBytes: maxBytes,
	})
	return m
}

// flows are the files that a source reads.
var flows = git.FileQuery{
	Dirs: []string{".kici", ".kici/workflows"}, MaxBytes: 1 << 20, MaxFiles: 100,
	Match: func(p string) bool { return strings.HasPrefix(p, ".kici/workflows/") },
}

// project is a repository with workflows, two commits on main, a branch of one commit, and an annotated tag on the first.
func project(t *testing.T) (dir string, first, second, side string) {
	t.Helper()
	dir = t.TempDir()
	sh(t, dir, `git init -q -b main . && git config user.email t@example.com && git config user.name T
		mkdir -p .kici/workflows src && echo one > .kici/workflows/ci.yaml && echo a > src/a && git add -A && git commit -qm first
		git tag -a v1 -m v1 && git branch topic
		echo two > .kici/workflows/ci.yaml && echo b > src/b && git add -A && git commit -qm second
		git checkout -q topic && echo c > src/c && git add -A && git commit -qm side && git checkout -q main`)
	rev := func(name string) string { return sh(t, dir, "git rev-parse "+name) }
	return dir, rev("main^"), rev("main"), rev("topic")
}

// broken makes the remote useless: whatever still works needs no network.
func broken(r git.Remote) git.Remote {
	r.URL = "/nowhere"
	return r
}

func TestMirrorAnswersAsTheRepositoryDoes(t *testing.T) {
	repo, first, second, side := project(t)
	for _, kind := range []string{"path", "http", "http without filters", "http protocol 0", "dumb http"} {
		t.Run(kind, func(t *testing.T) {
			remote := git.Remote{URL: repo}
			switch kind {
			case "http":
				remote.URL = serve(t, repo, serverOptions{config: allowFilter}).URL
			case "http without filters":
				remote.URL = serve(t, repo, serverOptions{config: []string{"uploadpack.allowFilter=false"}}).URL
			case "http protocol 0":
				remote.URL = serve(t, repo, serverOptions{oldProtocol: true}).URL
			case "dumb http":
				remote.URL = serveDumb(t, repo)
			}
			m := newMirrors(t, t.TempDir()).Open("src")
			mirrorAnswers(t, m, remote, first, second, side)
		})
	}
}

func mirrorAnswers(t *testing.T, m *git.Mirror, remote git.Remote, first, second, side string) {
	ctx := t.Context()
	for ref, want := range map[string][2]string{
		"main": {second, "refs/heads/main"}, "refs/heads/topic": {side, "refs/heads/topic"}, "v1": {first, "refs/tags/v1"},
		"HEAD": {second, ""}, first: {first, ""}, second[:10]: {second, ""},
	} {
		c, err := m.Resolve(ctx, remote, ref)
		if err != nil || c.SHA != want[0] || c.Ref != want[1] || c.Author != "T" {
			t.Errorf("Resolve(%s) = %+v, %v", ref, c, err)
		}
	}
	for _, ref := range []string{"nowhere", "refs/heads/none", strings.Repeat("ab", 20), "a..b", "--all", ""} {
		if _, err := m.Resolve(ctx, remote, ref); !errors.Is(err, git.ErrNotFound) {
			t.Errorf("Resolve(%q): %v, want ErrNotFound", ref, err)
		}
	}
	for sha, want := range map[string]string{first: "one\n", second: "two\n"} {
		files, err := m.Files(ctx, remote, sha, flows)
		if err != nil || len(files) != 1 || string(files[0].Data) != want {
			t.Errorf("Files(%s) = %v, %v", sha, files, err)
		}
	}
	if _, err := m.Resolve(ctx, remote, side); err != nil {
		t.Error(err)
	}
	gone := broken(remote) // everything is here by now
	for _, c := range []struct {
		remote        git.Remote
		before, after string
		want          []string
	}{
		{gone, first, second, []string{".kici/workflows/ci.yaml", "src/b"}},
		{gone, second, side, []string{".kici/workflows/ci.yaml", "src/b", "src/c"}},
		{remote, "", side, []string{"src/c"}},
		{remote, strings.Repeat("0", 40), second, []string{".kici/workflows/ci.yaml", "src/a", "src/b"}},
	} {
		got, err := m.ChangedFiles(ctx, c.remote, c.before, c.after, 100)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("ChangedFiles(%s, %s) = %v, %v; want %v", c.before, c.after, got, err, c.want)
		}
	}
	if base, err := m.MergeBase(ctx, gone, second, side); err != nil || base != first {
		t.Errorf("MergeBase = %s, %v", base, err)
	}
	for pair, want := range map[[2]string]bool{{first, side}: true, {second, side}: false} {
		if yes, err := m.IsAncestor(ctx, gone, pair[0], pair[1]); err != nil || yes != want {
			t.Errorf("IsAncestor(%v) = %v, %v", pair, yes, err)
		}
	}
	heads, err := m.Heads(ctx, remote)
	if err != nil || len(heads) != 3 || heads["refs/heads/main"] != second || heads["refs/tags/v1"] != first {
		t.Errorf("Heads = %v, %v", heads, err)
	}
	if b, err := m.DefaultBranch(ctx, remote); err != nil || b != "main" {
		t.Errorf("DefaultBranch = %q, %v", b, err)
	}
}

func TestMirrorFetchesOnceForManyAndNothingTwice(t *testing.T) {
	repo, first, second, _ := project(t)
	s := serve(t, repo, serverOptions{config: allowFilter})
	m := newMirrors(t, t.TempDir()).Open("src")
	remote := git.Remote{URL: s.URL}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := m.Resolve(t.Context(), remote, second); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.packs.Load(); n != 1 {
		t.Errorf("%d packs were asked for, want 1", n)
	}
	before := s.requests.Load()
	for _, sha := range []string{first, second} {
		if _, err := m.Resolve(t.Context(), remote, sha); err != nil {
			t.Error(err)
		}
	}
	if n := s.requests.Load() - before; n != 0 {
		t.Errorf("%d requests for what is here", n)
	}
	for range 2 {
		if _, err := m.Files(t.Context(), remote, second, flows); err != nil {
			t.Error(err)
		}
	}
	if n := s.packs.Load(); n != 2 {
		t.Errorf("%d packs, want one more for the files", n)
	}
}

func TestMirrorIsPartialAndItsReadersNeverFetch(t *testing.T) {
	repo, _, second, _ := project(t)
	s := serve(t, repo, serverOptions{config: allowFilter})
	ms := newMirrors(t, t.TempDir())
	if _, err := ms.Open("src").Files(t.Context(), git.Remote{URL: s.URL}, second, flows); err != nil {
		t.Fatal(err)
	}
	before := s.requests.Load()
	dir := filepath.Join(ms.dir, "src.git")
	repos := git.NewRepos(git.ReposOptions{})
	defer repos.Close()
	other := flows
	other.Dirs, other.Match = []string{"src"}, func(string) bool { return true }
	if _, err := repos.Open(dir).Files(t.Context(), second, other); !errors.Is(err, git.ErrUnreachable) {
		t.Errorf("files that the mirror is without: %v", err)
	}
	if config := sh(t, dir, "cat config"); strings.Contains(config, "promisor") || strings.Contains(config, "url") {
		t.Errorf("the configuration names a remote:\n%s", config)
	}
	if n := s.requests.Load() - before; n != 0 {
		t.Errorf("a reader made %d requests", n)
	}
}

func TestMirrorFollowsForcePushes(t *testing.T) {
	repo, first, second, _ := project(t)
	m := newMirrors(t, t.TempDir()).Open("src")
	remote := git.Remote{URL: repo}
	if _, err := m.Resolve(t.Context(), remote, "main"); err != nil {
		t.Fatal(err)
	}
	sh(t, repo, "git checkout -q --detach && git branch -f main "+first+" && git checkout -q main && echo x > src/x && git add -A && git commit -qm third")
	third := sh(t, repo, "git rev-parse main")
	if c, err := m.Resolve(t.Context(), remote, "main"); err != nil || c.SHA != third {
		t.Fatalf("Resolve(main) = %+v, %v, want %s", c, err, third)
	}
	if base, err := m.MergeBase(t.Context(), remote, second, third); err != nil || base != first {
		t.Errorf("MergeBase of before and after = %s, %v", base, err)
	}
}

func TestMirrorDamagedOrHalfIsMadeAnew(t *testing.T) {
	repo, _, second, _ := project(t)
	remote := git.Remote{URL: repo}
	damages := map[string]string{
		"locks and halves":   "touch config.lock HEAD.lock packed-refs.lock objects/pack/tmp_pack_x && mkdir -p refs/kici && touch refs/kici/x.lock",
		"no HEAD":            "rm HEAD",
		"packs cut short":    "chmod -R u+w . && for f in objects/pack/*.pack; do truncate -s 40 $f; done",
		"packs gone":         "rm -f objects/pack/*",
		"index of zeros":     "chmod -R u+w . && for f in objects/pack/*.idx; do truncate -s 0 $f; done",
		"refs of nonsense":   "mkdir -p refs/heads && echo nonsense > refs/heads/x",
		"config of nonsense": "echo '[[' > config",
		"empty directory":    "rm -rf *",
	}
	for name, script := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := newMirrors(t, dir).Open("src").Files(t.Context(), remote, second, flows); err != nil {
				t.Fatal(err)
			}
			sh(t, filepath.Join(dir, "src.git"), script)
			ms := newMirrors(t, dir) // the next process
			files, err := ms.Open("src").Files(t.Context(), remote, second, flows)
			if err != nil || len(files) != 1 {
				t.Errorf("Files = %v, %v\n%s", files, err, ms.log)
			}
			sh(t, repo, "git commit -q --allow-empty -m more")
			if _, err := ms.Open("src").Resolve(t.Context(), remote, "main"); err != nil {
				t.Errorf("Resolve: %v\n%s", err, ms.log)
			}
			if left := sh(t, filepath.Join(dir, "src.git"), "find . -name '*.lock' -o -name 'tmp_*'"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

func TestMirrorFetchKilledMidwayIsUsedAgain(t *testing.T) {
	repo, _, second, _ := project(t)
	sh(t, repo, "dd if=/dev/urandom of=big bs=1M count=8 2>/dev/null && git add big && git commit -qm big")
	big := sh(t, repo, "git rev-parse HEAD")
	slow := serve(t, repo, serverOptions{stallPacks: true})
	dir := t.TempDir()
	m := newMirrors(t, dir).Open("src")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.stalled
		cancel()
	}()
	if _, err := m.Resolve(ctx, git.Remote{URL: slow.URL}, big); !errors.Is(err, git.ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	for _, ms := range []*git.Mirror{m, newMirrors(t, dir).Open("src")} {
		if c, err := ms.Resolve(t.Context(), git.Remote{URL: repo}, big); err != nil || c.SHA != big {
			t.Errorf("%+v %v", c, err)
		}
		if _, err := ms.Files(t.Context(), git.Remote{URL: repo}, second, flows); err != nil {
			t.Error(err)
		}
	}
}

// A repository without end does not fill the disk: a fetch ends while it goes beyond the bound, at the latest when it is done, and leaves
// nothing behind.
func TestMirrorIsBounded(t *testing.T) {
	repo, first, _, _ := project(t)
	sh(t, repo, "dd if=/dev/urandom of=big bs=1M count=8 2>/dev/null && git add big && git commit -qm big")
	big := sh(t, repo, "git rev-parse HEAD")
	for name, c := range map[string]struct {
		url   string
		limit int64
	}{
		"while it comes":  {serve(t, repo, serverOptions{stallPacks: true}).URL, 256 << 10},
		"once it is here": {serve(t, repo, serverOptions{}).URL, 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := newMirrorsOf(t, dir, c.limit).Open("src")
			if _, err := m.Resolve(t.Context(), git.Remote{URL: c.url}, big); !errors.Is(err, git.ErrTooBig) {
				t.Fatalf("err = %v", err)
			}
			if left := sh(t, dir, "find . -name '*pack*' -type f"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
	m := newMirrorsOf(t, t.TempDir(), 1<<20).Open("src")
	if c, err := m.Resolve(t.Context(), git.Remote{URL: serve(t, repo, serverOptions{config: allowFilter}).URL}, first); err != nil || c.SHA != first {
		t.Errorf("within the bound: %+v %v", c, err)
	}
}

// Halves of mirrors that a killed process has left go, also when their source has; what is no mirror's stays.
func TestMirrorSweepRemovesHalves(t *testing.T) {
	dir := t.TempDir()
	ms := git.NewMirrors(git.MirrorOptions{Dir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"a.new", "b.old", "c.new.d", "d e.new", "e.git.old", "f.olds"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "objects"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ms.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{".keys", "c.new.d", "d e.new", "e.git.old", "f.olds", "file.new"}; !slices.Equal(got, want) {
		t.Errorf("left: %q", got)
	}
}

// A full disk is cleared of mirrors, the longest unused first, and of no more than it takes; they can be had again.
func TestMirrorsMakeRoom(t *testing.T) {
	repo, _, second, _ := project(t)
	remote := git.Remote{URL: repo}
	ms := newMirrors(t, t.TempDir())
	if err := ms.MakeRoom(t.Context(), func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"now", "yesterday", "week", "month"} {
		if _, err := ms.Open(id).Files(t.Context(), remote, second, flows); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-[]time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 29 * 24 * time.Hour}[i])
		if err := os.Chtimes(filepath.Join(ms.dir, id+".git", "kici-used"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	if err := ms.MakeRoom(t.Context(), func() bool { asked++; return asked < 3 }); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, ms.dir, "ls"); got != "now.git\nyesterday.git" {
		t.Errorf("there are: %s", got)
	}
	if err := ms.MakeRoom(t.Context(), func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, ms.dir, "ls"); got != "now.git" {
		t.Errorf("in need there are: %s", got)
	}
	if files, err := ms.Open("month").Files(t.Context(), remote, second, flows); err != nil || len(files) != 1 {
		t.Errorf("it cannot be had again: %v, %v", files, err)
	}
}

func TestMirrorSweep(t *testing.T) {
	repo, _, second, _ := project(t)
	remote := git.Remote{URL: repo}
	ms := newMirrors(t, t.TempDir())
	if err := ms.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"busy", "idle"} {
		if _, err := ms.Open(id).Files(t.Context(), remote, second, flows); err != nil {
			t.Fatal(err)
		}
	}
	// A pack for each of many fetches.
	sh(t, filepath.Join(ms.dir, "busy.git"), `cd objects/pack && for i in $(seq 10 70); do
		for f in $(ls pack-*.pack | head -1 | sed s/.pack//); do for e in pack idx; do cp $f.$e pack-00000000000000000000000000000000000000$i.$e; done; done; done`)
	later := time.Now().Add(31 * 24 * time.Hour)
	ms.now = func() time.Time { return later }
	if _, err := ms.Open("busy").Resolve(t.Context(), remote, second); err != nil {
		t.Fatal(err)
	}
	if err := ms.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, ms.dir, "ls"); got != "busy.git" {
		t.Errorf("after the sweep there are: %s", got)
	}
	if n := sh(t, filepath.Join(ms.dir, "busy.git"), "ls objects/pack/*.pack | wc -l"); n != "1" {
		t.Errorf("%s packs after the sweep", n)
	}
	for _, id := range []string{"busy", "idle"} {
		if files, err := ms.Open(id).Files(t.Context(), remote, second, flows); err != nil || len(files) != 1 {
			t.Errorf("%s: Files = %v, %v", id, files, err)
		}
	}
	if err := ms.Remove(t.Context(), "busy"); err != nil {
		t.Error(err)
	}
	if got := sh(t, ms.dir, "ls"); got != "idle.git" {
		t.Errorf("after the removal there are: %s", got)
	}
}

func TestMirrorRefusesNames(t *testing.T) {
	ms := newMirrors(t, t.TempDir())
	for _, id := range []string{"", "..", "a/b", "-x", "a.git", strings.Repeat("x", 200)} {
		if _, err := ms.Open(id).Heads(t.Context(), git.Remote{URL: "/nowhere"}); !errors.Is(err, git.ErrName) {
			t.Errorf("%q: %v", id, err)
		}
		if err := ms.Remove(t.Context(), id); !errors.Is(err, git.ErrName) {
			t.Errorf("Remove(%q): %v", id, err)
		}
	}
	if _, err := ms.Open("x").Heads(t.Context(), git.Remote{URL: "ext::sh -c x"}); !errors.Is(err, git.ErrName) {
		t.Error(err)
	}
}

func TestMirrorOfManyRefs(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100,000 refs")
	}
	repo, _, second, side := project(t)
	var refs strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&refs, "%s refs/heads/many/%06d\n", side, i)
	}
	if err := os.WriteFile(filepath.Join(repo, ".git", "packed-refs"), []byte(refs.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	m := newMirrors(t, t.TempDir()).Open("src")
	heads, err := m.Heads(t.Context(), git.Remote{URL: repo})
	if err != nil || len(heads) < 100_002 {
		t.Fatalf("%d refs, %v", len(heads), err)
	}
	if c, err := m.Resolve(t.Context(), git.Remote{URL: repo}, "main"); err != nil || c.SHA != second {
		t.Errorf("%+v %v", c, err)
	}
}

func TestMirrorOfAnEmptyRepository(t *testing.T) {
	repo := t.TempDir()
	sh(t, repo, "git init -q -b main .")
	m := newMirrors(t, t.TempDir()).Open("src")
	if heads, err := m.Heads(t.Context(), git.Remote{URL: repo}); err != nil || len(heads) != 0 {
		t.Errorf("Heads = %v, %v", heads, err)
	}
	if _, err := m.Resolve(t.Context(), git.Remote{URL: repo}, "main"); !errors.Is(err, git.ErrNotFound) {
		t.Errorf("Resolve: %v", err)
	}
	if b, err := m.DefaultBranch(t.Context(), git.Remote{URL: repo}); b != "" && b != "main" || b == "" && !errors.Is(err, git.ErrNotFound) {
		t.Errorf("DefaultBranch = %q, %v", b, err)
	}
}
