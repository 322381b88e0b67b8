package stepcall_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, dir string, handle stepcall.Handler) (*stepcall.Server, func(string) string) {
	t.Helper()
	s, err := stepcall.Listen(stepcall.Config{
		Dir: dir, Executable: os.Args[0], Handle: handle, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	vars := s.Variables()
	return s, func(name string) string { return vars[name] }
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func event(name string) stepcall.Request {
	return stepcall.Request{Type: wire.TypeEventEmit, RequestID: "r1", Name: name, Payload: []byte(`{"a":[1,2]}`), TargetRepos: []string{"acme/shop"}}
}

func TestAStepAsksAndIsAnswered(t *testing.T) {
	dir := shortDir(t)
	s, env := listen(t, dir, func(_ context.Context, r stepcall.Request) wire.StepResult {
		if r.Name != "deploy.done" || string(r.Payload) != `{"a":[1,2]}` || len(r.TargetRepos) != 1 {
			t.Errorf("request %+v", r)
		}
		return wire.StepResult{ID: "e1"}
	})
	res, err := stepcall.Call(t.Context(), env, event("deploy.done"))
	if err != nil || res.ID != "e1" || res.Code != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	info, err := os.Stat(filepath.Dir(env(stepcall.SocketVariable)))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v; want 0700", info.Mode(), err)
	}
	if link, err := os.Readlink(filepath.Join(s.Bin(), "kici")); err != nil || link != os.Args[0] {
		t.Errorf("kici is %q, %v", link, err)
	}
}

// Where the job's directory has too long a name for a socket, a short one is made, and found again by who clears away.
func TestALongDirectory(t *testing.T) {
	dir := filepath.Join(shortDir(t), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, env := listen(t, dir, func(context.Context, stepcall.Request) wire.StepResult { return wire.StepResult{ID: "e"} })
	if res, err := stepcall.Call(t.Context(), env, event("x")); err != nil || res.ID != "e" {
		t.Fatalf("%+v, %v", res, err)
	}
	short := filepath.Dir(env(stepcall.SocketVariable))
	if len(env(stepcall.SocketVariable)) > 103 || strings.HasPrefix(short, dir) {
		t.Fatalf("socket %s", env(stepcall.SocketVariable))
	}
	s.Close()
	if _, err := os.Stat(short); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", short, err)
	}
	if err := os.Mkdir(short, 0o700); err != nil { // as a killed agent leaves it
		t.Fatal(err)
	}
	stepcall.ClearShort(dir)
	if _, err := os.Stat(short); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", short, err)
	}
}

func TestRefusals(t *testing.T) {
	var asked atomic.Int32
	_, env := listen(t, shortDir(t), func(context.Context, stepcall.Request) wire.StepResult {
		asked.Add(1)
		return wire.StepResult{}
	})
	cases := map[string]struct {
		change func(*stepcall.Request)
		code   string
	}{
		"no name":          {func(r *stepcall.Request) { r.Name = "" }, wire.StepInvalid},
		"long name":        {func(r *stepcall.Request) { r.Name = strings.Repeat("n", wire.MaxEventNameBytes+1) }, wire.StepTooLarge},
		"name with a line": {func(r *stepcall.Request) { r.Name = "a\nb" }, wire.StepInvalid},
		"large payload": {func(r *stepcall.Request) {
			r.Payload = []byte(`"` + strings.Repeat("x", wire.MaxEventPayloadBytes) + `"`)
		}, wire.StepTooLarge},
		"many targets":  {func(r *stepcall.Request) { r.TargetRepos = make([]string, wire.MaxTargetRepos+1) }, wire.StepTooLarge},
		"empty target":  {func(r *stepcall.Request) { r.TargetRepos = []string{""} }, wire.StepInvalid},
		"no request id": {func(r *stepcall.Request) { r.RequestID = "" }, wire.StepInvalid},
		"unknown":       {func(r *stepcall.Request) { r.Type = "token.mint" }, wire.StepUnsupported},
		"no jobs":       {func(r *stepcall.Request) { r.Type = wire.TypeJobAdd }, wire.StepInvalid},
		"many jobs": {func(r *stepcall.Request) {
			r.Type, r.Jobs = wire.TypeJobAdd, strings.Repeat("j", wire.MaxJobAddBytes+1)
		}, wire.StepTooLarge},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := event("x")
			c.change(&r)
			res, err := stepcall.Call(t.Context(), env, r)
			if err != nil || res.Code != c.code || res.Message == "" {
				t.Errorf("%+v, %v; want %s", res, err, c.code)
			}
		})
	}
	other := func(name string) string {
		if name == stepcall.TokenVariable {
			return "another job's"
		}
		return env(name)
	}
	if res, err := stepcall.Call(t.Context(), other, event("x")); err != nil || res.Code != wire.StepNotYours {
		t.Errorf("wrong token: %+v, %v", res, err)
	}
	if asked.Load() != 0 {
		t.Errorf("%d refused requests were passed on", asked.Load())
	}
	if _, err := stepcall.Call(t.Context(), func(string) string { return "" }, event("x")); !errors.Is(err, stepcall.ErrOutside) {
		t.Errorf("outside: %v", err)
	}
}

