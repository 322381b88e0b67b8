package git_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/git"
)

func TestHTTPTokenRightWrongAndRevoked(t *testing.T) {
	repo, first, second, _ := project(t)
	s := serve(t, repo, serverOptions{user: "bot", config: allowFilter})
	s.setPassword("good-token")
	m := newMirrors(t, t.TempDir()).Open("src")
	good := git.Remote{URL: s.URL, Username: "bot", Password: "good-token"}
	if _, err := m.Files(t.Context(), good, first, flows); err != nil {
		t.Fatal(err)
	}
	refused := func(err error, token string) {
		t.Helper()
		if !errors.Is(err, git.ErrDenied) {
			t.Errorf("err = %v, want ErrDenied", err)
		} else if strings.Contains(err.Error(), token) {
			t.Errorf("the credential is in the error: %v", err)
		}
	}
	wrong := git.Remote{URL: s.URL, Username: "bot", Password: "wrong-token"}
	_, err := m.Heads(t.Context(), wrong)
	refused(err, "wrong-token")
	_, err = m.Heads(t.Context(), git.Remote{URL: s.URL})
	refused(err, "good-token")

	s.setPassword("another") // revoked
	_, err = m.Resolve(t.Context(), good, "main")
	refused(err, "good-token")
	sh(t, repo, "git commit -q --allow-empty -m more")
	_, err = m.Files(t.Context(), good, sh(t, repo, "git rev-parse HEAD"), flows)
	refused(err, "good-token")
	var out bytes.Buffer
	err = git.Checkout{Remote: good, Dir: t.TempDir(), SHA: second, Output: &out}.Run(t.Context())
	refused(err, "good-token")
	if strings.Contains(out.String(), "good-token") {
		t.Errorf("the credential is in the output: %s", out.String())
	}
	if _, err := m.Resolve(t.Context(), good, first); err != nil { // needs nobody
		t.Error(err)
	}
	good.Password = "another"
	if _, err := m.Resolve(t.Context(), good, "main"); err != nil {
		t.Error(err)
	}
}

func TestHTTPRedirectsNeverCarryACredential(t *testing.T) {
	repo, first, _, _ := project(t)
	target := serve(t, repo, serverOptions{user: "bot"})
	target.setPassword("token")
	open := serve(t, repo, serverOptions{})
	away := serve(t, repo, serverOptions{redirect: strings.TrimSuffix(target.URL, "/.git")})
	m := newMirrors(t, t.TempDir()).Open("src")
	remote := git.Remote{URL: away.URL, Username: "bot", Password: "token"}
	if _, err := m.Heads(t.Context(), remote); !errors.Is(err, git.ErrUnreachable) || !strings.Contains(err.Error(), "new address") {
		t.Errorf("err = %v", err)
	}
	err := git.Checkout{Remote: remote, Dir: t.TempDir(), SHA: first}.Run(t.Context())
	if err == nil || target.sawLogin.Load() || target.requests.Load() > 0 {
		t.Errorf("checkout: %v; the other host was asked %d times, with a credential %v", err, target.requests.Load(), target.sawLogin.Load())
	}
	// Without a credential there is nothing to lose.
	public := serve(t, repo, serverOptions{redirect: strings.TrimSuffix(open.URL, "/.git")})
	if _, err := m.Heads(t.Context(), git.Remote{URL: public.URL}); err != nil {
		t.Error(err)
	}
}

func TestHTTPServersThatMisbehave(t *testing.T) {
	_, first, _, _ := project(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    error
	}{
		"a page":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>\n<p>Sign in\n</html>\n")) }, git.ErrUnreachable},
		"server error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, git.ErrUnreachable},
		"forbidden":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, git.ErrDenied},
		"no such":      {http.NotFound, git.ErrDenied},
		"closes":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, git.ErrUnreachable},
		"nonsense packets": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = w.Write([]byte("001e# service=git-upload-pack\n0000ffffrubbish"))
		}, git.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			m := newMirrors(t, t.TempDir()).Open("src")
			if _, err := m.Files(t.Context(), git.Remote{URL: s.URL + "/r"}, first, flows); !errors.Is(err, c.want) {
				t.Errorf("Files: %v, want %v", err, c.want)
			}
			if _, err := m.Heads(t.Context(), git.Remote{URL: s.URL + "/r"}); !errors.Is(err, c.want) {
				t.Errorf("Heads: %v, want %v", err, c.want)
			}
		})
	}
	m := newMirrors(t, t.TempDir()).Open("src")
	if _, err := m.Heads(t.Context(), git.Remote{URL: "http://127.0.0.1:1/r"}); !errors.Is(err, git.ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestHTTPSlowServerIsGivenUp(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	m := newMirrors(t, t.TempDir()).Open("src")
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := m.Resolve(ctx, git.Remote{URL: slow.URL + "/r"}, strings.Repeat("ab", 20))
		if !errors.Is(err, git.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
		cancel()
	}
}

func TestHTTPServerThatGivesOutNoSingleFiles(t *testing.T) {
	repo, first, second, _ := project(t)
	// Filters, but by protocol 0 no object that is not the tip of a ref.
	s := serve(t, repo, serverOptions{oldProtocol: true, config: []string{"uploadpack.allowFilter=true"}})
	ms := newMirrors(t, t.TempDir())
	for _, sha := range []string{second, first} {
		if files, err := ms.Open("src").Files(t.Context(), git.Remote{URL: s.URL}, sha, flows); err != nil || len(files) != 1 {
			t.Errorf("Files = %v, %v", files, err)
		}
	}
	if !strings.Contains(ms.log.String(), "no single files") {
		t.Errorf("no word about it: %s", ms.log)
	}
}

func TestCheckoutOfACommitThatWasPushedAway(t *testing.T) {
	repo, _, second, _ := project(t)
	sh(t, repo, "git checkout -q topic && git branch -D main -q && git reflog expire --expire=now --all")
	dst := t.TempDir()
	byID := serve(t, repo, serverOptions{})
	if err := (git.Checkout{Remote: git.Remote{URL: byID.URL}, Dir: dst, SHA: second, Ref: "refs/heads/main"}).Run(t.Context()); err != nil {
		t.Errorf("a server that gives it by its id: %v", err)
	}
	tipsOnly := serve(t, repo, serverOptions{oldProtocol: true})
	err := git.Checkout{Remote: git.Remote{URL: tipsOnly.URL}, Dir: t.TempDir(), SHA: second, Ref: "refs/heads/main"}.Run(t.Context())
	if !errors.Is(err, git.ErrNoCommit) || !strings.Contains(err.Error(), "force-pushed") {
		t.Errorf("a server that does not: %v", err)
	}
}

func TestCheckoutFromPlainFiles(t *testing.T) {
	repo, first, _, _ := project(t)
	dst := t.TempDir()
	if err := (git.Checkout{Remote: git.Remote{URL: serveDumb(t, repo)}, Dir: dst, SHA: first, Ref: "refs/heads/main"}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, dst, "cat "+filepath.Join(".kici", "workflows", "ci.yaml")); got != "one" {
		t.Errorf("content %q", got)
	}
}
