package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

type tokenKind uint8

const (
	tokEnd tokenKind = iota + 1
	tokIdent
	tokNumber
	tokString
	tokOp // punctuation and operators; text says which
)

type token struct {
	kind tokenKind
	text string // identifier, operator, or the string's value
	num  float64
	off  int
}

// lexer cuts an expression into tokens, one at a time.
type lexer struct {
	src  string
	pos  int
	prev tokenKind // of the last token, to tell a sign or a dot from an operator
	last string
}

func (l *lexer) fail(off int, cure, format string, args ...any) *Error {
	return &Error{Off: off, Msg: fmt.Sprintf(format, args...), Cure: cure}
}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.src) && isSpace(l.src[l.pos]) {
		l.pos++
	}
	t, err := l.scan()
	l.prev, l.last = t.kind, t.text
	return t, err
}

func (l *lexer) scan() (token, error) {
	off := l.pos
	if off >= len(l.src) {
		return token{kind: tokEnd, off: off}, nil
	}
	c := l.src[off]
	switch {
	case isIdentStart(c):
		for l.pos < len(l.src) && isIdentPart(l.src[l.pos]) {
			l.pos++
		}
		return token{kind: tokIdent, text: l.src[off:l.pos], off: off}, nil
	case c == '\'':
		return l.str()
	case c >= '0' && c <= '9', (c == '-' || c == '+' || c == '.') && !l.afterValue():
		return l.number()
	}
	if off+1 < len(l.src) {
		switch two := l.src[off : off+2]; two {
		case "==", "!=", "<=", ">=", "&&", "||":
			l.pos += 2
			return token{kind: tokOp, text: two, off: off}, nil
		}
	}
	if strings.IndexByte("()[].,*!<>", c) >= 0 {
		l.pos++
		return token{kind: tokOp, text: l.src[off:l.pos], off: off}, nil
	}
	return token{}, l.unexpected(off, c)
}

// unexpected explains the usual slips of people who think in another language.
func (l *lexer) unexpected(off int, c byte) error {
	switch c {
	case '"':
		return l.fail(off, "write 'text'", "strings stand in single quotes")
	case '=':
		return l.fail(off, "write ==", "single = is not an operator")
	case '&', '|':
		return l.fail(off, "write "+strings.Repeat(string(c), 2), "single %c is not an operator", c)
	case '+', '-', '/', '%':
		return l.fail(off, "compute it in a step", "expressions have no arithmetic")
	case '$', '{', '}':
		return l.fail(off, "write the expression without ${{ }} inside", "unexpected %q", string(c))
	}
	r := []rune(l.src[off:min(len(l.src), off+4)])
	return l.fail(off, "", "unexpected %q", string(r[:1]))
}

// afterValue reports whether the last token ended a value, so that a dot is an access and a sign is arithmetic.
func (l *lexer) afterValue() bool {
	switch l.prev {
	case tokIdent, tokNumber, tokString:
		return true
	case tokOp:
		return l.last == ")" || l.last == "]" || l.last == "*"
	}
	return false
}

func (l *lexer) str() (token, error) {
	off := l.pos
	var b strings.Builder
	for i := off + 1; i < len(l.src); i++ {
		if l.src[i] != '\'' {
			b.WriteByte(l.src[i])
			continue
		}
		if i+1 < len(l.src) && l.src[i+1] == '\'' {
			b.WriteByte('\'')
			i++
			continue
		}
		l.pos = i + 1
		return token{kind: tokString, text: b.String(), off: off}, nil
	}
	return token{}, l.fail(off, "end it with '", "string has no end")
}

func (l *lexer) number() (token, error) {
	off := l.pos
	for l.pos++; l.pos < len(l.src); l.pos++ {
		c, before := l.src[l.pos], l.src[l.pos-1]
		exponentSign := (c == '-' || c == '+') && (before == 'e' || before == 'E')
		if c != '.' && !exponentSign && (c == '-' || !isIdentPart(c)) {
			break
		}
	}
	text := l.src[off:l.pos]
	n := parseNumber(text)
	if math.IsNaN(n) {
		return token{}, l.fail(off, "", "%q is not a number", text)
	}
	return token{kind: tokNumber, num: n, text: text, off: off}, nil
}

// parseNumber reads a number as expressions and loose comparison do: decimal, 0x hexadecimal, 0o octal, Infinity; the
// empty string is 0 and anything else is NaN, longer texts among it.
func parseNumber(s string) float64 {
	const longest = 400
	if len(s) > longest {
		return math.NaN()
	}
	s = strings.TrimSpace(s)
	switch s {
	case "":
		return 0
	case "Infinity", "+Infinity":
		return math.Inf(1)
	case "-Infinity":
		return math.Inf(-1)
	}
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'o') {
		base := 16
		if s[1] == 'o' {
			base = 8
		}
		n, err := strconv.ParseUint(s[2:], base, 32)
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && strings.IndexByte("+-.eE", c) < 0 {
			return math.NaN()
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN()
	}
	return f
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isIdentStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isIdentPart(c byte) bool { return isIdentStart(c) || c == '-' || c >= '0' && c <= '9' }
