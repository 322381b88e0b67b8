package container

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// frontier stands between a backend and its engine, and cuts the backend off after a number of calls, as the end of its process would:
// what was asked for is carried out, and nobody hears the answer.
type frontier struct {
	socket string
	calls  atomic.Int64
	until  int64 // the call whose answer is lost
	server *http.Server
	lis    net.Listener
}

func newFrontier(t *testing.T, e *enginetest.Engine, until int64) *frontier {
	t.Helper()
	f := &frontier{socket: filepath.Join(t.TempDir(), e.Name+".sock"), until: until}
	var err error
	if f.lis, err = net.Listen("unix", f.socket); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport = transport
	proxy.FlushInterval = -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	f.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/_ping") {
			proxy.ServeHTTP(w, r)
			return
		}
		n := f.calls.Add(1)
		switch {
		case n < f.until:
			proxy.ServeHTTP(w, r)
		case n == f.until:
			if strings.HasSuffix(r.URL.Path, "/attach") { // an attached input ends with us
				panic(http.ErrAbortHandler)
			}
			r = r.WithContext(context.WithoutCancel(r.Context()))
			proxy.ServeHTTP(deaf{http.Header{}}, r)
			go f.die()
			panic(http.ErrAbortHandler)
		default:
			panic(http.ErrAbortHandler)
		}
	})}
	go func() { _ = f.server.Serve(f.lis) }()
	t.Cleanup(func() { f.die(); transport.CloseIdleConnections() })
	return f
}

func (f *frontier) die() { _ = f.server.Close() }

// deaf takes an answer that nobody hears.
type deaf struct{ h http.Header }

func (d deaf) Header() http.Header         { return d.h }
func (d deaf) Write(p []byte) (int, error) { return len(p), nil }
func (d deaf) WriteHeader(int)             {}

// A spawn that is interrupted after any call to the engine leaves nothing that the next process does not find: it deletes what there is,
// or starts the agent anew.
func TestSpawnInterruptedAfterEachCall(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		for n := int64(1); n < 20 && !t.Failed(); n++ {
			again, made := false, false
			for _, again = range []bool{false, true} {
				t.Run(fmt.Sprintf("call %d again %v", n, again), func(t *testing.T) { made = interrupted(t, e, n, again) })
			}
			if made { // the spawn has fewer calls
				if n < 4 {
					t.Errorf("a spawn took %d calls only", n)
				}
				break
			}
		}
	})
}

func interrupted(t *testing.T, e *enginetest.Engine, n int64, again bool) (made bool) {
	t.Helper()
	r := newRig(t, e)
	straight := r.backend("one") // also prepares
	f := newFrontier(t, e, n)
	r.options = backend.Options{keySocket: f.socket, keyIsolation: false}
	b, err := open(r.entry("one"), r.host(), realFacts())
	if err != nil {
		t.Fatal(err)
	}
	b.podman = e.Name == "podman"
	spec := r.spec(agent1)
	spec.Launch, _ = b.Plan(spec)
	_, err = b.Create(r.ctx(), spec)
	f.die()
	if cerr := b.Close(); cerr != nil {
		t.Error(cerr)
	}
	if err == nil {
		if inst, ok := r.list(straight, agent1); !ok || !inst.Running {
			t.Errorf("made, and %+v", inst)
		}
		return true
	}
	if again {
		// The loop calls Create again for an agent that has done nothing; one that runs by then was complete.
		r.eventually("what is left is unstarted", func() bool {
			inst, ok := r.list(straight, agent1)
			return !ok || inst.Unstarted
		})
		r.create(straight, spec)
		r.eventually("the agent has its token", func() bool { return strings.Contains(r.output(agent1), "token of") })
		return false
	}
	if err := straight.Delete(r.ctx(), backend.Ref{AgentID: agent1, Launch: spec.Launch}); err != nil && !strings.Contains(err.Error(), backend.ErrNotFound.Error()) {
		t.Errorf("%v", err)
	}
	if left := r.left(agent1); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	return false
}
