package web

import (
	"fmt"
	"html"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/buildkite/terminal-to-html/v3"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/logs"
)

// maxShown is how many bytes of one line a page shows; the rest is a link away. An agent splits lines at 16 KiB, so that 1,000 of
// them would be a page of 16 MB.
const maxShown = 4 << 10

// logLine is one line of a log, ready to be shown.
type logLine struct {
	ID    string // anchor: L<n>, or L<step>.<n> where several steps are shown
	Step  int
	N     int64
	At    string // seconds since the step began, or the time of day
	Class string // kici, grp, endgrp, err, warn; hit when the searched text is in it
	HTML  string
	Cut   int // bytes that are not shown
}

// lineStyle is how the lines of one step are shown.
type lineStyle struct {
	step     int
	start    int64 // UTC ms; 0 = not known
	all      bool  // several steps are shown: anchors name the step
	absolute bool  // time of day instead of seconds since start
	find     string
}

// line makes a stored line showable.
func (s lineStyle) line(l client.LogLine) logLine {
	out := logLine{ID: fmt.Sprintf("L%d", l.N), Step: s.step, N: l.N, At: s.at(l.TS)}
	if s.all {
		out.ID = fmt.Sprintf("L%d.%d", s.step, l.N)
	}
	msg := l.Msg
	if l.Level == "kici" {
		out.Class = "kici"
	} else if cmd, rest, ok := command(msg); ok {
		switch cmd {
		case "group":
			out.Class, msg = "grp", rest
		case "endgroup":
			out.Class, msg = "endgrp", ""
		case "error":
			out.Class, msg = "err", rest
		case "warning", "notice":
			out.Class, msg = "warn", rest
		}
	}
	if s.find != "" && strings.Contains(logs.Fold(logs.Visible(l.Msg)), logs.Fold(s.find)) {
		out.Class += " hit"
	}
	if len(msg) > maxShown {
		keep := maxShown
		for keep > 0 && !utf8.RuneStart(msg[keep]) {
			keep--
		}
		out.Cut, msg = len(msg)-keep, msg[:keep]
	}
	out.HTML = render(msg, s.find)
	return out
}

// at is the time of a line: relative to its step's start, or absolute in UTC.
func (s lineStyle) at(ts int64) string {
	switch {
	case s.absolute:
		return time.UnixMilli(ts).UTC().Format("15:04:05.000")
	case s.start > 0:
		return fmt.Sprintf("%.2f", float64(max(0, ts-s.start))/1000)
	}
	return ""
}

// command reads a workflow command: "::group::name", "::error file=a.go,line=3::text".
func command(msg string) (cmd, rest string, ok bool) {
	s, ok := strings.CutPrefix(msg, "::")
	if !ok {
		return "", "", false
	}
	head, rest, ok := strings.Cut(s, "::")
	if !ok {
		return "", "", false
	}
	cmd, _, _ = strings.Cut(head, " ")
	return cmd, rest, true
}

// render makes HTML of a line: colours and text styles become spans, a searched text is marked, everything else is text. All other
// terminal sequences (cursor moves, titles, links, images) are dropped first: a log is text, and may load nothing.
func render(msg, find string) string {
	s := onlyColours(logs.LastWritten(msg))
	if strings.IndexByte(s, '\x1b') < 0 {
		return marked(visible(s), visible(find))
	}
	parts := strings.Split(s, "\x1b")
	for i := range parts {
		parts[i] = visible(parts[i])
	}
	return terminal.Render([]byte(strings.Join(parts, "\x1b")))
}

// marked escapes a text and puts <mark> around what was looked for, where case does not change lengths.
func marked(s, find string) string {
	low, what := logs.Fold(s), logs.Fold(find)
	if what == "" || len(low) != len(s) {
		return html.EscapeString(s)
	}
	var b strings.Builder
	for {
		i := strings.Index(low, what)
		if i < 0 {
			b.WriteString(html.EscapeString(s))
			return b.String()
		}
		end := i + len(what)
		b.WriteString(html.EscapeString(s[:i]) + "<mark>" + html.EscapeString(s[i:end]) + "</mark>")
		s, low = s[end:], low[end:]
	}
}

// visible shows what a terminal or a browser would not show but obey: control characters with a caret, marks that turn the
// direction of writing or break lines by their numbers.
func visible(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r < 0x80:
			b.WriteByte('^')
			b.WriteRune(r ^ 0x40) // as terminals write them: ^@ is NUL, ^G the bell, ^? delete
		default:
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		}
	}
	return b.String()
}

func obeyed(r rune) bool {
	return r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || isBidi(r) || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == utf8.RuneError ||
		r >= 0xe0000 && r <= 0xe007f
}

// onlyColours keeps SGR sequences (ESC [ … m) and drops every other escape sequence.
func onlyColours(s string) string {
	if strings.IndexByte(s, '\x1b') < 0 {
		return s
	}
	var b strings.Builder
	for {
		before, _, found := strings.Cut(s, "\x1b")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = s[len(before):]
		seq, keep := logs.Escape(s)
		if keep {
			b.WriteString(seq)
		}
		s = s[len(seq):]
	}
}

// logItem is a line, or a group of lines under a heading.
type logItem struct {
	logLine
	Group []logLine
	Fold  bool // it is a group
	Ended bool // its last line is here
	Open  bool // it shows its lines
}

// items folds the groups among lines. A group that is complete is shut, unless it holds an error, a line that was searched for, or
// the line to show (0 = none).
func items(lines []logLine, show int64) (out []logItem) {
	group := -1
	for _, l := range lines {
		switch class, _, _ := strings.Cut(l.Class, " "); {
		case class == "grp":
			if group >= 0 {
				out[group].Ended = true
			}
			group = len(out)
			out = append(out, logItem{logLine: l, Fold: true})
		case group < 0:
			out = append(out, logItem{logLine: l})
		default:
			g := &out[group]
			g.Group = append(g.Group, l)
			g.Open = g.Open || class == "err" || l.N == show || strings.HasSuffix(l.Class, "hit")
			if class == "endgrp" {
				g.Ended, group = true, -1
			}
		}
	}
	for i := range out {
		out[i].Open = out[i].Open || out[i].Fold && !out[i].Ended
	}
	return out
}

// inside is how many lines a group's heading says that it holds.
func (i logItem) inside() string {
	n := len(i.Group)
	if n > 0 && strings.HasPrefix(i.Group[n-1].Class, "endgrp") {
		n--
	}
	return count(n, "line", "lines")
}
