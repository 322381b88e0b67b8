package logs

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/wire"
	"pgregory.net/rapid"
)

// write makes a step's log of messages, as its agent would, and returns them as they are stored.
func (r *rig) write(t testing.TB, messages ...string) {
	t.Helper()
	var b strings.Builder
	for i, m := range messages {
		text, err := json.Marshal(wire.LogLine{TS: int64(i), Level: "stdout", Msg: m})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	r.must(t, 0, b.String(), int64(b.Len()))
}

// Every line is found at its byte, whatever the length of the lines, while the log grows and after it was cut.
func TestSeekFindsEveryLine(t *testing.T) {
	r := newRig(t, 0)
	var starts []int64
	var size int64
	grow := func(n int) {
		var b strings.Builder
		at := size
		for range n {
			starts = append(starts, size)
			l := fmt.Sprintf(`{"ts":1,"level":"stdout","msg":"%s"}`+"\n", strings.Repeat("x", (len(starts)*7919)%3000))
			b.WriteString(l)
			size += int64(len(l))
		}
		r.must(t, at, b.String(), size)
	}
	check := func() {
		t.Helper()
		for _, n := range []int{-1, 0, 1, 2, 3, 171, 172, 173, len(starts) / 2, len(starts) - 1, len(starts), len(starts) + 1, 1 << 40} {
			want := Position{size, int64(len(starts))}
			if n <= 1 {
				want = Position{}
			} else if n <= len(starts) {
				want = Position{starts[n-1], int64(n - 1)}
			}
			if got, err := r.Seek(t.Context(), job, 0, int64(n)); err != nil || got != want {
				t.Errorf("line %d of %d: %+v, %v, want %+v", n, len(starts), got, err, want)
			}
		}
		for n := 1; n <= len(starts); n += 13 {
			if got, err := r.Seek(t.Context(), job, 0, int64(n)); err != nil || got != (Position{starts[n-1], int64(n - 1)}) {
				t.Fatalf("line %d: %+v, %v", n, got, err)
			}
		}
	}
	if got, err := r.Seek(t.Context(), job, 0, 5); err != nil || got != (Position{}) {
		t.Errorf("a log that does not exist: %+v, %v", got, err)
	}
	grow(100)
	check()
	grow(2000)
	check()
	grow(1500)
	check()
	keep := len(starts) / 3
	if err := os.Truncate(r.path(0), starts[keep]); err != nil {
		t.Fatal(err)
	}
	starts, size = starts[:keep], starts[keep]
	check()
}

func TestIndexesAreBounded(t *testing.T) {
	x := indexes{by: map[indexKey]*index{}}
	for i := range 3 * maxIndexes {
		x.of(indexKey{job, i})
		x.of(indexKey{job, 0})
	}
	if len(x.by) > maxIndexes {
		t.Errorf("%d indexes", len(x.by))
	}
	if x.by[indexKey{job, 0}] == nil {
		t.Error("the one that was used last is gone")
	}
}

// naive is what Search must find.
func naive(messages []string, text string) (out []int64) {
	for i, m := range messages {
		if strings.Contains(Fold(Visible(m)), Fold(text)) {
			out = append(out, int64(i+1))
		}
	}
	return out
}

func TestSearchFindsWhatIsThere(t *testing.T) {
	words := rapid.SampledFrom([]string{
		"ok", "FAIL", "fail", "\x1b[31mFA\x1b[0mIL", "größe", "GRÖSSE", "\t", `"quoted"`, `back\slash`, "<b>&", "\u2028", "K", "k", "msg", "stdout", "10%\rfail", "\x00", "漢字", " ",
	})
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, 0)
		messages := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(words, 0, 4).Draw(t, "words"), "") }), 1, 60).Draw(rt, "messages")
		for i := range messages {
			if rapid.IntRange(0, 9).Draw(rt, "long") == 0 {
				messages[i] += strings.Repeat("long ", 30_000)
			}
		}
		r.write(t, messages...)
		text := rapid.SampledFrom([]string{"fail", "FAIL", "Größe", "k", "\"", "\\", "<B>", "stdout", "漢", "msg", "\t", "long", "nothing", "k k"}).Draw(rt, "text")
		limit := rapid.IntRange(1, 20).Draw(rt, "limit")
		want := naive(messages, text)
		var forth, back []int64
		for q := (Query{Text: text, Limit: limit}); ; {
			got, err := r.Search(t.Context(), job, 0, q)
			if err != nil {
				rt.Fatal(err)
			}
			for _, m := range got.Matches {
				forth = append(forth, m.N)
			}
			if q.From = got.Next; got.Done {
				break
			}
		}
		end, err := r.Seek(t.Context(), job, 0, 1<<40)
		if err != nil {
			rt.Fatal(err)
		}
		for q := (Query{Text: text, Limit: limit, Backward: true, From: end}); ; {
			got, err := r.Search(t.Context(), job, 0, q)
			if err != nil {
				rt.Fatal(err)
			}
			for _, m := range got.Matches {
				back = append(back, m.N)
			}
			if q.From = got.Next; got.Done {
				break
			}
		}
		slices.Reverse(back)
		if !slices.Equal(forth, want) || !slices.Equal(back, want) {
			rt.Fatalf("%q: forward %v, backward %v, want %v", text, forth, back, want)
		}
	})
}

