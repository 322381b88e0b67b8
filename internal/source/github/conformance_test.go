package github

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/forge/forgetest"
	"github.com/kici-go/kici/internal/source/sourcetest"
)

// hub is a GitHub Enterprise of one repository: its API, and git over HTTP, both behind the token.
type hub struct {
	*httptest.Server
	first, second, bare string
	apiDown, down       atomic.Bool
	token               atomic.Pointer[string]
}

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func newHub(t *testing.T) *hub {
	t.Helper()
	backend := filepath.Join(sh(t, "/", "git --exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("git-http-backend is not installed")
	}
	root := t.TempDir()
	repo := filepath.Join(root, "acme/web.git")
	h := &hub{}
	work := t.TempDir()
	h.first = sh(t, work, `git init -q -b trunk . && mkdir -p .kici/workflows dir && printf one >.kici/workflows/ci.yaml && echo 1 >a.txt && echo 1 >dir/b.txt
		git add . && git commit -q -m "a title" && git rev-parse HEAD`)
	h.second = sh(t, work, `printf two >.kici/workflows/ci.yaml && printf '{}' >.kici/kici.lock.json && echo 1 >c.txt && echo 2 >dir/b.txt && git rm -q a.txt
		git add . && git commit -q -m "a title" -m "and a body" && git tag -a v1 -m annotated && git rev-parse HEAD`)
	h.bare = sh(t, work, `git checkout -q -b empty HEAD~1 && git rm -rq .kici && git commit -q -m bare && git rev-parse HEAD && git checkout -q trunk`)
	sh(t, work, `git clone -q --bare . "`+repo+`" && git -C "`+repo+`" config uploadpack.allowFilter true && git -C "`+repo+`" config uploadpack.allowAnySHA1InWant true`)
	token := forgetest.Token
	h.token.Store(&token)
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v3/", h.api)
	mux.Handle("/acme/", h.git(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}))
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

func (h *hub) api(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	switch {
	case h.apiDown.Load() || h.down.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"message":"down"}`)
	case r.Header.Get("Authorization") != "Bearer "+*h.token.Load():
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"message":"Bad credentials"}`)
	case r.URL.Path == "/api/v3/repos/acme/web":
		fmt.Fprint(w, `{"full_name":"acme/web","default_branch":"trunk"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"Not Found"}`)
	}
}

func (h *hub) git(backend *cgi.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case h.down.Load():
			http.Error(w, "down", http.StatusServiceUnavailable)
		case user != "x-access-token" || password != *h.token.Load():
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			http.Error(w, "Support for password authentication was removed.", http.StatusUnauthorized)
		default:
			c := *backend
			c.Env = append(c.Env[:len(c.Env):len(c.Env)], "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
			c.ServeHTTP(w, r)
		}
	}
}

func (h *hub) source(t *testing.T) source.Source {
	t.Helper()
	repos := git.NewRepos(git.ReposOptions{})
	t.Cleanup(repos.Close)
	mirrors := git.NewMirrors(git.MirrorOptions{Dir: t.TempDir(), Repos: repos, Now: time.Now, Log: obs.Discard()})
	s, err := forge.Open(source.Config{
		ID: "1", OrgID: "default", Kind: Kind, Name: "web", Repo: "acme/web",
		Options: fmt.Appendf(nil, `{"url":%q,"repository":"acme/web","allowPrivate":true}`, h.URL),
		Secrets: map[string]string{source.SecretWebhook: "a secret of sixteen", source.SecretToken: forgetest.Token},
	}, Dialect{}, forge.GitMirror{Mirror: mirrors.Open("1")}, forgetest.Deps(t, forgetest.HTTP(t, forge.HTTPOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func delivery(ref, before, after string) source.Delivery {
	body, _ := json.Marshal(map[string]any{
		"ref": ref, "before": before, "after": after, "repository": map[string]string{"full_name": "acme/web", "default_branch": "trunk"},
		"sender": map[string]string{"login": "ann"},
	})
	return source.Delivery{Event: "push", Body: body}
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Origin {
		h := newHub(t)
		return sourcetest.Origin{
			Source: h.source(t), First: h.first, Second: h.second, Bare: h.bare, DefaultBranch: "trunk", Push: delivery,
			Break: func() { h.down.Store(true) },
		}
	})
}

// Changed files come from git: an API that is down costs nothing of them.
func TestXC19ChangedFilesWithoutTheAPI(t *testing.T) {
	h := newHub(t)
	h.apiDown.Store(true)
	s := h.source(t)
	if files, err := s.ChangedFiles(t.Context(), h.first, h.second); err != nil || len(files) != 5 {
		t.Errorf("%v %v", files, err)
	}
	if b, err := s.DefaultBranch(t.Context()); err != nil || b != "trunk" {
		t.Errorf("%q %v", b, err)
	}
	if err := s.Check(t.Context()); !errors.Is(err, source.ErrUnreachable) || !strings.HasPrefix(err.Error(), "API: ") {
		t.Errorf("Check: %v", err)
	}
}

func TestRevokedToken(t *testing.T) {
	h := newHub(t)
	s := h.source(t)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := "another token"
	h.token.Store(&other)
	err := s.Check(t.Context())
	if !errors.Is(err, source.ErrDenied) || !strings.Contains(err.Error(), "API: ") || !strings.Contains(err.Error(), "clone: ") || strings.Contains(err.Error(), forgetest.Token) {
		t.Errorf("Check: %v", err)
	}
	if _, err := s.Resolve(t.Context(), "trunk"); !errors.Is(err, source.ErrDenied) || strings.Contains(err.Error(), forgetest.Token) {
		t.Errorf("Resolve: %v", err)
	}
}
