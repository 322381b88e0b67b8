package console

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Clean makes text that came from a repository, a job or a server safe to print (CLI-8): terminal control sequences,
// control characters (tab and newline stay) and characters that reorder text are removed, invalid UTF-8 is replaced.
func Clean(s string) string {
	if plain(s) {
		return s
	}
	s = ansi.Strip(strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || reorders(r) {
			return -1
		}
		return r
	}, s)
}

// CleanLine is Clean for text that must stay on one line.
func CleanLine(s string) string {
	s = Clean(s)
	if !strings.ContainsAny(s, "\n\t") {
		return s
	}
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(s)
}

// plain reports whether nothing has to be done.
func plain(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < 0x20 && b != '\n' && b != '\t' || b >= 0x7f {
			return b >= 0x7f && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
				return r != '\n' && r != '\t' && (unicode.IsControl(r) || reorders(r))
			}) < 0
		}
	}
	return true
}

// reorders reports whether r changes the direction of text, which can make a line show something else than it says.
func reorders(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}