// A search that takes too long answers with what it has and goes on where it stopped.
func TestSearchIsBoundedInTime(t *testing.T) {
	r := newRig(t, 0)
	var messages []string
	for i := range 40 {
		messages = append(messages, fmt.Sprintf("needle %d %s", i, strings.Repeat("x", 100_000)))
	}
	r.write(t, messages...)
	r.now = func() time.Time { r.clock = r.clock.Add(searchTime * 3 / 4); return r.clock } // one buffer a request
	q, asked, found := Query{Text: "NEEDLE", Limit: MaxMatches}, 0, 0
	for done := false; !done; asked++ {
		got, err := r.Search(t.Context(), job, 0, q)
		if err != nil {
			t.Fatal(err)
		}
		found, q.From, done = found+len(got.Matches), got.Next, got.Done
	}
	if found != 40 || asked < 5 {
		t.Errorf("%d matches in %d requests", found, asked)
	}
	for _, from := range []Position{{Bytes: -1}, {Bytes: 1 << 60}, {Bytes: 1 << 60, Lines: -5}} { // a cursor that somebody made up
		for _, back := range []bool{false, true} {
			if got, err := r.Search(t.Context(), job, 0, Query{Text: "needle", From: from, Backward: back}); err != nil || !got.Done {
				t.Errorf("from %+v: %+v, %v", from, got, err)
			}
		}
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "\x1b[31mred\x1b[0m!": "red!", "10%\r20%\r30%": "30%", "done\r": "done", "a\x1b]0;title\x07b": "ab",
		"\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\": "link", "a\x1bPq#0\x1b\\b": "ab", "x\x1b": "x", "\x1b\x1b[31mq": "q", "\x1bü": "ü",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q is seen as %q, want %q", in, got, want)
		}
	}
}

// 200 MB: how long the first and every other jump and a search through everything take.
func BenchmarkLongLog(b *testing.B) {
	r := newRig(b, 0)
	line := `{"ts":1700000000000,"level":"stdout","msg":"2026-01-01T00:00:00Z \tinfo\tsomething happened in a place far away, and it was logged %d"}` + "\n"
	var buf strings.Builder
	var at int64
	for i := 0; at < 200<<20; i++ {
		fmt.Fprintf(&buf, line, i)
		if buf.Len() > 3<<20 {
			r.must(b, at, buf.String(), at+int64(buf.Len()))
			at += int64(buf.Len())
			buf.Reset()
		}
	}
	r.now = time.Now
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			r.indexes = indexes{by: map[indexKey]*index{}}
			if _, err := r.Seek(b.Context(), job, 0, 1<<40); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("seek", func(b *testing.B) {
		n := int64(0)
		for b.Loop() {
			n = (n + 777_767) % 1_300_000
			if _, err := r.Seek(b.Context(), job, 0, n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("search", func(b *testing.B) {
		b.SetBytes(at)
		b.ReportAllocs()
		for b.Loop() {
			for q := (Query{Text: "not there", Limit: 1}); ; {
				got, err := r.Search(b.Context(), job, 0, q)
				if err != nil {
					b.Fatal(err)
				}
				if q.From = got.Next; got.Done {
					break
				}
			}
		}
	})
}

// What the shortcut over the stored bytes finds is what a look at every decoded line finds.
func FuzzSearch(f *testing.F) {
	f.Add("\x1b[31mFA\x1b[0mIL\t", "fail")
	f.Add("K\\u212a", "k")
	f.Fuzz(func(t *testing.T, msg, text string) {
		raw, err := json.Marshal(wire.LogLine{Level: "stdout", Msg: msg})
		if err != nil || text == "" {
			return
		}
		stored := decode(append(raw, '\n'))
		got := false
		newMatcher(text).each(append(raw, '\n'), func(int, int, wire.LogLine) bool { got = true; return true })
		if want := strings.Contains(Fold(Visible(stored.Msg)), Fold(text)); got != want {
			t.Fatalf("%q in %q: %v, want %v", text, stored.Msg, got, want)
		}
	})
}
