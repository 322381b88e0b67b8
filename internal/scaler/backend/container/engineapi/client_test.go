package engineapi

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
)

func TestVersionFor(t *testing.T) {
	for theirs, want := range map[string]string{"1.41": "/v1.41", "1.51": "/v1.51", "1.99": "/v1.51", "": "/v1.51", "2.0": "/v1.51", "x": "/v1.51"} {
		if got := versionFor(theirs); got != want {
			t.Errorf("%q: %s, want %s", theirs, got, want)
		}
	}
}

// engine answers one path.
func engine(t *testing.T, path string, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/_ping":
			w.Header().Set("Api-Version", "1.41")
		case "/v1.41" + path:
			answer(w, r)
		default:
			t.Errorf("%s was asked for", r.URL.Path)
		}
	}))
	t.Cleanup(server.Close)
	c, err := New("tcp://"+server.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAnswersThatAreErrors(t *testing.T) {
	for body, want := range map[string]string{
		`{"message":"No such container: x"}`: "No such container: x", "plain words\n": "plain words", "": "the engine answered 404 Not Found", `{}`: "{}",
		strings.Repeat("x", 1<<20): strings.Repeat("x", maxError),
	} {
		c := engine(t, "/containers/x/json", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		})
		_, err := c.Inspect(t.Context(), "x")
		if !IsStatus(err, http.StatusConflict, http.StatusNotFound) || IsStatus(err, http.StatusConflict) || IsAway(err) || err.Error() != want {
			t.Errorf("%.20q: %.100v", body, err)
		}
	}
}

func TestEngineThatIsAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	c, err := New("unix://"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []func() error{
		func() error { _, err := c.Version(t.Context()); return err },
		func() error { _, err := c.Attach(t.Context(), "x"); return err },
	} {
		if err := call(); !IsAway(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	}
}

// A pull fails by a message in a stream that began well.
func TestPull(t *testing.T) {
	c := engine(t, "/images/create", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fromImage") != "docker.io/library/x" || r.URL.Query().Get("tag") != "1" || r.Header.Get(registry.AuthHeader) == "" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		_, _ = w.Write([]byte(`{"status":"a"}{"status":"b"}{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`))
	})
	n := 0
	err := c.Pull(t.Context(), "docker.io/library/x", "1", registry.AuthConfig{Username: "u"}, func(jsonstream.Message) { n++ })
	if n != 2 || err == nil || err.Error() != "manifest unknown" {
		t.Errorf("%d messages, %v", n, err)
	}
}

func TestEventsEndWithTheirStream(t *testing.T) {
	c := engine(t, "/events", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Query().Get("filters"), `"type":["container"]`) {
			t.Errorf("%s", r.URL)
		}
		_, _ = w.Write([]byte(`{"Actor":{"Attributes":{"a":"1"}}}` + "\n"))
	})
	begun, seen := false, ""
	err := c.Events(t.Context(), Filters{"type": {"container"}}, func() { begun = true }, func(m events.Message) { seen += m.Actor.Attributes["a"] })
	if err == nil || !begun || seen != "1" {
		t.Errorf("begun %v, seen %q, %v", begun, seen, err)
	}
}

func TestAddressesAndCertificates(t *testing.T) {
	if _, err := New("tcp://h:1", t.TempDir()); err == nil || !strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("without certificates: %v", err)
	}
	if _, err := New("%", ""); err == nil {
		t.Error("a bad address is taken")
	}
	if IsAway(errors.New("x")) || IsAway(&net.OpError{}) {
		t.Error("any error is taken for an engine that is away")
	}
}
