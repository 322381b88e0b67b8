package logs

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/wire"
)

// matcher finds lines that contain a text. Stored lines are JSON, and decoding them all would take ten times as long: only those
// are decoded that have the text's bytes, as they stand there or with their escapes undone.
type matcher struct {
	text  string // folded
	key   []byte // the longest part of text that is ASCII
	lower []byte
	plain []byte
}

func newMatcher(text string) *matcher {
	m := &matcher{text: Fold(text)}
	for part := range strings.FieldsFuncSeq(m.text, func(r rune) bool { return r >= 0x80 }) {
		if len(part) > len(m.key) {
			m.key = []byte(part)
		}
	}
	return m
}

// each calls found with the place of every matching line among lines, until it says to stop.
func (m *matcher) each(lines []byte, found func(from, to int, l wire.LogLine) bool) {
	m.lower = append(m.lower[:0], lines...)
	for i, c := range m.lower {
		if c-'A' < 26 {
			m.lower[i] = c + 'a' - 'A'
		}
	}
	hit, escaped := -1, -1 // the next of each kind; behind the end when there is none
	for at := 0; at < len(lines); {
		if hit < at {
			hit = from(at, len(lines), bytes.Index(m.lower[at:], m.key))
		}
		if escaped < at {
			escaped = from(at, len(lines), bytes.IndexByte(m.lower[at:], '\\'))
		}
		next := min(hit, escaped)
		if next == len(lines) {
			return
		}
		start := at + bytes.LastIndexByte(lines[at:next], '\n') + 1
		end := from(next, len(lines), bytes.IndexByte(lines[next:], '\n')) + 1
		if at = end; hit >= end && !m.maybe(m.lower[start:end]) {
			continue
		}
		if l := decode(lines[start:min(end, len(lines))]); strings.Contains(Fold(Visible(l.Msg)), m.text) && !found(start, end, l) {
			return
		}
	}
}

// from is where something was found behind at, or the end.
func from(at, end, found int) int {
	if found < 0 {
		return end
	}
	return at + found
}

// maybe reports whether a line with escapes, in lower case, may contain the key once they are undone.
func (m *matcher) maybe(line []byte) bool {
	m.plain = m.plain[:0]
	for {
		i := bytes.IndexByte(line, '\\')
		if i < 0 || i+1 == len(line) {
			break
		}
		m.plain = append(m.plain, line[:i]...)
		c := line[i+1]
		line = line[i+2:]
		switch c {
		case 'u':
			n, err := strconv.ParseUint(string(line[:min(4, len(line))]), 16, 16)
			if err != nil || n >= 0x80 || n == '\r' {
				return true
			}
			c, line = byte(n), line[4:] //nolint:gosec // below 0x80
			if c-'A' < 26 {
				c += 'a' - 'A'
			}
		case 'r':
			return true
		case 't':
			c = '\t'
		case 'n':
			c = '\n'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		}
		m.plain = append(m.plain, c)
	}
	m.plain = append(m.plain, line...)
	if bytes.IndexByte(m.plain, 0x1b) < 0 {
		return bytes.Contains(m.plain, m.key)
	}
	return bytes.Contains([]byte(withoutEscapes(string(m.plain))), m.key)
}
