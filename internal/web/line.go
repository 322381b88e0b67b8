package web

import (
	"fmt"
	"strings"

	"github.com/buildkite/terminal-to-html/v3"

	"github.com/kici-go/kici/client"
)

// logLine is one line of a log, ready to be shown.
type logLine struct {
	ID    string // anchor: L<step>.<n>
	N     int64
	At    string // seconds since the step's first shown line began
	Class string // kici, grp, endgrp, err, warn
	HTML  string
}

// renderLine makes a stored line of a step that started at start (UTC ms) showable.
func renderLine(step int, l client.LogLine, start int64) logLine {
	out := logLine{ID: fmt.Sprintf("L%d.%d", step, l.N), N: l.N}
	if start > 0 {
		out.At = fmt.Sprintf("%.2f", float64(max(0, l.TS-start))/1000)
	}
	msg := l.Msg
	if l.Level == "kici" {
		out.Class = "kici"
	}
	if cmd, rest, ok := command(msg); ok {
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
	out.HTML = ansi(msg)
	return out
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

// ansi renders colours and text styles as spans and everything else as text. All other terminal sequences (cursor moves, titles,
// links, images) are dropped first: a log is text, and may load nothing.
func ansi(s string) string {
	return terminal.Render([]byte(text2(onlyColours(s))))
}

// text2 is text, but keeps the escape that begins a colour.
func text2(s string) string {
	if !strings.ContainsRune(s, '\x1b') {
		return text(s)
	}
	parts := strings.Split(s, "\x1b")
	for i := range parts {
		parts[i] = text(parts[i])
	}
	return strings.Join(parts, "\x1b")
}

// onlyColours keeps SGR sequences (ESC [ … m) and drops every other escape sequence, and what a carriage return overwrites.
func onlyColours(s string) string {
	s = strings.TrimRight(s, "\r")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	if !strings.ContainsRune(s, '\x1b') {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		i := strings.IndexByte(s, '\x1b')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		seq, keep := escape(s[i:])
		if keep {
			b.WriteString(seq)
		}
		s = s[i+len(seq):]
	}
	return b.String()
}

// escape measures the sequence at the start of s (which begins with ESC) and says whether it only sets colours.
func escape(s string) (seq string, keep bool) {
	if len(s) < 2 {
		return s, false
	}
	switch s[1] {
	case '[': // CSI: parameters, then one final byte
		for i := 2; i < len(s); i++ {
			if c := s[i]; c >= 0x40 && c <= 0x7e {
				return s[:i+1], c == 'm' && strings.Trim(s[2:i], "0123456789;:") == ""
			} else if c < 0x20 || c > 0x3f {
				return s[:i], false
			}
		}
		return s, false
	case ']', 'P', '_', '^', 'X': // OSC, DCS, APC, PM, SOS: to BEL or ST
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return s[:i+1], false
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return s[:i+2], false
			}
		}
		return s, false
	}
	return s[:2], false
}
