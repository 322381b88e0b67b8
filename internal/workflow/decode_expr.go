package workflow

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/workflow/expr"
)

// expression checks a text with ${{ }} against what its field may use, and remembers which names it uses.
func (d *decoder) expression(v value, s string, scope expr.Scope) {
	if !expr.HasExpr(s) {
		return
	}
	if errs := expr.CheckText(s, scope); len(errs) > 0 {
		d.report(v, errs)
		return
	}
	d.remember(v, expr.Refs(s, false))
}

// condition reads an if: or another field that is one expression, with or without ${{ }}, and returns it bare.
func (d *decoder) condition(v value, scope expr.Scope) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	bare, whole := expr.Bare(s)
	if !whole && expr.HasExpr(s) {
		d.errorf(v, "put the whole condition into one ${{ }}, or use none",
			"%s mixes text and ${{ }}, which would always be true", v.last())
		return ""
	}
	if !whole {
		bare = strings.TrimSpace(s)
	}
	if bare == "" {
		d.errorf(v, "remove it", "%s is empty", v.last())
		return ""
	}
	if errs := expr.Check(s, scope); len(errs) > 0 {
		d.report(v, errs)
		return bare
	}
	d.remember(v, expr.Refs(s, true))
	return bare
}

func (d *decoder) report(v value, errs []*expr.Error) {
	for _, e := range errs {
		d.addAt(v, e.Off, Problem{Message: e.Msg, Cure: e.Cure})
	}
}

func (d *decoder) remember(v value, refs []expr.Ref) {
	for _, r := range refs {
		if r.Name != "" {
			d.refs = append(d.refs, use{r, v})
		}
	}
}

// addAt adds a problem at an offset in a scalar's value.
func (d *decoder) addAt(v value, off int, p Problem) {
	p.Line, p.Col = d.locate(v.n, off)
	d.put(v, p)
}

// locate turns an offset in a scalar's value into a place in the file. Where the file writes the value otherwise (folded
// over lines, with escapes), it is the place of the value.
func (d *decoder) locate(n *yaml.Node, off int) (line, col int) {
	if d.lines == nil {
		d.lines = strings.Split(string(d.data), "\n")
	}
	off = min(off, len(n.Value))
	start := strings.LastIndexByte(n.Value[:off], '\n') + 1
	text, _, _ := strings.Cut(n.Value[start:], "\n")
	first, from := n.Line-1, max(0, n.Column-1)
	if n.Style&yaml.LiteralStyle != 0 {
		first, from = n.Line+strings.Count(n.Value[:start], "\n"), 0
	}
	const near = 20 // lines that a value may be folded over
	for i := first; i < min(len(d.lines), first+near) && text != ""; i++ {
		raw := d.lines[i]
		if i > first || from > len(raw) {
			from = 0
		}
		if k := strings.Index(raw[from:], text); k >= 0 {
			return i + 1, 1 + utf8.RuneCountInString(raw[:from+k]) + utf8.RuneCountInString(n.Value[start:off])
		}
	}
	return n.Line, n.Column
}
