package expr

import (
	"errors"
	"fmt"
	"strings"
)

const (
	opening = "${{"
	closing = "}}"
)

// HasExpr reports whether a text contains ${{.
func HasExpr(text string) bool { return strings.Contains(text, opening) }

// Interpolate replaces every ${{ expression }} of a text by its value.
func Interpolate(text string, env Env) (string, error) {
	if !HasExpr(text) {
		return text, nil
	}
	e := newEvaluator(env)
	b := builder{e: e}
	err := split(text, func(off int, literal bool, part string) error {
		if literal {
			return b.add(part)
		}
		v, err := e.source(part)
		if err != nil {
			return shift(err, off)
		}
		return b.add(Text(v))
	})
	if err != nil {
		return "", err
	}
	return b.String(), nil
}

// Condition answers an if: of a step: a condition that uses no status function holds only while everything before
// succeeded, and an empty one is success().
func Condition(src string, env Env) (bool, error) {
	if !UsesStatus(src) && !(&evaluator{env: env}).status("success") {
		return false, nil
	}
	return Test(src, env)
}

// Test answers a condition as it stands, without Condition's implied success(). An empty one holds. It is meant for jobs,
// whose edges have already decided.
func Test(src string, env Env) (bool, error) {
	if strings.TrimSpace(src) == "" {
		return true, nil
	}
	v, err := Eval(src, env)
	return Truthy(v), err
}

// UsesStatus reports whether an expression, bare or as a whole ${{ }}, calls success, failure, cancelled or always.
func UsesStatus(src string) bool {
	body, _ := strip(src)
	n, err := parse(body)
	if err != nil {
		return false
	}
	uses := false
	n.walk(func(n *node) { uses = uses || n.kind == nodeCall && isStatus(n.name) })
	return uses
}

// Bare returns the expression of a text that is one whole ${{ }}; ok is false for any other text.
func Bare(text string) (src string, ok bool) {
	t := strings.TrimSpace(text)
	if !strings.HasPrefix(t, opening) {
		return "", false
	}
	end, err := find(t, 0)
	if err != nil || end+len(closing) != len(t) {
		return "", false
	}
	return strings.TrimSpace(t[len(opening):end]), true
}

// strip takes ${{ }} off a text that is wholly inside one; at is the offset of the rest.
func strip(src string) (body string, at int) {
	body, ok := Bare(src)
	if !ok {
		return src, 0
	}
	return body, strings.Index(src, body)
}

// split calls f for the literal parts of a text and for the expressions in it, with their offsets.
func split(text string, f func(off int, literal bool, part string) error) error {
	pos := 0
	for {
		i := strings.Index(text[pos:], opening)
		if i < 0 {
			return f(pos, true, text[pos:])
		}
		if err := f(pos, true, text[pos:pos+i]); err != nil {
			return err
		}
		pos += i
		end, err := find(text, pos)
		if err != nil {
			return err
		}
		start := pos + len(opening)
		if err = f(start, false, text[start:end]); err != nil {
			return err
		}
		pos = end + len(closing)
	}
}

// find returns the offset of the }} that ends the ${{ at off; one inside a 'string' does not count.
func find(text string, off int) (int, error) {
	quoted := false
	for i := off + len(opening); i < len(text); i++ {
		switch {
		case i-off > MaxLength:
			return 0, &Error{Off: off, Msg: fmt.Sprintf("expression is longer than %d bytes", MaxLength)}
		case text[i] == '\'':
			quoted = !quoted
		case !quoted && strings.HasPrefix(text[i:], closing):
			return i, nil
		}
	}
	return 0, &Error{Off: off, Msg: "${{ has no end", Cure: "close it with }}"}
}

// shift moves the offset of an Error by n.
func shift(err error, n int) error {
	var e *Error
	if n == 0 || !errors.As(err, &e) {
		return err
	}
	moved := *e
	moved.Off += n
	return &moved
}
