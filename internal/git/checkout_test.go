package git_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/git"
)

// repository makes a real one with n commits on main and returns its path and the commit ids.
func repository(t *testing.T, n int) (dir string, shas []string) {
	t.Helper()
	dir = t.TempDir()
	sh(t, dir, "git init -q -b main . && git config user.email t@example.com && git config user.name T")
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte{byte('a' + i), '\n'}, 0o644); err != nil {
			t.Fatal(err)
		}
		sh(t, dir, "git add file && git commit -qm commit")
		shas = append(shas, sh(t, dir, "git rev-parse HEAD"))
	}
	return dir, shas
}

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func content(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestCheckoutExactCommitNotTheTip(t *testing.T) {
	repo, shas := repository(t, 3)
	dst := t.TempDir()
	var out bytes.Buffer
	c := git.Checkout{Dir: dst, Remote: git.Remote{URL: repo}, SHA: shas[1], Ref: "refs/heads/main", Output: &out}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err, out.String())
	}
	if got := content(t, dst); got != "b" {
		t.Errorf("file = %q, want the second commit's", got)
	}
	if n := sh(t, dst, "git rev-list --count HEAD"); n != "1" {
		t.Errorf("history has %s commits, want a shallow one", n)
	}
	if got := sh(t, dst, "git rev-parse refs/remotes/origin/main"); got != shas[1] {
		t.Errorf("origin/main = %s", got)
	}
	if got := sh(t, dst, "git remote get-url origin"); got != repo {
		t.Errorf("origin = %s", got)
	}
	if s := sh(t, dst, "git status --porcelain"); s != "" {
		t.Errorf("not clean: %s", s)
	}
}

func TestCheckoutMissingCommit(t *testing.T) {
	repo, _ := repository(t, 1)
	err := git.Checkout{Dir: t.TempDir(), Remote: git.Remote{URL: repo}, SHA: strings.Repeat("ab", 20)}.Run(t.Context())
	if !errors.Is(err, git.ErrNoCommit) {
		t.Fatalf("err = %v, want ErrNoCommit", err)
	}
}

func TestCheckoutRepositoryOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give a repository to another user")
	}
	repo, shas := repository(t, 1)
	sh(t, repo, "chown -R 65534:65534 .")
	if err := (git.Checkout{Dir: t.TempDir(), Remote: git.Remote{URL: repo}, SHA: shas[0]}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCheckoutRunsNoHook(t *testing.T) {
	repo, shas := repository(t, 1)
	home := t.TempDir()
	mark := filepath.Join(home, "ran")
	script := "#!/bin/sh\ntouch " + mark + "\n"
	hooks := filepath.Join(home, "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"post-checkout", "reference-transaction"} {
		if err := os.WriteFile(filepath.Join(hooks, h), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg := "[core]\n\thooksPath = " + hooks + "\n[alias]\n\tfetch = !touch " + mark + "\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(cfg), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", "/nonexistent")
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
	t.Setenv("GIT_CONFIG_VALUE_0", hooks)
	if err := (git.Checkout{Dir: t.TempDir(), Remote: git.Remote{URL: repo}, SHA: shas[0]}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("a hook of the user's configuration ran")
	}
}

func TestHostileNamesAreRefusedOrHarmless(t *testing.T) {
	repo, shas := repository(t, 1)
	mark := filepath.Join(t.TempDir(), "ran")
	refs := map[string]bool{ // ref → accepted
		"refs/heads/$(touch " + mark + ")":        false, // a blank is not legal in a ref
		"refs/heads/$(touch${IFS}" + mark + ")":   true,
		"refs/heads/`touch${IFS}" + mark + "`":    true,
		"refs/heads/;touch${IFS}" + mark:          true,
		"refs/heads/../../../etc/passwd":          false,
		"refs/heads/a\nb":                         false,
		"--upload-pack=touch " + mark:             false,
		"-x":                                      false,
		"refs/heads/a:refs/heads/b":               false,
		"refs/heads/a b":                          false,
		"refs/heads/x.lock":                       false,
		"refs/heads/@{u}":                         false,
		"refs/heads/.hidden":                      false,
		"refs/heads//a":                           false,
		"refs/heads/grün":                         true,
		"refs/heads/a\\b":                         false,
		"main":                                    false, // not a full ref
		"refs/heads/" + strings.Repeat("x", 2000): false,
	}
	for ref, ok := range refs {
		err := git.Checkout{Dir: t.TempDir(), Remote: git.Remote{URL: repo}, SHA: shas[0], Ref: ref}.Run(t.Context())
		if (err == nil) != ok {
			t.Errorf("ref %q: err = %v, want accepted %v", ref, err, ok)
		}
		if err != nil && !errors.Is(err, git.ErrName) {
			t.Errorf("ref %q: %v is not ErrName", ref, err)
		}
	}
	for _, url := range []string{
		"--upload-pack=touch " + mark, "ext::sh -c touch% " + mark, "relative/path", "", "file://", "ssh://-oProxyCommand=x/y",
		"a\nb", "-oProxyCommand=x:y", "x@-oProxyCommand=touch:y", "fd::17", "http://",
	} {
		if err := git.CheckURL(url); !errors.Is(err, git.ErrName) {
			t.Errorf("url %q: err = %v, want ErrName", url, err)
		}
	}
	for _, sha := range []string{"", "HEAD", "--all", strings.Repeat("g", 40), strings.Repeat("A", 40), shas[0] + "\n", shas[0][:39]} {
		if err := git.CheckSHA(sha); !errors.Is(err, git.ErrName) {
			t.Errorf("sha %q: err = %v, want ErrName", sha, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("a hostile name was executed")
	}
}

// server serves repositories by git's own CGI program, behind basic authentication.
func server(t *testing.T, root, user, password string) *httptest.Server {
	t.Helper()
	backend := filepath.Join(sh(t, "/", "git --exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("git-http-backend is not installed")
	}
	h := &cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
		"GIT_CONFIG_VALUE_0=*",
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if user != "" && (u != user || p != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if v := r.Header.Get("Git-Protocol"); v != "" {
			h2 := *h
			h2.Env = append(h2.Env[:len(h2.Env):len(h2.Env)], "GIT_PROTOCOL="+v)
			h2.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestCheckoutOverHTTPWithCredential(t *testing.T) {
	repo, shas := repository(t, 2)
	s := server(t, repo, "bot", `p%40"'$(x) word`)
	url := s.URL + "/.git"
	dst := t.TempDir()
	c := git.Checkout{Dir: dst, SHA: shas[0], Remote: git.Remote{URL: url, Username: "bot", Password: `p%40"'$(x) word`}}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, dst); got != "a" {
		t.Errorf("file = %q", got)
	}
	cfg, _ := os.ReadFile(filepath.Join(dst, ".git", "config"))
	if bytes.Contains(cfg, []byte("word")) {
		t.Errorf("the credential is in the configuration:\n%s", cfg)
	}
	c.Dir, c.Password = t.TempDir(), "wrong"
	start := time.Now()
	if err := c.Run(t.Context()); err == nil {
		t.Fatal("a wrong password was accepted")
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("refusal took %s: it asked or tried again", d)
	}
}

func TestCheckoutFallsBackToAllBranches(t *testing.T) {
	repo, shas := repository(t, 3)
	// Over protocol 0 a server gives out only advertised commits.
	s := server(t, repo, "", "")
	strip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Git-Protocol")
		s.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(strip.Close)
	dst := t.TempDir()
	var out bytes.Buffer
	c := git.Checkout{Dir: dst, Remote: git.Remote{URL: strip.URL + "/.git"}, SHA: shas[1], Ref: "refs/pull/7/head", Output: &out}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err, out.String())
	}
	if got := content(t, dst); got != "b" {
		t.Errorf("file = %q", got)
	}
	if !strings.Contains(out.String(), "all branches") {
		t.Errorf("no word about the fallback: %s", out.String())
	}
}

func TestRunCancelKillsHelpers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	start := time.Now()
	err := git.Checkout{Dir: t.TempDir(), Remote: git.Remote{URL: slow.URL + "/x"}, SHA: strings.Repeat("ab", 20)}.Run(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
}

func TestStartTalksAndCloses(t *testing.T) {
	repo, shas := repository(t, 1)
	p, err := git.Start(t.Context(), git.Cmd{Dir: repo, Args: []string{"cat-file", "--batch-check"}, SafeDirs: []string{repo}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.In.Write([]byte(shas[0] + "\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, err := p.Out.Read(buf)
	if err != nil || !strings.HasPrefix(string(buf[:n]), shas[0]+" commit") {
		t.Fatalf("%q %v", buf[:n], err)
	}
	if err := p.Close(); err != nil {
		var e *git.Error
		if !errors.As(err, &e) || e.ExitCode == 1 {
			t.Errorf("close: %v", err)
		}
	}
	if err := p.Close(); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Logf("second close: %v", err)
	}
}

func TestErrorCarriesStderr(t *testing.T) {
	_, err := git.Run(t.Context(), git.Cmd{Dir: t.TempDir(), Args: []string{"rev-parse", "--verify", "HEAD"}})
	var e *git.Error
	if !errors.As(err, &e) || e.ExitCode != 128 || !strings.Contains(err.Error(), "git rev-parse: ") {
		t.Fatalf("err = %v", err)
	}
}

func FuzzCheckRef(f *testing.F) {
	for _, s := range []string{"refs/heads/main", "--x", "a..b", "a\x00b", "@{-1}", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if git.CheckRef(ref) != nil {
			return
		}
		if ref == "" || ref[0] == '-' || strings.ContainsAny(ref, "\x00\n\r :^~?*[\\") || strings.Contains(ref, "..") {
			t.Fatalf("accepted %q", ref)
		}
	})
}