// A caller that hangs up, and a job that ends, leave nobody waiting.
func TestNobodyWaitsForTheEndOfAJob(t *testing.T) {
	begun := make(chan struct{}, 2)
	s, env := listen(t, shortDir(t), func(ctx context.Context, _ stepcall.Request) wire.StepResult {
		begun <- struct{}{}
		<-ctx.Done()
		return stepcall.Refused(wire.StepEnded, "over")
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := stepcall.Call(ctx, env, event("x")); !errors.Is(err, context.Canceled) {
		t.Fatalf("a caller that hangs up: %v", err)
	}
	answered := make(chan wire.StepResult, 1)
	go func() {
		res, _ := stepcall.Call(t.Context(), env, event("x"))
		answered <- res
	}()
	<-begun
	s.Close()
	if res := <-answered; res.Code != wire.StepEnded {
		t.Errorf("the job's end: %+v", res)
	}
	if res, err := stepcall.Call(t.Context(), env, event("x")); err == nil && res.Code != wire.StepEnded {
		t.Errorf("after the end: %+v, %v", res, err)
	}
}

// XC-41: a storm is slowed down, then ended.
func TestXC41AStormIsPaced(t *testing.T) {
	var clock atomic.Int64
	var asked atomic.Int32
	s, err := stepcall.Listen(stepcall.Config{
		Dir: shortDir(t), Now: func() time.Time { return time.Unix(clock.Load(), 0) }, Log: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, stepcall.Request) wire.StepResult { asked.Add(1); return wire.StepResult{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	vars := s.Variables()
	env := func(name string) string { return vars[name] }
	for range 50 { // the burst
		if res, err := stepcall.Call(t.Context(), env, event("x")); err != nil || res.Code != "" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	begin := time.Now()
	for range 4 { // the clock stands still, so each waits longer than the one before
		if _, err := stepcall.Call(t.Context(), env, event("x")); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < 400*time.Millisecond {
		t.Errorf("4 more took %s; they are to wait 50, 100, 150 and 200 ms", took)
	}
	clock.Add(3600)
	if res, err := stepcall.Call(t.Context(), env, event("x")); err != nil || res.Code != "" {
		t.Fatalf("after a rest: %+v, %v", res, err)
	}
}

// Whatever comes over the socket, it is answered or the connection ends, and only a good request is passed on.
func TestGarbageOnTheSocket(t *testing.T) {
	_, env := listen(t, shortDir(t), func(context.Context, stepcall.Request) wire.StepResult {
		t.Error("garbage was passed on")
		return wire.StepResult{}
	})
	for _, text := range []string{"\n", "null\n", "[]\n", "{\"token\":1}\n", strings.Repeat("x", 2<<20), "no end"} {
		conn, err := net.Dial("unix", env(stepcall.SocketVariable))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.(*net.UnixConn).CloseWrite()
		buf := make([]byte, 1<<16)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(buf)
		if err == nil && !strings.Contains(string(buf[:n]), `"code"`) {
			t.Errorf("%.20q: answered %q", text, buf[:n])
		}
		_ = conn.Close()
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"token":"t","type":"event.emit","requestId":"r","name":"n","payload":{"a":1},"targetRepos":["a/b"]}`))
	f.Add([]byte(`{"token":"t","type":"job.add","requestId":"r","jobs":"jobs:\n  a: {}\n"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := stepcall.Decode(data)
		if err != nil {
			return
		}
		if bad := stepcall.Check(r); bad != nil {
			if bad.Code == "" || bad.Message == "" {
				t.Fatalf("a refusal without a reason: %+v", bad)
			}
			return
		}
		if r.RequestID == "" || len(r.RequestID) > wire.MaxRequestIDBytes || len(r.Payload) > wire.MaxEventPayloadBytes || len(r.Jobs) > wire.MaxJobAddBytes {
			t.Fatalf("beyond the bounds: %+v", r)
		}
	})
}
