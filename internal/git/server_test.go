package git_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// allowFilter is how the forges serve: partial clones and single objects.
var allowFilter = []string{"uploadpack.allowFilter=true", "uploadpack.allowAnySHA1InWant=true"}

type serverOptions struct {
	user        string
	config      []string // of the server's git, key=value
	oldProtocol bool     // speak protocol 0 whatever the client asks for
	stallPacks  bool     // a pack begins and never ends
	redirect    string   // every request is sent there
}

// smartServer is git's own CGI program behind basic authentication.
type smartServer struct {
	URL      string // of the repository
	password atomic.Pointer[string]
	requests atomic.Int64
	packs    atomic.Int64 // requests that fetch, of any command of protocol 2 but ls-refs
	sawLogin atomic.Bool  // some request had a credential
	stalled  chan struct{}
}

func serve(t *testing.T, repo string, o serverOptions) *smartServer {
	t.Helper()
	backend := filepath.Join(sh(t, "/", "git --exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("git-http-backend is not installed")
	}
	config := append([]string{"safe.directory=*"}, o.config...)
	env := []string{"GIT_PROJECT_ROOT=" + repo, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=" + strconv.Itoa(len(config))}
	for i, kv := range config {
		key, value, _ := strings.Cut(kv, "=")
		env = append(env, "GIT_CONFIG_KEY_"+strconv.Itoa(i)+"="+key, "GIT_CONFIG_VALUE_"+strconv.Itoa(i)+"="+value)
	}
	s := &smartServer{stalled: make(chan struct{})}
	var once sync.Once
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		u, p, given := r.BasicAuth()
		if given {
			s.sawLogin.Store(true)
		}
		if o.redirect != "" {
			http.Redirect(w, r, o.redirect+r.URL.RequestURI(), http.StatusMovedPermanently)
			return
		}
		if want := s.password.Load(); o.user != "" && (u != o.user || want == nil || p != *want) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no entry for "+p, http.StatusUnauthorized)
			return
		}
		command := "fetch"
		body := &sniff{from: r.Body}
		if r.Method == http.MethodPost {
			command = body.command()
			r.Body = body
			if command == "fetch" {
				s.packs.Add(1)
			}
		}
		if o.stallPacks && r.Method == http.MethodPost && command == "fetch" {
			w = &stall{ResponseWriter: w, left: 1 << 20, stop: func() { once.Do(func() { close(s.stalled) }); <-r.Context().Done() }}
		}
		v := r.Header.Get("Git-Protocol")
		if o.oldProtocol {
			v = ""
		}
		(&cgi.Handler{Path: backend, Env: append(env[:len(env):len(env)], "GIT_PROTOCOL="+v)}).ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	s.URL = h.URL + "/.git"
	return s
}

func (s *smartServer) setPassword(p string) { s.password.Store(&p) }

// sniff reads the beginning of a body without taking it away.
type sniff struct {
	from io.ReadCloser
	head []byte
}

func (s *sniff) command() string {
	s.head = make([]byte, 64)
	n, _ := io.ReadFull(s.from, s.head)
	s.head = s.head[:n]
	if bytes.Contains(s.head, []byte("command=ls-refs")) {
		return "ls-refs"
	}
	return "fetch"
}

func (s *sniff) Read(p []byte) (int, error) {
	if len(s.head) > 0 {
		n := copy(p, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	return s.from.Read(p)
}

func (s *sniff) Close() error { return s.from.Close() }

// stall lets so many bytes of an answer through.
type stall struct {
	http.ResponseWriter
	left int
	stop func()
}

func (s *stall) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		s.stop()
	}
	return s.ResponseWriter.Write(p)
}

// serveDumb serves plain files.
func serveDumb(t *testing.T, repo string) string {
	t.Helper()
	sh(t, repo, "git update-server-info")
	s := httptest.NewServer(http.FileServer(http.Dir(repo)))
	t.Cleanup(s.Close)
	return s.URL + "/.git"
}
