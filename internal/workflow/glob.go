package workflow

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxGlob bounds one pattern; with it a match costs at most maxGlob × the length of the name.
const maxGlob = 1024

// glob is GitHub's pattern: * is any characters but /, ** any characters, ? makes the character before it optional, + repeats it,
// [a-z] is one of a set, \ takes the next character literally; **/ also matches nothing. A leading ! is the caller's.
type glob []atom

type atom struct {
	kind atomKind
	lit  rune
	set  []span // of atomSet
	not  bool   // of atomSet
	rep  byte   // 0 once, '?' at most once, '+' at least once
}

type atomKind uint8

const (
	atomRune atomKind = iota + 1
	atomSet
	atomStar // any run without /
	atomDeep // any run
	atomDirs // **/: nothing, or any run that ends in /
)

type span struct{ low, high rune }

// checkGlob reports a pattern that cannot be used, with or without its leading !.
func checkGlob(pattern string) error {
	_, err := parseGlob(strings.TrimPrefix(pattern, "!"))
	return err
}

func parseGlob(pattern string) (glob, error) {
	switch {
	case pattern == "":
		return nil, errors.New("it is empty")
	case len(pattern) > maxGlob:
		return nil, fmt.Errorf("it is longer than %d bytes", maxGlob)
	case !utf8.ValidString(pattern):
		return nil, errors.New("it is not UTF-8 text")
	}
	var g glob
	for rest := pattern; rest != ""; {
		var n int
		var err error
		if g, n, err = g.parse(rest); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return g, nil
}

// parse reads what stands at the start of s, and returns its length.
func (g glob) parse(s string) (glob, int, error) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case strings.HasPrefix(s, "**"):
		n := len(s) - len(strings.TrimLeft(s, "*"))
		if g.atDirectory() && strings.HasPrefix(s[n:], "/") {
			return append(g, atom{kind: atomDirs}), n + 1, nil
		}
		return append(g, atom{kind: atomDeep}), n, nil
	case r == '*':
		return append(g, atom{kind: atomStar}), size, nil
	case r == '?' || r == '+':
		if len(g) == 0 || !g[len(g)-1].repeatable() {
			return nil, 0, fmt.Errorf("%c has no character before it to repeat", r)
		}
		g[len(g)-1].rep = byte(r)
		return g, size, nil
	case r == '[':
		a, n, err := parseSet(s)
		return append(g, a), n, err
	case r == '\\' && len(s) == size:
		return nil, 0, errors.New(`it ends in \`)
	case r == '\\':
		lit, n := utf8.DecodeRuneInString(s[size:])
		return append(g, atom{kind: atomRune, lit: lit}), size + n, nil
	}
	return append(g, atom{kind: atomRune, lit: r}), size, nil
}

// atDirectory reports whether the next character begins a directory's name.
func (g glob) atDirectory() bool {
	return len(g) == 0 || g[len(g)-1].kind == atomDirs || g[len(g)-1].isRune('/')
}

func (a atom) isRune(r rune) bool { return a.kind == atomRune && a.lit == r && a.rep == 0 }

func (a atom) repeatable() bool { return a.kind <= atomSet && a.rep == 0 }

// parseSet reads [a-z0-9_] or [!abc] at the start of s and returns its length.
func parseSet(s string) (atom, int, error) {
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return atom{}, 0, errors.New("[ has no ]")
	}
	body := []rune(s[1:end])
	a := atom{kind: atomSet}
	if len(body) > 0 && (body[0] == '!' || body[0] == '^') {
		a.not, body = true, body[1:]
	}
	if len(body) == 0 {
		return atom{}, 0, errors.New("[] is empty")
	}
	for i := 0; i < len(body); i++ {
		sp := span{body[i], body[i]}
		if i+2 < len(body) && body[i+1] == '-' {
			sp.high = body[i+2]
			i += 2
		}
		if sp.low > sp.high {
			return atom{}, 0, fmt.Errorf("range %c-%c is backwards", sp.low, sp.high)
		}
		a.set = append(a.set, sp)
	}
	return a, end + 1, nil
}

func (a atom) matches(r rune) bool {
	switch a.kind {
	case atomRune:
		return r == a.lit
	case atomSet:
		if r == '/' {
			return false
		}
		for _, s := range a.set {
			if r >= s.low && r <= s.high {
				return !a.not
			}
		}
		return a.not
	case atomStar:
		return r != '/'
	}
	return true
}

// match follows all positions that the atoms so far may have reached, so its cost is the product of the two lengths
// whatever the pattern says.
func (g glob) match(name string) bool {
	s := []rune(name)
	at, next := make([]bool, len(s)+1), make([]bool, len(s)+1)
	at[0] = true
	for _, a := range g {
		a.step(s, at, next)
		at, next = next, at
	}
	return at[len(s)]
}

// step sets next to the positions that can be reached from those of at.
func (a atom) step(s []rune, at, next []bool) {
	optional := a.kind == atomStar || a.kind == atomDeep || a.kind == atomDirs || a.rep == '?'
	repeats := a.kind == atomStar || a.kind == atomDeep || a.rep == '+'
	next[0] = at[0] && optional
	reached := at[0] // of atomDirs: some position so far
	for i := 1; i < len(next); i++ {
		next[i] = at[i] && optional
		switch {
		case a.kind == atomDirs:
			next[i] = next[i] || reached && s[i-1] == '/'
		case a.matches(s[i-1]):
			next[i] = next[i] || at[i-1] || repeats && next[i-1]
		}
		reached = reached || at[i]
	}
}

// matchGlob matches one pattern without its !. One that cannot be parsed matches nothing.
func matchGlob(pattern, name string) bool {
	if pattern == name || pattern == "**" {
		return true
	}
	if !strings.ContainsAny(pattern, `*?+[\`) {
		return false
	}
	g, err := parseGlob(pattern)
	return err == nil && g.match(name)
}

// matchOrdered is GitHub's rule for branches and tags: the last pattern that matches decides, and ! excludes. A list that
// begins with an exclusion starts from everything. An empty list passes (WF-13).
func matchOrdered(patterns []string, name string) (ok bool, pattern string) {
	if len(patterns) == 0 {
		return true, ""
	}
	ok = strings.HasPrefix(patterns[0], "!")
	for _, p := range patterns {
		bare, exclude := strings.CutPrefix(p, "!")
		if matchGlob(bare, name) {
			ok, pattern = !exclude, p
		}
	}
	return ok, pattern
}

// matchPaths is WF-14: excluded files are taken away first; if none remain it fails; then any include that matches passes, and
// excludes alone pass.
func matchPaths(patterns, files []string) (ok bool, file string) {
	var includes, excludes []string
	for _, p := range patterns {
		if bare, exclude := strings.CutPrefix(p, "!"); exclude {
			excludes = append(excludes, bare)
		} else {
			includes = append(includes, bare)
		}
	}
	for _, f := range files {
		if anyGlob(excludes, f) {
			continue
		}
		if len(includes) == 0 || anyGlob(includes, f) {
			return true, f
		}
	}
	return false, ""
}

func anyGlob(patterns []string, name string) bool {
	for _, p := range patterns {
		if matchGlob(p, name) {
			return true
		}
	}
	return false
}
