package web

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
)

func TestLogLineShowsHostileTextAsText(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":          {"hello", "hello"},
		"html":           {`<img src=x onerror=alert(1)>`, "&lt;img src=x onerror=alert(1)&gt;"},
		"colour":         {"\x1b[31mred\x1b[0m", `<span class="term-fg31">red</span>`},
		"colour html":    {"\x1b[31m<b>\x1b[0m", `<span class="term-fg31">&lt;b&gt;</span>`},
		"cursor moves":   {"a\x1b[2Jb\x1b[10;10Hc", "abc"},
		"title":          {"a\x1b]0;evil\x07b", "ab"},
		"link":           {"\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\", "x"},
		"buildkite link": {"\x1b]1339;url=javascript:alert(1);content=x\x07y", "y"},
		"image":          {"\x1b]1338;url=http://e/x.png\x07y", "y"},
		"sixel":          {"a\x1bPq#0;2;0;0;0~~\x1b\\b", "ab"},
		"private mode":   {"\x1b[?1049ha\x1b[?25l", "a"},
		"unfinished":     {"a\x1b]0;never ends", "a"},
		"lone escape":    {"a\x1b", "a"},
		"two escapes":    {"a\x1b\x1b[31mb", `a<span class="term-fg31">b</span>`},
		"overwritten":    {"10%\r50%\r100%", "100%"},
		"crlf":           {"done\r", "done"},
		"right to left":  {"user\u202etxt.exe", "user⟨U+202E⟩txt.exe"},
		"isolate":        {"\u2066a\u2069\u200f", "⟨U+2066⟩a⟨U+2069⟩⟨U+200F⟩"},
		"coloured bidi":  {"\x1b[31m\u202e\x1b[0m", `<span class="term-fg31">⟨U+202E⟩</span>`},
		"nul and bell":   {"a\x00\x07b", "a^@^Gb"},
		"backspace":      {"ab\b\bcd", "ab^H^Hcd"},
		"c1 control":     {"a\u009b31mb", "a⟨U+009B⟩31mb"},
		"separators":     {"a\u2028b\u2029c", "a⟨U+2028⟩b⟨U+2029⟩c"},
		"tags":           {"a\U000e0041", "a⟨U+E0041⟩"},
		"not utf-8":      {"a\xffb", "a⟨U+FFFD⟩b"},
	} {
		if got := render(c.in, ""); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSearchedTextIsMarked(t *testing.T) {
	for _, c := range [][3]string{
		{"Fail: <fail>", "FAIL", "<mark>Fail</mark>: &lt;<mark>fail</mark>&gt;"},
		{"größe GRÖSSE", "ö", "gr<mark>ö</mark>ße GR<mark>Ö</mark>SSE"},
		{"<b>", "<b>", "<mark>&lt;b&gt;</mark>"},
		{"nothing", "x", "nothing"},
		{"a\x00b", "\x00", "a<mark>^@</mark>b"},
	} {
		if got := render(c[0], c[1]); got != c[2] {
			t.Errorf("%q in %q: %q, want %q", c[1], c[0], got, c[2])
		}
	}
	l := lineStyle{find: "is red"}.line(client.LogLine{N: 1, Msg: "it \x1b[1mis\x1b[0m red"})
	if !strings.HasSuffix(l.Class, "hit") {
		t.Errorf("a match that colours divide is not shown: %+v", l)
	}
}

func TestLinesUnderstandWorkflowCommands(t *testing.T) {
	for in, want := range map[string]string{
		"::group::tests":              "grp",
		"::endgroup::":                "endgrp",
		"::error file=a.go,line=3::x": "err",
		"::warning::x":                "warn",
		"::nonsense":                  "",
	} {
		if got := (lineStyle{}).line(client.LogLine{N: 1, Msg: in}).Class; got != want {
			t.Errorf("%q: class %q, want %q", in, got, want)
		}
	}
	if got := (lineStyle{}).line(client.LogLine{N: 1, Level: "kici", Msg: "::group::x"}).Class; got != "kici" {
		t.Errorf("a notice of kici's own has class %q", got)
	}
}

func TestAMegabyteInALineIsCut(t *testing.T) {
	for _, unit := range []string{"x", "ü", "<", "\x1b[31m", "\u202e", "\x00"} {
		l := lineStyle{}.line(client.LogLine{N: 7, Msg: strings.Repeat(unit, 1<<20/len(unit))})
		if len(l.HTML) > 12*maxShown || l.Cut < 1<<20-maxShown-8 {
			t.Errorf("%q: %d bytes of HTML, %d cut", unit, len(l.HTML), l.Cut)
		}
	}
}

func TestLineTimes(t *testing.T) {
	l := client.LogLine{N: 3, TS: 1_700_000_061_234}
	for want, s := range map[string]lineStyle{
		"61.23": {start: 1_700_000_000_000}, "22:14:21.234": {absolute: true, start: 1}, "": {}, "0.00": {start: 1_800_000_000_000},
	} {
		if got := s.line(l).At; got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	if a, b := (lineStyle{step: 2}).line(l).ID, (lineStyle{step: 2, all: true}).line(l).ID; a != "L3" || b != "L2.3" {
		t.Errorf("anchors %s and %s", a, b)
	}
}

func TestGroupsFold(t *testing.T) {
	var lines []logLine
	for i, msg := range []string{"a", "::group::one", "b", "::endgroup::", "::group::bad", "::error::c", "::endgroup::", "d", "::group::first", "::group::second", "e"} {
		lines = append(lines, lineStyle{}.line(client.LogLine{N: int64(i + 1), Msg: msg}))
	}
	got := items(lines, 0)
	if len(got) != 6 {
		t.Fatalf("%d items: %+v", len(got), got)
	}
	for i, want := range []struct {
		fold, open, ended bool
		inside            string
	}{
		{false, false, false, "0 lines"},
		{true, false, true, "1 line"},
		{true, true, true, "1 line"},
		{false, false, false, "0 lines"},
		{true, false, true, "0 lines"},
		{true, true, false, "1 line"},
	} {
		if g := got[i]; g.Fold != want.fold || g.Open != want.open || g.Ended != want.ended || g.inside() != want.inside {
			t.Errorf("item %d: fold %v open %v ended %v %s, want %+v", i, g.Fold, g.Open, g.Ended, g.inside(), want)
		}
	}
	if !items(lines, 3)[1].Open {
		t.Error("the group of the linked line is shut")
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add("\x1b[31mred\x1b]8;;http://x\x07<b>", "RED")
	f.Add("a\u202eb\x00", "\x00")
	f.Fuzz(func(t *testing.T, s, find string) {
		html := lineStyle{find: find}.line(client.LogLine{N: 1, Msg: s}).HTML
		for _, r := range html {
			if obeyed(r) {
				t.Fatalf("%q became %q: it has %U", s, html, r)
			}
		}
		rest := html
		for {
			_, after, ok := strings.Cut(rest, "<")
			if !ok {
				return
			}
			ours := false
			for _, tag := range []string{"span class=\"term-", "/span>", "mark>", "/mark>"} {
				ours = ours || strings.HasPrefix(after, tag)
			}
			if !ours {
				t.Fatalf("%q became %q: a tag that is neither a colour nor a mark", s, html)
			}
			rest = after
		}
	})
}
