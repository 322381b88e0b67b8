package expr

import (
	"fmt"
	"math"
	"strings"

	"github.com/kici-go/kici/internal/workflow/suggest"
)

func (p *parser) postfix() (*node, error) {
	n, err := p.primary()
	for err == nil {
		switch {
		case p.is("."):
			n, err = p.property(n)
		case p.is("["):
			n, err = p.index(n)
		default:
			return n, nil
		}
	}
	return nil, err
}

func (p *parser) property(of *node) (*node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	t := p.tok
	var n node
	switch {
	case p.is("*"):
		n = node{kind: nodeStar, args: []*node{of}, off: t.off}
	case t.kind == tokIdent:
		n = node{kind: nodeIndex, args: []*node{of, {kind: nodeLiteral, value: t.text, off: t.off, depth: 1}}, off: t.off}
	default:
		return nil, p.unexpected("a property name or *")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.make(n)
}

func (p *parser) index(of *node) (*node, error) {
	off := p.tok.off
	if err := p.advance(); err != nil {
		return nil, err
	}
	n := node{kind: nodeIndex, args: []*node{of}, off: off}
	if p.is("*") {
		n.kind = nodeStar
		if err := p.advance(); err != nil {
			return nil, err
		}
	} else {
		at, err := p.or()
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, at)
	}
	if !p.is("]") {
		return nil, p.unexpected("]")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.make(n)
}

func (p *parser) primary() (*node, error) {
	t := p.tok
	switch {
	case t.kind == tokNumber, t.kind == tokString:
		n := &node{kind: nodeLiteral, value: t.text, off: t.off, depth: 1}
		if t.kind == tokNumber {
			n.value = t.num
		}
		return n, p.advance()
	case t.kind == tokIdent:
		return p.name(t)
	case p.is("("):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.unexpected(")")
		}
		return n, p.advance()
	}
	return nil, p.unexpected("a value")
}

// name reads what starts with an identifier: a literal word, a call or a context.
func (p *parser) name(t token) (*node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.is("(") {
		return p.call(t)
	}
	lit := node{kind: nodeLiteral, off: t.off, depth: 1}
	switch t.text {
	case "null":
	case "true", "false":
		lit.value = t.text == "true"
	case "NaN":
		lit.value = math.NaN()
	case "Infinity":
		lit.value = math.Inf(1)
	default:
		return &node{kind: nodeContext, name: strings.ToLower(t.text), off: t.off, depth: 1}, nil
	}
	return &lit, nil
}

func (p *parser) call(t token) (*node, error) {
	name := ""
	for _, f := range functions {
		if strings.EqualFold(f, t.text) {
			name = f
		}
	}
	if name == "" {
		return nil, &Error{Off: t.off, Msg: fmt.Sprintf("unknown function %q", t.text), Cure: suggest.Cure(t.text, functions)}
	}
	n := node{kind: nodeCall, name: name, off: t.off}
	if err := p.advance(); err != nil {
		return nil, err
	}
	for !p.is(")") {
		if len(n.args) > 0 {
			if !p.is(",") {
				return nil, p.unexpected(", or )")
			}
			if err := p.advance(); err != nil {
				return nil, err
			}
		}
		arg, err := p.or()
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, arg)
	}
	if err := checkArity(&n); err != nil {
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.make(n)
}

func checkArity(n *node) error {
	low, high := arity(n.name)
	if len(n.args) >= low && len(n.args) <= high {
		return nil
	}
	want := fmt.Sprint(low)
	switch {
	case high == 255:
		want = fmt.Sprintf("at least %d", low)
	case high > low:
		want = fmt.Sprintf("%d or %d", low, high)
	}
	return &Error{Off: n.off, Msg: fmt.Sprintf("%s takes %s arguments, got %d", n.name, want, len(n.args))}
}
