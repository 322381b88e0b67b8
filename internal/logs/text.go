package logs

import (
	"strings"
	"unicode"
)

// Visible is the text of a line as a terminal leaves it: without escape sequences and without what a carriage return overwrote.
func Visible(msg string) string { return withoutEscapes(LastWritten(msg)) }

// LastWritten cuts what a carriage return overwrote: of "10%\r100%" it leaves "100%".
func LastWritten(s string) string {
	s = strings.TrimRight(s, "\r")
	return s[strings.LastIndexByte(s, '\r')+1:]
}

func withoutEscapes(s string) string {
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
		seq, _ := Escape(s)
		s = s[len(seq):]
	}
}

// Escape measures the terminal sequence at the start of s, which begins with ESC, and says whether it only sets colours and text
// styles (SGR: ESC [ … m). The sequence has at least one byte.
func Escape(s string) (seq string, colours bool) {
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
	case '\x1b':
		return s[:1], false
	}
	if s[1] >= 0x80 {
		return s[:1], false // not half a letter
	}
	return s[:2], false
}

// Fold makes texts that differ only in case equal. No letter outside ASCII becomes one of ASCII, so that a search can look for
// ASCII bytes first.
func Fold(s string) string { return strings.Map(fold, s) }

func fold(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r < 0x80:
		return r
	}
	if l := unicode.ToLower(r); l >= 0x80 {
		return l
	}
	return r
}
