package link

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLink(t *testing.T, url string) *Link {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	l, err := New(Config{
		URL: url, Token: "kat_x", AgentID: "a", Version: "v", HTTP: client, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestBaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"ws://h:4000/ws": "http://h:4000", "http://h:4000": "http://h:4000", "https://h/": "https://h", "wss://h/ci/ws/": "https://h/ci",
		"https://h/ci": "https://h/ci", "http://u:p@h/ws?x=1#y": "http://h", " ws://h ": "http://h",
		"unix:///run/kici.sock": "http://kici.invalid",
	} {
		if got, err := BaseURL(in); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "h:4000", "ftp://h", "http://", "://", "unix://", "unix://run/kici.sock"} {
		if got, err := BaseURL(bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestEncodeAndDecode(t *testing.T) {
	data, err := Encode(wire.TypeJobAck, wire.JobAck{JobID: "j", Attempt: 2})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Decode(data)
	if err != nil || f.Type != wire.TypeJobAck {
		t.Fatal(f, err)
	}
	if b, err := Body[wire.JobAck](f); err != nil || b.JobID != "j" || b.Attempt != 2 {
		t.Error(b, err)
	}
	if _, err := Encode("x", strings.Repeat("x", wire.MaxFrameBytes)); err == nil {
		t.Error("a frame above the limit was made")
	}
	for _, bad := range []string{"", "[]", "{}", `{"type":7}`, "null", `{"type":"x"`} {
		if _, err := Decode([]byte(bad)); !errors.Is(err, ErrFrame) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Body[wire.JobAck](wire.Frame{Type: "x", Body: []byte("[1]")}); !errors.Is(err, ErrFrame) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"job.dispatch","body":{"jobId":"j"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := Decode(data)
		if err != nil {
			return
		}
		if frame.Type == "" {
			t.Fatal("no type")
		}
		_, _ = Body[wire.JobDispatch](frame)
		_, _ = Body[wire.RegisterAck](frame)
	})
}

// recorder is a handler that counts.
type recorder struct {
	frames chan wire.Frame
	ready  chan struct{}
	lost   chan error
}

func newRecorder() *recorder {
	return &recorder{frames: make(chan wire.Frame, 16), ready: make(chan struct{}, 16), lost: make(chan error, 16)}
}

func (r *recorder) Registration() wire.Register { return wire.Register{AgentID: "a"} }
func (r *recorder) Registered(wire.RegisterAck) {}
func (r *recorder) Ready()                      { r.ready <- struct{}{} }
func (r *recorder) Frame(f wire.Frame) error    { r.frames <- f; return nil }
func (r *recorder) Lost(err error)              { r.lost <- err }
func (r *recorder) Patient(time.Time) bool      { return true }

// serve answers the handshake and then does as it is told.
func serve(t *testing.T, then func(ctx context.Context, c *websocket.Conn)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		ctx := r.Context()
		for _, answer := range []struct {
			kind string
			body any
		}{{wire.TypeAuthSuccess, wire.AuthSuccess{}}, {wire.TypeHeartbeat, wire.Heartbeat{}}} {
			if _, err := read(ctx, c); err != nil {
				return
			}
			_ = write(ctx, c, answer.kind, answer.body)
		}
		_ = write(ctx, c, wire.TypeRegisterAck, wire.RegisterAck{AgentID: "a"})
		then(ctx, c)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRateWarningIsObeyed(t *testing.T) {
	s := serve(t, func(ctx context.Context, c *websocket.Conn) {
		_ = write(ctx, c, wire.TypeRateWarning, wire.RateWarning{RetryAfterMs: 60_000})
		_ = write(ctx, c, wire.TypeHeartbeat, wire.Heartbeat{})
		_ = write(ctx, c, "something.new", nil)
		_, _, _ = c.Read(ctx)
		_, _, _ = c.Read(ctx)
	})
	l, h := newLink(t, s.URL), newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, h) }()
	if f := <-h.frames; f.Type != "something.new" {
		t.Errorf("%+v", f)
	}
	if q := l.Quiet(); q < 4*time.Second || q > 5*time.Second {
		t.Errorf("quiet for %s, want the bound", q)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLinkIsDialledAgain(t *testing.T) {
	s := serve(t, func(_ context.Context, c *websocket.Conn) { _ = c.CloseNow() })
	l, h := newLink(t, s.URL), newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, h) }()
	for range 2 {
		<-h.ready
		if err := <-h.lost; err == nil {
			t.Error("lost without a reason")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if l.Send(wire.TypeHeartbeat, nil) {
		t.Error("something was sent without a connection")
	}
}

func TestCloseFrameLeaves(t *testing.T) {
	code := make(chan websocket.StatusCode, 1)
	s := serve(t, func(ctx context.Context, c *websocket.Conn) {
		for {
			if _, _, err := c.Read(ctx); err != nil {
				code <- websocket.CloseStatus(err)
				return
			}
		}
	})
	l, h := newLink(t, s.URL), newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, h) }()
	<-h.ready
	cancel()
	<-done
	if c := <-code; c != wire.CloseGoingAway {
		t.Errorf("closed with %d", c)
	}
}

func TestFetchJob(t *testing.T) {
	answer := func(status int, body string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer kat_x" || r.Header.Get("X-Kici-Agent") != "a" {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s
	}
	const spec = `{"runId":"r","jobId":"j","attempt":1,"job":{"a":1}}`
	const digest = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
	for _, c := range []struct {
		name   string
		status int
		body   string
		d      wire.JobDispatch
		want   error
	}{
		{"fine", 200, spec, wire.JobDispatch{JobID: "j", Attempt: 1, Digest: digest}, nil},
		{"no digest", 200, spec, wire.JobDispatch{JobID: "j", Attempt: 1}, nil},
		{"digest", 200, spec, wire.JobDispatch{JobID: "j", Attempt: 1, Digest: "00"}, ErrDigest},
		{"other attempt", 200, spec, wire.JobDispatch{JobID: "j", Attempt: 2}, ErrNotOurs},
		{"other job", 200, spec, wire.JobDispatch{JobID: "k", Attempt: 1}, ErrNotOurs},
		{"gone", 410, "", wire.JobDispatch{JobID: "j", Attempt: 1}, ErrNotOurs},
		{"unauthorised", 401, "", wire.JobDispatch{JobID: "j", Attempt: 1}, ErrNotOurs},
	} {
		_, err := newLink(t, answer(c.status, c.body).URL).FetchJob(t.Context(), c.d)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for _, bad := range []string{"", "[]", strings.Repeat(" ", wire.MaxJobSpecBytes+1)} {
		if _, err := newLink(t, answer(200, bad).URL).FetchJob(t.Context(), wire.JobDispatch{JobID: "j"}); err == nil || errors.Is(err, ErrNotOurs) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	if _, err := newLink(t, answer(503, "").URL).FetchJob(t.Context(), wire.JobDispatch{JobID: "j"}); err == nil || errors.Is(err, ErrNotOurs) {
		t.Error(err)
	}
}

func TestPostLog(t *testing.T) {
	var query, body string
	status, ack := http.StatusOK, wire.LogAck{Offset: 7}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		query, body = r.URL.RequestURI(), string(b)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(ack)
	}))
	t.Cleanup(s.Close)
	post := newLink(t, s.URL+"/base").PostLog("j/../k", 3)
	send := func() (wire.LogAck, error) {
		return post(t.Context(), spool.Chunk{Step: 2, Offset: 4, Body: io.NewSectionReader(strings.NewReader("0123456"), 4, 3)})
	}
	if a, err := send(); err != nil || a.Offset != 7 || body != "456" {
		t.Error(a, err, body)
	}
	if want := "/base/api/v1/agent/jobs/j%2F..%2Fk/logs?attempt=3&offset=4&step=2"; query != want {
		t.Errorf("%s, want %s", query, want)
	}
	status = http.StatusConflict
	if _, err := send(); !errors.Is(err, spool.OffsetError{Offset: 7}) {
		t.Error(err)
	}
	status = http.StatusGone
	if _, err := send(); !errors.Is(err, spool.ErrGone) {
		t.Error(err)
	}
	status = http.StatusServiceUnavailable
	if _, err := send(); err == nil || errors.Is(err, spool.ErrGone) {
		t.Error(err)
	}
}
