package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/source"
)

// hub is a GitHub Enterprise of one repository, which remembers the last status of each context.
type hub struct {
	mu       sync.Mutex
	statuses map[string]string
}

const hubToken = "a-token-of-the-hub"

func (h *hub) serve(t *testing.T, root string) string {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, serr := os.Stat(backend); err != nil || serr != nil {
		t.Skip("git-http-backend is not installed")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v3/repos/acme/web", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"full_name":"acme/web","default_branch":"main"}`)
	})
	mux.HandleFunc("POST /api/v3/repos/acme/web/statuses/{sha}", func(w http.ResponseWriter, r *http.Request) {
		var s struct{ State, Context string }
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil || r.Header.Get("Authorization") != "Bearer "+hubToken {
			t.Errorf("status: %v %v", err, r.Header)
		}
		h.mu.Lock()
		h.statuses[s.Context] = s.State
		h.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
	})
	mux.HandleFunc("/acme/", func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != hubToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		(&cgi.Handler{Path: backend, Env: []string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
			"GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
		}}).ServeHTTP(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func (h *hub) status(context string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[context]
}

// From a push at GitHub to the green mark beside its commit: webhook, mirror, run, checkout by token, statuses.
func TestGitHubFromPushToStatus(t *testing.T) {
	w := newWorld(t)
	w.git("clone", "-q", "--bare", w.file("repo"), w.file("hub", "acme", "web.git"))
	h := &hub{statuses: map[string]string{}}
	url := h.serve(t, w.file("hub"))
	added, err := w.api.AddSource(t.Context(), client.NewSource{
		Kind: "github", Name: "web", Token: hubToken, Options: fmt.Appendf(nil, `{"url":%q,"repository":"acme/web","allowPrivate":true}`, url),
	})
	if err != nil {
		t.Fatal(err)
	}
	sha, err := exec.Command("git", "-C", w.file("repo"), "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"ref":"refs/heads/main","before":"%040d","after":%q,"repository":{"full_name":"acme/web","default_branch":"main"},"sender":{"login":"ann"}}`,
		0, strings.TrimSpace(string(sha)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.s.URL()+source.WebhookPath("github", "default", "web"), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-GitHub-Event": "push", "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
		"X-Hub-Signature-256": source.Sign(added.Secret, body),
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("webhook: %s", res.Status)
	}
	for end := time.Now().Add(2 * time.Minute); h.status("kici/ci") != "success"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			list, err := w.api.Runs(t.Context(), client.RunQuery{})
			t.Fatalf("no green status, but %q; runs %+v %v", h.status("kici/ci"), list, err)
		}
	}
	// The mirror goes with its source, and not before it.
	for _, want := range []int{1, 0} {
		if err := w.s.tidyMirrors(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ids, err := w.s.mirrors.IDs(); err != nil || len(ids) != want {
			t.Fatalf("mirrors %v, %v; want %d", ids, err, want)
		}
		if err := w.api.RemoveSource(t.Context(), "web"); err != nil && want == 1 {
			t.Fatal(err)
		}
	}
}
