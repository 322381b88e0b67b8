package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() { transport.CloseIdleConnections(); s.Close() })
	c, err := New(Config{URL: s.URL + "/", Token: "tok", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyReadsAreRepeated(t *testing.T) {
	var n atomic.Int64
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"runs":[]}`)
	})
	if _, err := c.Runs(context.Background(), RunQuery{}); err != nil || n.Load() != 3 {
		t.Errorf("a read: %v after %d requests", err, n.Load())
	}
	n.Store(0)
	if _, err := c.Start(context.Background(), StartRequest{}, "k"); !IsStatus(err, 503) || n.Load() != 1 {
		t.Errorf("a write: %v after %d requests", err, n.Load())
	}
}

func TestErrorsCarryTheServersSentence(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" {
			t.Errorf("headers %v", r.Header)
		}
		w.Header().Set("X-Request-ID", "req-1")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"error":"the run has already ended","details":["status: failed"]}`)
	})
	_, err := c.Cancel(context.Background(), "acme/shop#1", true, "")
	var se *StatusError
	if !errors.As(err, &se) || se.Status != 409 || se.RequestID != "req-1" || err.Error() != "the run has already ended: status: failed" {
		t.Errorf("%+v", err)
	}
	c = dial(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "<html>")
	})
	if err := c.RevokeToken(context.Background(), "x"); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("%v", err)
	}
	c = dial(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>hello") })
	if _, err := c.Scalers(context.Background()); err == nil || !strings.Contains(err.Error(), "is it a kici server?") {
		t.Errorf("%v", err)
	}
}

func TestReferencesAreOnePathElement(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/api/v1/admin/jobs/acme%2Fshop%23482%2Ftest%20%281.26%29" {
			t.Errorf("path %s", r.URL.EscapedPath())
		}
		fmt.Fprint(w, `{}`)
	})
	if _, err := c.Job(context.Background(), "acme/shop#482/test (1.26)"); err != nil {
		t.Error(err)
	}
}

func TestProtocol(t *testing.T) {
	for _, tc := range []struct {
		server, least int
		ok            bool
	}{{1, 1, true}, {5, 1, true}, {5, 2, false}, {0, 0, false}} {
		c := dial(t, func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(Capabilities{OrchestratorVersion: "9.9", ProtocolVersion: tc.server, MinProtocolVersion: tc.least})
		})
		_, err := c.CheckProtocol(context.Background())
		var pe *ProtocolError
		if (err == nil) != tc.ok || err != nil && (!errors.As(err, &pe) || !strings.Contains(err.Error(), "9.9")) {
			t.Errorf("server %d, least %d: %v", tc.server, tc.least, err)
		}
	}
}

// A broken stream is opened again behind the last event; nothing is lost or told twice.
func TestStreamGoesOnWhereItBroke(t *testing.T) {
	var n atomic.Int64
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		from := r.URL.Query().Get("cursor")
		send := func(id string, n int) {
			fmt.Fprintf(w, ": comment\n\nid: %s\nevent: lines\ndata: {\"lines\":[{\"n\":%d,\ndata: \"msg\":\"line %d\"}]}\n\n", id, n, n)
		}
		switch n.Add(1) {
		case 1:
			send("a", 1)
			send("b", 2)
			fmt.Fprint(w, "id: c\nevent: lines\ndata: {\"lines\":[{\"n\":3") // cut in the middle
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			if from != "b" {
				t.Errorf("came back at %q", from)
			}
			send("c", 3)
			fmt.Fprint(w, "event: end\ndata: {}\n\n")
		}
	})
	var got []string
	err := c.FollowJobLog(context.Background(), "job", "", func(l StepLine, cursor string) error {
		got = append(got, l.Msg+"@"+cursor)
		return nil
	})
	if err != nil || strings.Join(got, " ") != "line 1@a line 2@b line 3@c" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestStreamEndsForGood(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "gone") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"run not found"}`)
			return
		}
		fmt.Fprint(w, "event: run\ndata: {\"id\":\"x\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.FollowRun(ctx, "gone", func(RunDetail) error { return nil }); !IsStatus(err, 404) {
		t.Errorf("not found: %v", err)
	}
	if err := c.FollowRun(ctx, "x", func(RunDetail) error { return ErrStop }); err != nil {
		t.Errorf("stopped: %v", err)
	}
	own := errors.New("disk full")
	if err := c.FollowRun(ctx, "x", func(RunDetail) error { return own }); !errors.Is(err, own) {
		t.Errorf("own error: %v", err)
	}
	inner, stop := context.WithCancel(ctx)
	if err := c.FollowRun(inner, "x", func(RunDetail) error { stop(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	c, err := New(Config{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = c.Capabilities(context.Background())
	var ce *ConnectError
	if !errors.As(err, &ce) || ce.URL != "http://127.0.0.1:1" || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	for _, bad := range []string{"", "ci", "ftp://x", "http://", ":"} {
		if _, err := New(Config{URL: bad}); err == nil {
			t.Errorf("New(%q) is content", bad)
		}
	}
}

func TestTimesRoundTrip(t *testing.T) {
	for _, ms := range []int64{0, 1, 1777896000123} {
		b, err := json.Marshal(TimeOf(ms))
		var back Time
		if err != nil || json.Unmarshal(b, &back) != nil || back.UnixMilli() != ms {
			t.Errorf("%d: %s, %v", ms, b, err)
		}
	}
	var bad Time
	if err := json.Unmarshal([]byte(`17`), &bad); err == nil {
		t.Error("a number is a time")
	}
}
