package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is the other side: it stores bytes by offset, as the orchestrator does, and misbehaves on demand.
type sink struct {
	mu    sync.Mutex
	steps map[int][]byte
	fault func(n int) string // by number of the post: "", fail, lost-answer, forget, gap, truncate, gone
	posts int
}

func (s *sink) post(_ context.Context, c Chunk) (wire.LogAck, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posts++
	fault := ""
	if s.fault != nil {
		fault = s.fault(s.posts)
	}
	if s.steps == nil {
		s.steps = map[int][]byte{}
	}
	have := s.steps[c.Step]
	switch fault {
	case "fail":
		return wire.LogAck{}, errors.New("connection refused")
	case "forget": // restarted without its last bytes
		s.steps[c.Step] = have[:len(have)/2]
		return wire.LogAck{}, errors.New("connection reset")
	case "truncate":
		return wire.LogAck{Offset: int64(len(have)), Truncated: true}, nil
	case "gone":
		return wire.LogAck{}, ErrGone
	}
	body, err := io.ReadAll(c.Body)
	if err != nil {
		return wire.LogAck{}, err
	}
	if c.Offset > int64(len(have)) {
		return wire.LogAck{}, OffsetError{int64(len(have))}
	}
	if end := int64(len(body)) + c.Offset; end > int64(len(have)) {
		s.steps[c.Step] = append(have, body[int64(len(have))-c.Offset:]...)
	}
	if fault == "lost-answer" {
		return wire.LogAck{}, errors.New("connection reset")
	}
	return wire.LogAck{Offset: int64(len(s.steps[c.Step]))}, nil
}

func (s *sink) lines(t testing.TB, step int) []wire.LogLine {
	t.Helper()
	var out []wire.LogLine
	for line := range bytes.Lines(s.steps[step]) {
		var l wire.LogLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, l)
	}
	return out
}

func start(t testing.TB, s *sink, maxBytes int64) *Spool {
	t.Helper()
	sp := New(Config{Dir: t.TempDir(), MaxBytes: maxBytes, Post: s.post, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sp.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; sp.Close() })
	return sp
}

