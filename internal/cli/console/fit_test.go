package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

// words are what names of branches, jobs and people are made of: also wide characters, combining ones, right-to-left scripts and
// attempts to take over the terminal.
var words = []string{"main", "feature/login", "日本語のブランチ", "עברית", "العربية", "👩‍👩‍👧 family", "e\u0301", "\x1b[31mred", "a\tb\nc", "\u202egnp.exe", ""}

// A table fits every terminal of 40 to 400 columns, whatever is in it, and prints no control sequence of its content (CLI-8).
func TestTablesFitEveryTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(minWidth, maxWidth).Draw(t, "width")
		columns := rapid.IntRange(1, 10).Draw(t, "columns")
		header := make([]string, columns)
		for i := range header {
			header[i] = fmt.Sprintf("COLUMN %d", i)
		}
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []Cell {
			row := make([]Cell, columns)
			for i := range row {
				text := strings.Repeat(rapid.SampledFrom(words).Draw(t, "word"), rapid.IntRange(1, 8).Draw(t, "times"))
				if i == 0 {
					text = ansi.Truncate(CleanLine(text), minWidth/2, "") // names are copied, so they are never cut
				}
				row[i] = Cell{Text: text, Class: "success"}
			}
			return row
		}), 1, 5).Draw(t, "rows")
		var out bytes.Buffer
		c := Console{Out: &out, OutTerminal: true, Width: width, Getenv: func(string) string { return "" }, NoColor: true}
		if err := c.Table(header, rows); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if w := ansi.StringWidth(strings.TrimRight(line, "\n")); w > width {
				t.Fatalf("%d columns of %d: %q", w, width, line)
			}
			if strings.ContainsAny(line, "\x1b\t\u202e") {
				t.Fatalf("control characters: %q", line)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != len(rows)+1 {
			t.Fatalf("%d lines for %d rows:\n%s", n, len(rows), &out)
		}
	})
}

func TestNoTruncIsWhole(t *testing.T) {
	var out bytes.Buffer
	c := Console{Out: &out, OutTerminal: true, Width: 40, NoTrunc: true, NoColor: true, Getenv: func(string) string { return "" }}
	long := strings.Repeat("x", 300)
	if err := c.Table([]string{"A", "B"}, [][]Cell{Plain("a", long)}); err != nil || !strings.Contains(out.String(), long) {
		t.Error(err, out.String())
	}
}

func TestWidthAndColor(t *testing.T) {
	for _, c := range []struct {
		terminal int
		columns  string
		want     int
	}{{120, "", 120}, {0, "", 80}, {120, "60", 60}, {120, "x", 120}, {10, "", 40}, {5000, "", 400}, {80, "-3", 80}} {
		if got := tableWidth(c.terminal, c.columns); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for _, c := range []struct {
		terminal bool
		env      string
		want     bool
	}{{true, "", true}, {false, "", false}, {true, "NO_COLOR=1", false}, {false, "CLICOLOR_FORCE=1", true}, {false, "CLICOLOR_FORCE=0", false}, {true, "TERM=dumb", false}, {true, "CLICOLOR_FORCE=1 NO_COLOR=1", false}} {
		env := func(name string) string {
			for _, kv := range strings.Fields(c.env) {
				if v, ok := strings.CutPrefix(kv, name+"="); ok {
					return v
				}
			}
			return ""
		}
		if got := (&Console{OutTerminal: c.terminal, Getenv: env}).Color(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
