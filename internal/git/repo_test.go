package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fixture is a real repository made with real git.
type fixture struct {
	t   testing.TB
	dir string
}

func newFixture(t testing.TB, args ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "repo")}
	out, err := exec.Command("git", append(append([]string{"init", "-q", "-b", "main"}, args...), f.dir)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return f
}

func (f *fixture) git(args ...string) string {
	f.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", f.dir}, args...)...)
	cmd.Env = append(os.Environ(),
		"GIT_AUTHOR_NAME=Ann Author", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files ("" deletes) and commits them.
func (f *fixture) commit(message string, files map[string]string) string {
	f.t.Helper()
	for name, text := range files {
		full := filepath.Join(f.dir, name)
		if text == "" {
			_ = os.RemoveAll(full)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	f.git("add", "-A")
	f.git("commit", "-q", "--allow-empty", "-m", message)
	return f.git("rev-parse", "HEAD")
}

func (f *fixture) repo() *Repo {
	p := NewRepos(ReposOptions{})
	f.t.Cleanup(p.Close)
	return p.Open(f.dir)
}

func ctxOf(t testing.TB) context.Context { return t.Context() }

func TestResolve(t *testing.T) {
	f := newFixture(t)
	first := f.commit("first line\n\nbody", map[string]string{"a": "1"})
	f.git("tag", "-a", "v1", "-m", "annotated")
	second := f.commit("zweite Zeile äö \x1b[31mred", map[string]string{"a": "2"})
	r := f.repo()
	for ref, want := range map[string]struct{ sha, ref string }{
		"main":            {second, "refs/heads/main"},
		"refs/heads/main": {second, "refs/heads/main"},
		"v1":              {first, "refs/tags/v1"},
		"HEAD":            {second, ""},
		first:             {first, ""},
		first[:10]:        {first, ""},
	} {
		c, err := r.Resolve(ctxOf(t), ref)
		if err != nil || c.SHA != want.sha || c.Ref != want.ref {
			t.Errorf("%s: %+v %v, want %v", ref, c, err, want)
		}
	}
	c, err := r.Resolve(ctxOf(t), first)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Commit{SHA: first, Tree: c.Tree, Title: "first line", Author: "Ann Author", Email: "ann@example.com"}, c); diff != "" {
		t.Error(diff)
	}
	if c, _ := r.Resolve(ctxOf(t), "main"); c.Title != "zweite Zeile äö [31mred" {
		t.Errorf("title keeps control characters: %q", c.Title)
	}
}

// hostileRefs are names that must neither run anything nor confuse the protocol.
var hostileRefs = []string{
	"", "@", "-", "--upload-pack=touch pwned", "--batch-check", "$(touch pwned)", "`touch pwned`", ";touch pwned", "a\nHEAD", "a\x00b", "../../etc/passwd",
	"..", "main..HEAD", "main^{tree}", "HEAD:secret", ":/first", "@{-1}", "main@{0}", "a b", "refs/../HEAD", "refs/heads/../../HEAD",
	strings.Repeat("a", 100_000), "~", "*", "\xff\xfe", "main missing", "refs/heads/main^{}",
}

func TestHostileRefsAreNotFound(t *testing.T) {
	f := newFixture(t)
	sha := f.commit("first", map[string]string{"secret": "x"})
	r := f.repo()
	for _, ref := range hostileRefs {
		if c, err := r.Resolve(ctxOf(t), ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %+v %v, want ErrNotFound", ref, c, err)
		}
	}
	if c, err := r.Resolve(ctxOf(t), "main"); err != nil || c.SHA != sha {
		t.Errorf("the reader is confused afterwards: %+v %v", c, err)
	}
	if _, err := os.Stat("pwned"); err == nil {
		t.Error("a ref name was run")
	}
}

func TestHostileRefsThatExist(t *testing.T) {
	f := newFixture(t)
	sha := f.commit("first", map[string]string{"a": "x"})
	r := f.repo()
	for _, name := range []string{"$(touch${IFS}pwned)", "--upload-pack=x", ";id", "`id`", "a&b|c", "'\"", "ünï", "refs/heads/x"} {
		f.git("update-ref", "refs/heads/"+name, sha)
		c, err := r.Resolve(ctxOf(t), "refs/heads/"+name)
		if err != nil || c.SHA != sha || c.Ref != "refs/heads/"+name {
			t.Errorf("%q: %+v %v", name, c, err)
		}
	}
}

func FuzzResolve(f *testing.F) {
	fx := newFixture(f)
	sha := fx.commit("first", map[string]string{"a": "x"})
	r := fx.repo()
	for _, ref := range hostileRefs {
		f.Add(ref)
	}
	f.Add("main")
	f.Add(sha[:8])
	f.Fuzz(func(t *testing.T, ref string) {
		c, err := r.Resolve(t.Context(), ref)
		if err == nil && c.SHA != sha {
			t.Errorf("%q resolved to %+v", ref, c)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", ref, err)
		}
	})
}

var everything = FileQuery{
	Dirs: []string{".kici", ".kici/workflows"}, MaxBytes: 1 << 20, MaxFiles: 1000,
	Match: func(p string) bool { return strings.HasSuffix(p, ".yaml") || strings.HasSuffix(p, ".json") },
}

func TestFiles(t *testing.T) {
	f := newFixture(t)
	sha := f.commit("x", map[string]string{
		".kici/workflows/ci.yaml": "on: push", ".kici/kici.lock.json": "{}", ".kici/other.txt": "no", ".kici/workflows/deep/x.yaml": "no",
		".kicia/workflows/no.yaml": "no", "a": "1",
	})
	none := f.commit("none", map[string]string{".kici": "", ".kicia": ""})
	r := f.repo()
	got, err := r.Files(ctxOf(t), sha, everything)
	want := []File{{".kici/kici.lock.json", "100644", []byte("{}")}, {".kici/workflows/ci.yaml", "100644", []byte("on: push")}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got, err := r.Files(ctxOf(t), none, everything); err != nil || len(got) != 0 {
		t.Errorf("no directory: %v %v", got, err)
	}
	if _, err := r.Files(ctxOf(t), strings.Repeat("1", 40), everything); !errors.Is(err, ErrNotFound) {
		t.Errorf("no commit: %v", err)
	}
}

func TestFilesShowWhatIsNoDirectory(t *testing.T) {
	for name, want := range map[string]File{
		"link":        {".kici", ModeSymlink, []byte("/etc")},
		"nested link": {".kici/workflows", ModeSymlink, []byte("/etc")},
		"file":        {".kici", "100644", []byte("x")},
	} {
		f := newFixture(t)
		full := filepath.Join(f.dir, want.Path)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if want.Mode == ModeSymlink {
			err = errors.Join(err, os.Symlink("/etc", full))
		} else {
			err = errors.Join(err, os.WriteFile(full, want.Data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.repo().Files(ctxOf(t), f.commit(name, nil), everything)
		if diff := cmp.Diff([]File{want}, got); err != nil || diff != "" {
			t.Error(name, err, diff)
		}
	}
	f := newFixture(t)
	first := f.commit("a", map[string]string{"x": "1"})
	f.git("update-index", "--add", "--cacheinfo", ModeSubmodule+","+first+",.kici")
	f.git("commit", "-q", "-m", "submodule")
	got, err := f.repo().Files(ctxOf(t), f.git("rev-parse", "HEAD"), everything)
	if err != nil || len(got) != 1 || got[0].Path != ".kici" || got[0].Mode != ModeSubmodule {
		t.Errorf("submodule: %v %v", got, err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	f := newFixture(t)
	files := map[string]string{".kici/workflows/big.yaml": strings.Repeat("x", 2<<20)}
	big := f.commit("big", files)
	files = map[string]string{".kici/workflows/big.yaml": ""}
	for i := range 300 {
		files[fmt.Sprintf(".kici/workflows/%d.yaml", i)] = strings.Repeat("y", 4000) + fmt.Sprint(i)
	}
	many := f.commit("many", files)
	r := f.repo()
	for _, sha := range []string{big, many} {
		if _, err := r.Files(ctxOf(t), sha, everything); !errors.Is(err, ErrTooBig) {
			t.Errorf("%v, want ErrTooBig", err)
		}
	}
	q := everything
	q.MaxBytes, q.MaxFiles = 10<<20, 299
	if _, err := r.Files(ctxOf(t), many, q); !errors.Is(err, ErrTooBig) {
		t.Errorf("%v, want ErrTooBig", err)
	}
	q.MaxFiles = 300
	if got, err := r.Files(ctxOf(t), many, q); err != nil || len(got) != 300 || string(got[299].Data[:4000]) != strings.Repeat("y", 4000) {
		t.Errorf("%d files, %v", len(got), err)
	}
}

func TestChangedFiles(t *testing.T) {
	f := newFixture(t)
	a := f.commit("a", map[string]string{"keep/x": "1", "dir/a": "1", "dir/b": "1", "thing": "file", "gone/deep/x": "1"})
	b := f.commit("b", map[string]string{"dir/b": "2", "thing": "", "gone": "", "new/é x": "1"})
	c := f.commit("c", map[string]string{"thing/inner": "now a directory"})
	f.git("checkout", "-q", "-b", "feature", a)
	d := f.commit("d", map[string]string{"feature": "1"})
	f.git("checkout", "-q", "--orphan", "island")
	e := f.commit("e", nil)
	r := f.repo()
	zero := strings.Repeat("0", 40)
	for _, tc := range []struct {
		name, before, after string
		want                []string
	}{
		{"same", a, a, nil},
		{"edit, delete, add", a, b, []string{"dir/b", "new/é x", "gone/deep/x", "thing"}},
		{"file becomes directory", a, c, []string{"dir/b", "new/é x", "thing", "thing/inner", "gone/deep/x"}},
		{"directory becomes file", c, a, []string{"dir/b", "gone/deep/x", "thing", "thing/inner", "new/é x"}},
		{"new branch", zero, d, []string{"feature"}},
		{"new branch without before", "", d, []string{"feature"}},
		{"first push of the default branch", zero, c, []string{"dir/a", "dir/b", "keep/x", "new/é x", "thing/inner"}},
		{"no common history", zero, e, []string{"dir/a", "dir/b", "feature", "gone/deep/x", "keep/x", "thing"}},
	} {
		got, err := r.ChangedFiles(ctxOf(t), tc.before, tc.after, 100)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", tc.name, err, diff)
		}
	}
	if _, err := r.ChangedFiles(ctxOf(t), a, c, 2); !errors.Is(err, ErrTooBig) {
		t.Errorf("%v, want ErrTooBig", err)
	}
	for _, before := range []string{strings.Repeat("1", 40), "--output=x", "main"} {
		if _, err := r.ChangedFiles(ctxOf(t), before, c, 100); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", before, err)
		}
	}
}

func TestIsAncestor(t *testing.T) {
	f := newFixture(t)
	a := f.commit("a", map[string]string{"x": "1"})
	b := f.commit("b", map[string]string{"x": "2"})
	r := f.repo()
	if yes, err := r.IsAncestor(ctxOf(t), a, b); err != nil || !yes {
		t.Error(yes, err)
	}
	if yes, err := r.IsAncestor(ctxOf(t), b, a); err != nil || yes {
		t.Error(yes, err)
	}
	if _, err := r.IsAncestor(ctxOf(t), strings.Repeat("1", 40), a); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestDefaultBranch(t *testing.T) {
	bare := newFixture(t, "--bare", "-b", "trunk")
	if b, err := bare.repo().DefaultBranch(ctxOf(t)); err != nil || b != "trunk" {
		t.Errorf("bare: %q %v", b, err)
	}
	f := newFixture(t)
	f.commit("a", map[string]string{"x": "1"})
	f.git("checkout", "-q", "-b", "feature")
	if b, err := f.repo().DefaultBranch(ctxOf(t)); err != nil || b != "main" {
		t.Errorf("with a work tree: %q %v", b, err)
	}
	clone := newFixture(t)
	clone.git("fetch", "-q", f.dir, "feature:refs/remotes/origin/feature")
	clone.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/feature")
	if b, err := clone.repo().DefaultBranch(ctxOf(t)); err != nil || b != "feature" {
		t.Errorf("clone: %q %v", b, err)
	}
	odd := newFixture(t)
	odd.git("symbolic-ref", "HEAD", "refs/heads/dev")
	odd.commit("a", nil)
	odd.git("checkout", "-q", "--detach")
	if b, err := odd.repo().DefaultBranch(ctxOf(t)); !errors.Is(err, ErrNotFound) {
		t.Errorf("detached: %q %v", b, err)
	}
}

func TestUnreachableIsNotMissing(t *testing.T) {
	p := NewRepos(ReposOptions{})
	defer p.Close()
	empty, broken := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := newFixture(t)
	inside.commit("a", map[string]string{"sub/x": "1"})
	for _, dir := range []string{filepath.Join(empty, "gone"), empty, broken, filepath.Join(inside.dir, "sub")} {
		r := p.Open(dir)
		if err := r.Check(ctxOf(t)); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrUnreachable", dir, err)
		}
		if _, err := r.Resolve(ctxOf(t), "main"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v, want ErrUnreachable", dir, err)
		}
	}
	ended, cancel := context.WithCancel(ctxOf(t))
	cancel()
	if _, err := p.Open(inside.dir).Resolve(ended, "main"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestIncompleteRepositoryIsUnreachable(t *testing.T) {
	f := newFixture(t)
	sha := f.commit("a", map[string]string{".kici/workflows/ci.yaml": "on: push"})
	blob := f.git("rev-parse", sha+":.kici/workflows/ci.yaml")
	if err := os.Remove(filepath.Join(f.dir, ".git", "objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	if _, err := f.repo().Files(ctxOf(t), sha, everything); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
}

func TestMissingTreeIsUnreachable(t *testing.T) {
	f := newFixture(t)
	sha := f.commit("a", map[string]string{".kici/workflows/ci.yaml": "on: push"})
	for _, dir := range []string{":.kici/workflows", ":.kici"} {
		tree := f.git("rev-parse", sha+dir)
		if err := os.Remove(filepath.Join(f.dir, ".git", "objects", tree[:2], tree[2:])); err != nil {
			t.Fatal(err)
		}
		if got, err := f.repo().Files(ctxOf(t), sha, everything); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v %v, want ErrUnreachable", dir, got, err)
		}
	}
}

func TestReaderSeesNewCommitsAndRecreatedRepositories(t *testing.T) {
	f := newFixture(t)
	f.commit("a", map[string]string{"x": "1"})
	r := f.repo()
	for i := range 5 {
		want := f.commit(fmt.Sprint(i), map[string]string{"x": fmt.Sprint(i + 2)})
		if i == 2 {
			f.git("gc", "-q")
		}
		if c, err := r.Resolve(ctxOf(t), "main"); err != nil || c.SHA != want {
			t.Fatalf("commit %d: %+v %v", i, c, err)
		}
	}
	if err := os.Rename(f.dir, f.dir+"-old"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve(ctxOf(t), "main"); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("moved away: %v", err)
	}
	if out, err := exec.Command("git", "init", "-q", "-b", "main", f.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	want := f.commit("new life", map[string]string{"y": "1"})
	if c, err := r.Resolve(ctxOf(t), "main"); err != nil || c.SHA != want {
		t.Fatalf("made anew: %+v %v", c, err)
	}
}

func TestReaderIsReplacedWhenItDies(t *testing.T) {
	f := newFixture(t)
	want := f.commit("a", map[string]string{"x": "1"})
	p := NewRepos(ReposOptions{})
	defer p.Close()
	r := p.Open(f.dir)
	for range 3 {
		if c, err := r.Resolve(ctxOf(t), "main"); err != nil || c.SHA != want {
			t.Fatalf("%+v %v", c, err)
		}
		if len(p.idle) != 1 {
			t.Fatalf("%d idle processes, want the one", len(p.idle))
		}
		_ = p.idle[0].proc.cmd.Process.Kill()
		time.Sleep(20 * time.Millisecond) // the kernel's, not ours
	}
}

func TestReposAreBounded(t *testing.T) {
	p := NewRepos(ReposOptions{MaxProcesses: 2, Idle: time.Hour})
	defer p.Close()
	var all []*fixture
	for range 4 {
		f := newFixture(t)
		f.commit("a", map[string]string{"x": "1"})
		all = append(all, f)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, err := p.Open(all[i%4].dir).Resolve(ctxOf(t), "main"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(p.idle) > 2 {
		t.Errorf("%d idle processes, want at most 2", len(p.idle))
	}
}

func TestIdleReadersEnd(t *testing.T) {
	f := newFixture(t)
	f.commit("a", map[string]string{"x": "1"})
	p := NewRepos(ReposOptions{Idle: 10 * time.Millisecond})
	defer p.Close()
	if _, err := p.Open(f.dir).Resolve(ctxOf(t), "main"); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		p.mu.Lock()
		n := len(p.idle)
		p.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond) // waits for a real process
	}
	t.Error("an idle process was never closed")
}

func BenchmarkResolveAndFiles(b *testing.B) {
	f := newFixture(b)
	sha := f.commit("x", map[string]string{".kici/workflows/ci.yaml": "on: push", "a": "1"})
	r := f.repo()
	for b.Loop() {
		if _, err := r.Resolve(b.Context(), sha); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Files(b.Context(), sha, everything); err != nil {
			b.Fatal(err)
		}
	}
}
