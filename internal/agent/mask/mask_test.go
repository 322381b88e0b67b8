package mask_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kici-go/kici/internal/agent/mask"
)

func TestString(t *testing.T) {
	multi := "-----BEGIN KEY-----\r\nabcdefgh\nxy\n-----END KEY-----\n"
	for _, c := range []struct {
		name       string
		values     []string
		text, want string
	}{
		{"plain", []string{"hunter2"}, "pw=hunter2!", "pw=***!"},
		{"twice", []string{"hunter2"}, "hunter2hunter2", "******"},
		{"longest wins", []string{"abcd", "abcdefg"}, "xabcdefgx", "x***x"},
		{"overlap is one", []string{"abcdef", "defghi"}, "<abcdefghi>", "<***>"},
		{"self overlap", []string{"abab"}, "ababab", "***"},
		{"short is ignored", []string{"abc", ""}, "abc", "abc"},
		{"each line", []string{multi}, "a abcdefgh b -----END KEY----- xy", "a *** b *** xy"},
		{"base64", []string{"hunter2!"}, "echo " + base64.StdEncoding.EncodeToString([]byte("hunter2!")), "echo ***="},
		{"url", []string{"a b&c/d"}, "q=a+b%26c%2Fd p=a%20b&c%2Fd", "q=*** p=***"},
		{"json", []string{`a"b\c`}, `{"x":"a\"b\\c"}`, `{"x":"***"}`},
		{"nothing", nil, "text", "text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := mask.New(c.values...).String(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBase64InsideSomethingLonger(t *testing.T) {
	s := mask.New("correct-horse-battery")
	for _, prefix := range []string{"", "u", "us", "usr:"} {
		enc := base64.StdEncoding.EncodeToString([]byte(prefix + "correct-horse-battery" + "tail"))
		if got := s.String(enc); !strings.Contains(got, "***") {
			t.Errorf("prefix %q: %q shows %q", prefix, enc, got)
		}
	}
}

func TestAddWhileStreaming(t *testing.T) {
	s := mask.New()
	m := s.Stream()
	got := string(m.Write([]byte("token1 ")))
	s.Add("token1")
	got += string(m.Write([]byte("token1 tok")))
	got += string(m.Write([]byte("en1")))
	got += string(m.Close())
	if got != "token1 *** ***" {
		t.Errorf("got %q", got)
	}
}

func TestHoldsBackOnlyWhatCouldBeAValue(t *testing.T) {
	m := mask.New("secret").Stream()
	if got := string(m.Write([]byte("Password: "))); got != "Password: " {
		t.Errorf("a prompt is held back: %q", got)
	}
	if got := string(m.Write([]byte("xsecr"))); got != "x" {
		t.Errorf("got %q", got)
	}
	if got := string(m.Write([]byte("ed"))); got != "secred" {
		t.Errorf("got %q", got)
	}
}

// naive hides the union of all occurrences, by brute force.
func naive(text string, patterns []string) string {
	hide := make([]bool, len(text))
	start := make([]bool, len(text)+1) // a new interval begins here although the byte before is hidden too
	type span struct{ from, to int }
	var spans []span
	for _, p := range patterns {
		for i := 0; i+len(p) <= len(text); i++ {
			if text[i:i+len(p)] == p {
				spans = append(spans, span{i, i + len(p)})
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	end := -1
	for _, s := range spans {
		if s.from >= end {
			start[s.from] = true
		}
		for i := s.from; i < s.to; i++ {
			hide[i] = true
		}
		end = max(end, s.to)
	}
	var out strings.Builder
	for i := range len(text) {
		if start[i] {
			out.WriteString(mask.Replacement)
		}
		if !hide[i] {
			out.WriteByte(text[i])
		}
	}
	return out.String()
}

// A small alphabet makes overlaps and near misses likely. Values have no form but themselves: too short for base64 parts
// to occur by accident, and nothing to escape.
func TestStreamEqualsWholeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[abc]{4,9}`)
		values := rapid.SliceOfN(value, 0, 5).Draw(t, "values")
		parts := rapid.SliceOf(rapid.OneOf(rapid.StringMatching(`[abc ]{0,12}`), rapid.SampledFrom(append(values, "ab"))))
		text := strings.Join(parts.Draw(t, "parts"), "")
		set := mask.New(values...)
		want := naive(text, values)
		if got := set.String(text); got != want {
			t.Fatalf("whole: %q of %q with %q, want %q", got, text, values, want)
		}
		got := cut(t, set.Stream(), text)
		if got != want {
			t.Fatalf("stream: %q of %q with %q, want %q", got, text, values, want)
		}
		for _, v := range values {
			if strings.Contains(got, v) {
				t.Fatalf("%q shows %q", got, v)
			}
		}
	})
}

func cut(t *rapid.T, m *mask.Stream, text string) string {
	var out bytes.Buffer
	for rest := text; rest != ""; {
		n := rapid.IntRange(0, min(len(rest), 7)).Draw(t, "n")
		out.Write(m.Write([]byte(rest[:n])))
		rest = rest[n:]
	}
	out.Write(m.Close())
	return out.String()
}

func FuzzStream(f *testing.F) {
	f.Add("secret\nline", "a secret b line", 3)
	f.Fuzz(func(t *testing.T, value, text string, n int) {
		if strings.Contains(value, "*") || strings.Contains(text, "*") {
			return
		}
		set := mask.New(value)
		want := set.String(text)
		m := set.Stream()
		var out bytes.Buffer
		n = max(n%8, 1)
		for rest := []byte(text); len(rest) > 0; {
			k := min(n, len(rest))
			out.Write(m.Write(rest[:k]))
			rest = rest[k:]
		}
		out.Write(m.Close())
		if out.String() != want {
			t.Fatalf("stream %q, whole %q", out.String(), want)
		}
		if v := strings.TrimRight(value, "\r\n"); len(v) >= mask.MinLength && strings.Contains(want, v) {
			t.Fatalf("%q shows %q", want, v)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	var values []string
	for i := range 50 {
		values = append(values, strings.Repeat(string(rune('a'+i%26)), 3)+"-secret-value-"+strings.Repeat("z", i))
	}
	line := []byte(strings.Repeat("2026-01-01 some ordinary build output that compiles things [100%] \n", 500))
	m := mask.New(values...).Stream()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		m.Write(line)
	}
}
