package read

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
	"pgregory.net/rapid"
)

type nobody struct{}

func (nobody) Publish(store.Topic, string) {}

var ref = LogRef{RunID: "run-1", JobID: "job-1", Attempt: 1}

func stepLogs(t testing.TB) (*StepLogs, func(lines ...string)) {
	t.Helper()
	blobs, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	st := logs.New(blobs, nobody{}, obs.NewMetrics(), obs.Discard(), logs.Config{})
	t.Cleanup(func() { _ = st.Close(); _ = blobs.Close() })
	var offset int64
	return NewStepLogs(st), func(lines ...string) {
		var b strings.Builder
		for _, l := range lines {
			text, err := json.Marshal(wire.LogLine{TS: 1, Level: "stdout", Msg: l})
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
			b.WriteByte('\n')
		}
		ack, err := st.Append(context.Background(), logs.Job(ref), 1, offset, strings.NewReader(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		offset = ack.Offset
	}
}

// Pages put together are the log, and every line knows its number; a tail is the end of it.
func TestStepLogs(t *testing.T) {
	s, add := stepLogs(t)
	ctx := context.Background()
	if lines, _, err := TailLines(ctx, s, ref, 1, Tail{Lines: 10}); err != nil || len(lines) != 0 {
		t.Fatalf("tail of nothing: %v, %v", lines, err)
	}
	const total = 1234
	for i := range total {
		add(fmt.Sprintf("line %d %s", i+1, strings.Repeat("x", i%700)))
	}
	check := func(t interface{ Errorf(string, ...any) }, lines []client.LogLine, from, to int) {
		if len(lines) != max(to-from+1, 0) {
			t.Errorf("%d lines, want %d…%d", len(lines), from, to)
			return
		}
		for i, l := range lines {
			if l.N != int64(from+i) || !strings.HasPrefix(l.Msg, fmt.Sprintf("line %d ", from+i)) {
				t.Errorf("line %d is %d %.20q", from+i, l.N, l.Msg)
				return
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []client.LogLine
		for cursor := ""; ; {
			lines, next, err := s.ReadLines(ctx, ref, 1, cursor, rapid.IntRange(1, 900).Draw(t, "limit"))
			if err != nil {
				t.Fatal(err)
			}
			if len(lines) == 0 {
				break
			}
			all, cursor = append(all, lines...), next
		}
		check(t, all, 1, total)
		n, upTo := rapid.IntRange(1, 1500).Draw(t, "n"), rapid.IntRange(0, 1500).Draw(t, "upTo")
		last := total
		if upTo > 0 {
			last = min(upTo, total)
		}
		lines, next, err := TailLines(ctx, s, ref, 1, Tail{Lines: n, UpTo: int64(upTo)})
		if err != nil {
			t.Fatal(err)
		}
		check(t, lines, max(last-n+1, 1), last)
		after, _, err := s.ReadLines(ctx, ref, 1, next, 1)
		if err != nil {
			t.Fatal(err)
		}
		check(t, after, last+1, min(last+1, total))
	})
	for _, cursor := range []string{"x", "1", "-1-2", "1-x", "99999999999999999999-1"} {
		if _, _, err := s.ReadLines(ctx, ref, 1, cursor, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}
