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
		"cursor moves":   {"a\x1b[2Jb\x1b[10;10Hc", "abc"},
		"title":          {"a\x1b]0;evil\x07b", "ab"},
		"link":           {"\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\", "x"},
		"buildkite link": {"\x1b]1339;url=javascript:alert(1);content=x\x07y", "y"},
		"image":          {"\x1b]1338;url=http://e/x.png\x07y", "y"},
		"unfinished":     {"a\x1b]0;never ends", "a"},
		"lone escape":    {"a\x1b", "a"},
		"overwritten":    {"10%\r50%\r100%", "100%"},
		"crlf":           {"done\r", "done"},
		"right to left":  {"user\u202etxt.exe", "user\u25aftxt.exe"},
		"nul and bell":   {"a\x00\x07b", "ab"},
	} {
		if got := ansi(c.in); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestRenderLineUnderstandsWorkflowCommands(t *testing.T) {
	for in, want := range map[string]string{
		"::group::tests":              "grp",
		"::endgroup::":                "endgrp",
		"::error file=a.go,line=3::x": "err",
		"::warning::x":                "warn",
		"::nonsense":                  "",
	} {
		if got := renderLine(1, client.LogLine{N: 1, Msg: in}, 0).Class; got != want {
			t.Errorf("%q: class %q, want %q", in, got, want)
		}
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add("\x1b[31mred\x1b]8;;http://x\x07<b>")
	f.Fuzz(func(t *testing.T, s string) {
		html := ansi(s)
		rest := html
		for {
			_, after, ok := strings.Cut(rest, "<")
			if !ok {
				return
			}
			if !strings.HasPrefix(after, "span class=\"term-") && !strings.HasPrefix(after, "/span>") {
				t.Fatalf("%q became %q: a tag that is not a colour", s, html)
			}
			rest = after
		}
	})
}