func drained(t testing.TB, sp *Spool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := sp.Drained(ctx); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, sp *Spool, n int) *Step {
	t.Helper()
	st, err := sp.Open(n)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestBurstArrivesCompleteOnceInOrder(t *testing.T) {
	s := &sink{fault: func(int) string {
		return []string{"", "", "", "fail", "lost-answer", "forget"}[rand.N(6)]
	}}
	sp := start(t, s, 0)
	st := open(t, sp, 1)
	w := st.Stream("stdout")
	const n = 100_000
	for i := range n {
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Close()
	st.Close()
	drained(t, sp)
	lines := s.lines(t, 1)
	if len(lines) != n {
		t.Fatalf("%d lines, want %d", len(lines), n)
	}
	for i, l := range lines {
		if want := fmt.Sprintf("line %d", i); l.Msg != want || l.Level != "stdout" {
			t.Fatalf("line %d is %+v", i, l)
		}
	}
	if left, _ := os.ReadDir(sp.cfg.Dir); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestServerAheadOfAgentIsNotBelieved(t *testing.T) {
	calls := 0
	s := &sink{}
	sp := New(Config{Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler), Post: func(ctx context.Context, c Chunk) (wire.LogAck, error) {
		if calls++; calls == 1 {
			return wire.LogAck{Offset: 1 << 40}, nil
		}
		return s.post(ctx, c)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sp.Run(ctx) }()
	st := open(t, sp, 0)
	st.Notice("hello")
	st.Close()
	drained(t, sp)
	cancel()
	<-done
	if l := s.lines(t, 0); len(l) != 1 || l[0].Msg != "hello" || l[0].Level != "kici" {
		t.Fatalf("%+v", l)
	}
}

func TestBoundLeavesMarker(t *testing.T) {
	s := &sink{}
	sp := start(t, s, 2000)
	st := open(t, sp, 0)
	w := st.Stream("stdout")
	for range 1000 {
		_, _ = io.WriteString(w, "0123456789\n")
	}
	w.Close()
	st.Close()
	second := open(t, sp, 1)
	second.Notice("nothing of this is kept")
	second.Close()
	drained(t, sp)
	lines := s.lines(t, 0)
	last := lines[len(lines)-1]
	if last.Level != "kici" || !strings.Contains(last.Msg, "truncated") {
		t.Errorf("last line is %+v", last)
	}
	if len(s.steps[0]) > 2300 || len(s.steps[1]) != 0 {
		t.Errorf("stored %d and %d bytes", len(s.steps[0]), len(s.steps[1]))
	}
}

func TestOrchestratorTruncates(t *testing.T) {
	s := &sink{fault: func(int) string { return "truncate" }}
	sp := start(t, s, 0)
	st := open(t, sp, 0)
	st.Notice("x")
	st.Close()
	drained(t, sp)
	if !sp.Truncated() || s.posts != 1 {
		t.Errorf("truncated %v after %d posts", sp.Truncated(), s.posts)
	}
}

func TestGone(t *testing.T) {
	s := &sink{fault: func(int) string { return "gone" }}
	sp := start(t, s, 0)
	st := open(t, sp, 0)
	st.Notice("x")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := sp.Drained(ctx); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
}

func TestPromptAppears(t *testing.T) {
	s := &sink{}
	sp := start(t, s, 0)
	st := open(t, sp, 0)
	w := st.Stream("stdout")
	_, _ = io.WriteString(w, "Continue? ")
	deadline := time.Now().Add(5 * time.Second)
	for seen := ""; seen != "Continue? "+wire.LogContinues; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		if l := s.lines(t, 0); len(l) > 0 {
			seen = l[0].Msg
		}
		s.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("seen %q", seen)
		}
	}
	_, _ = io.WriteString(w, "yes\n")
	w.Close()
	st.Close()
	drained(t, sp)
	if l := s.lines(t, 0); len(l) != 2 || l[1].Msg != "yes" {
		t.Errorf("%+v", l)
	}
}

// The disk refuses everything: what has room in memory is sent from there, the rest is counted and marked.
func TestDiskRefuses(t *testing.T) {
	var reachable atomic.Bool
	s := &sink{fault: func(int) string {
		if reachable.Load() {
			return ""
		}
		return "fail"
	}}
	sp := start(t, s, 0)
	st := open(t, sp, 0)
	good := st.file
	// Opened for reading: every write fails. A file of the test's own, because the spool removes its files.
	readOnly := filepath.Join(t.TempDir(), "read-only")
	if err := os.WriteFile(readOnly, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad, err := os.Open(readOnly)
	if err != nil {
		t.Fatal(err)
	}
	st.mu.Lock()
	st.file = bad
	st.mu.Unlock()
	w := st.Stream("stdout")
	const n = 60_000
	for i := range n {
		fmt.Fprintf(w, "line %d\n", i)
	}
	st.mu.Lock()
	if len(st.buf) > maxBuffered {
		t.Errorf("buffered %d", len(st.buf))
	}
	st.mu.Unlock()
	reachable.Store(true)
	w.Close()
	st.Close()
	drained(t, sp)
	_ = good.Close()
	lost, kept := 0, 0
	for _, l := range s.lines(t, 0) {
		var k int
		if _, err := fmt.Sscanf(l.Msg, "%d lines were lost", &k); err == nil && l.Level == "kici" {
			lost += k
		} else {
			kept++
		}
	}
	if lost == 0 || kept == 0 || lost+kept != n {
		t.Errorf("%d lines and %d lost, want %d", kept, lost, n)
	}
}

// Whatever is written, however it is cut, the stored lines joined again are the input with invalid UTF-8 replaced.
func TestLinesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sp := New(Config{Dir: "/nonexistent", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		st := &Step{spool: sp}
		w := st.Stream("stdout")
		gen := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 40),
			rapid.Map(rapid.IntRange(wire.MaxLogLineBytes-5, 2*wire.MaxLogLineBytes+5), func(n int) []byte { return bytes.Repeat([]byte("é"), n/2) }),
			rapid.SampledFrom([][]byte{[]byte("\n"), []byte("\r\n"), []byte("\"\\\t\x1b[0m"), []byte("a")}),
		)
		var in []byte
		for _, p := range rapid.SliceOfN(gen, 0, 6).Draw(t, "parts") {
			in = append(in, p...)
			_, _ = w.Write(p)
		}
		w.Close()
		var got strings.Builder
		for line := range bytes.Lines(st.buf) {
			var l wire.LogLine
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if len(l.Msg) > 3*wire.MaxLogLineBytes+len(wire.LogContinues) {
				t.Fatalf("a part of %d bytes", len(l.Msg))
			}
			if part, cont := strings.CutSuffix(l.Msg, wire.LogContinues); cont {
				got.WriteString(part)
			} else {
				got.WriteString(l.Msg + "\n")
			}
		}
		want := ""
		for line := range bytes.Lines(in) {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			want += replaceInvalid(string(line)) + "\n"
		}
		if got.String() != want {
			t.Fatalf("got %q, want %q", got.String(), want)
		}
	})
}

// replaceInvalid puts one replacement for each invalid byte, as encoding/json does.
func replaceInvalid(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func FuzzAppendLine(f *testing.F) {
	f.Add([]byte("a\"\\\x00\xff\u2028é"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		enc := appendLine(nil, 17, "stdout", msg, "")
		var l wire.LogLine
		if err := json.Unmarshal(enc, &l); err != nil {
			t.Fatalf("%q: %v", enc, err)
		}
		if l.Msg != replaceInvalid(string(msg)) || l.TS != 17 || l.Level != "stdout" {
			t.Fatalf("%+v", l)
		}
	})
}

func BenchmarkSpool(b *testing.B) {
	s := &sink{}
	sp := start(b, s, 1<<62)
	sp.cfg.Post = func(_ context.Context, c Chunk) (wire.LogAck, error) {
		n, err := io.Copy(io.Discard, c.Body)
		return wire.LogAck{Offset: c.Offset + n}, err
	}
	st := open(b, sp, 0)
	w := st.Stream("stdout")
	block := []byte(strings.Repeat("2026-01-01 some ordinary build output that compiles things [100%]\n", 500))
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		_, _ = w.Write(block)
	}
	w.Close()
	st.Close()
	drained(b, sp)
}
