package engines

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// The moments of a call at which a process can end.
const (
	beforeCall = "before" // nothing was asked for
	afterCall  = "after"  // it was carried out, and nobody heard the answer
)

// A point is a moment of a call.
type point struct{ call, moment string }

// calls are what a start asks of an engine, by name. What has no name passes unseen.
var calls = []struct {
	name, method string
	path         *regexp.Regexp
}{
	{"create network", http.MethodPost, regexp.MustCompile(`/networks/create$`)},
	{"look at network", http.MethodGet, regexp.MustCompile(`/networks/[^/]+$`)},
	{"look at image", http.MethodGet, regexp.MustCompile(`/images/.+/json$`)},
	{"pull", http.MethodPost, regexp.MustCompile(`/images/create$`)},
	{"create", http.MethodPost, regexp.MustCompile(`/containers/create$`)},
	{"copy", http.MethodPut, regexp.MustCompile(`/containers/[^/]+/archive$`)},
	{"attach", http.MethodPost, regexp.MustCompile(`/containers/[^/]+/attach$`)},
	{"start", http.MethodPost, regexp.MustCompile(`/containers/[^/]+/start$`)},
	{"look at container", http.MethodGet, regexp.MustCompile(`/containers/[^/]+/json$`)},
	{"remove", http.MethodDelete, regexp.MustCompile(`/containers/[^/]+$`)},
}

// callToken is what is written to the container by the attached connection. It comes after the agent has its network rules.
const callToken = "token"

// gate stands between a server and its engine, and ends the server at a point.
type gate struct {
	socket string
	engine string
	proxy  *httputil.ReverseProxy
	kill   func() // kill -9 of the server

	mu sync.Mutex
	at point // the zero value is never
}

func newGate(t *testing.T, e *enginetest.Engine) *gate {
	t.Helper()
	g := &gate{socket: filepath.Join(t.TempDir(), e.Name+".sock"), engine: e.Socket}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return g.dial(ctx) }}
	g.proxy = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	g.proxy.Transport, g.proxy.FlushInterval, g.proxy.ErrorLog = transport, -1, log.New(io.Discard, "", 0)
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: g}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); transport.CloseIdleConnections() })
	return g
}

func (g *gate) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", g.engine)
}

// arm sets the point; the zero value disarms.
func (g *gate) arm(at point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = at
}

// strike ends the server if this is its point, once, and reports whether it did.
func (g *gate) strike(call, moment string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at != (point{call, moment}) {
		return false
	}
	g.at = point{}
	g.kill()
	return true
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := ""
	for _, c := range calls {
		if r.Method == c.method && c.path.MatchString(r.URL.Path) {
			name = c.name
		}
	}
	if g.strike(name, beforeCall) {
		panic(http.ErrAbortHandler)
	}
	if name == "attach" {
		g.attach(w, r)
		return
	}
	g.mu.Lock()
	unheard := g.at == point{name, afterCall}
	g.mu.Unlock()
	if !unheard {
		g.proxy.ServeHTTP(w, r)
		return
	}
	g.proxy.ServeHTTP(deaf{http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
	g.strike(name, afterCall)
	panic(http.ErrAbortHandler)
}

// attach passes on a connection that becomes a container's input and output.
func (g *gate) attach(w http.ResponseWriter, r *http.Request) {
	engine, err := g.dial(r.Context())
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer engine.Close()
	r.URL.Scheme, r.URL.Host = "http", "engine"
	answer := bufio.NewReader(engine)
	if err := r.Write(engine); err != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := answer.Peek(1); err != nil || g.strike("attach", afterCall) {
		panic(http.ErrAbortHandler)
	}
	server, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, answer); _ = server.Close() }()
	token, err := buffered.ReadBytes('\n')
	if err != nil || g.strike(callToken, beforeCall) {
		return
	}
	if _, err := engine.Write(token); err != nil || g.strike(callToken, afterCall) {
		return
	}
	_, _ = io.Copy(engine, buffered)
}

// deaf takes an answer that nobody hears.
type deaf struct{ h http.Header }

func (d deaf) Header() http.Header         { return d.h }
func (d deaf) Write(p []byte) (int, error) { return len(p), nil }
func (d deaf) WriteHeader(int)             {}
