package console

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                    "plain",
		"zwölf ✓ \u00e9":           "zwölf ✓ \u00e9",
		"a\tb\nc":                  "a\tb\nc",
		"\x1b[31mred\x1b[0m":       "red",
		"\x1b]0;title\aafter":      "after",
		"\x1b]8;;http://x\x1b\\l":  "l",
		"\x1b[2J\x1b[1;1Hgone":     "gone",
		"a\rb\bc\x00d\x7fe":        "abcde",
		"abc\u202ecba":             "abccba",
		"bad \xff\xfe utf":         "bad \uFFFD utf",
		"unfinished \x1b[31":       "unfinished ",
		"\x1bPq#0;2;0;0;0\x1b\\ok": "ok",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// harmless reports what must never reach a terminal.
func harmless(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("invalid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || reorders(r) {
			return fmt.Errorf("control character %U", r)
		}
	}
	return nil
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b[0m", "\x1b]0;x\a", "\x9b\xc2\x9b", "\u202e", "\x1b\x1b[[mm"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if err := harmless(got); err != nil {
			t.Fatalf("Clean(%q) = %q: %v", s, got, err)
		}
		if again := Clean(got); again != got {
			t.Fatalf("Clean(%q) = %q, and cleaned again %q", s, got, again)
		}
		if strings.ContainsAny(CleanLine(s), "\n\t") {
			t.Fatalf("CleanLine(%q) has a line break", s)
		}
	})
}

// However wide the cells, a table fits its terminal, keeps its first columns and its rows.
func TestTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 9).Draw(t, "columns")
		header := make([]string, columns)
		for i := range header {
			header[i] = fmt.Sprintf("H%d", i)
		}
		rows := make([][]Cell, rapid.IntRange(1, 5).Draw(t, "rows"))
		for r := range rows {
			for range columns {
				rows[r] = append(rows[r], Cell{Text: rapid.StringN(0, 60, -1).Draw(t, "cell")})
			}
			rows[r][0].Text = fmt.Sprintf("row%d", r)
		}
		var out bytes.Buffer
		c := &Console{Out: &out, Getenv: func(string) string { return "" }, Width: rapid.IntRange(20, 120).Draw(t, "width")}
		if err := c.Table(header, rows); err != nil {
			t.Fatal(err)
		}
		lines := slices.Collect(strings.Lines(out.String()))
		if len(lines) != len(rows)+1 {
			t.Fatalf("%d lines of %d rows:\n%s", len(lines), len(rows), &out)
		}
		for i, l := range lines {
			if w := lipgloss.Width(l); w > c.Width {
				t.Fatalf("a line is %d wide of %d:\n%s", w, c.Width, &out)
			}
			if i > 0 && !strings.HasPrefix(l, fmt.Sprintf("row%d", i-1)) {
				t.Fatalf("row %d lost its name:\n%s", i, &out)
			}
		}
	})
}

func TestTook(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0.0s", 400: "0.4s", 9_940: "9.9s", 12_300: "12s", 252_000: "4m 12s", 3_840_000: "1h 04m", 180_000_000: "2d 2h",
	} {
		if got := Took(in); got != want {
			t.Errorf("Took(%d) = %q, want %q", in, got, want)
		}
	}
}
