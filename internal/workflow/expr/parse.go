package expr

import (
	"fmt"
	"math"
	"strings"

	"github.com/kici-go/kici/internal/workflow/suggest"
)

type nodeKind uint8

const (
	nodeLiteral nodeKind = iota + 1
	nodeContext          // name
	nodeIndex            // args[0] [ args[1] ]; a property is an index with a literal
	nodeStar             // args[0] .*
	nodeCall             // name(args...)
	nodeNot
	nodeAnd // two or more operands
	nodeOr
	nodeCompare // args[0] name args[1]
)

type node struct {
	kind  nodeKind
	name  string // context, function (as known, not as written), operator
	value any    // of a literal
	args  []*node
	off   int
	depth int
}

// functions are the known names, as they are suggested; arity gives their arguments.
var functions = []string{
	"contains", "startsWith", "endsWith", "format", "join", "toJSON", "fromJSON", "hashFiles",
	"success", "failure", "cancelled", "always",
}

func arity(name string) (low, high int) {
	switch name {
	case "contains", "startsWith", "endsWith":
		return 2, 2
	case "format", "hashFiles":
		return 1, 255
	case "join":
		return 1, 2
	case "toJSON", "fromJSON":
		return 1, 1
	}
	return 0, 0
}

func isStatus(name string) bool {
	return name == "success" || name == "failure" || name == "cancelled" || name == "always"
}

type parser struct {
	lex   lexer
	tok   token
	depth int // open recursions
}

// parse reads one bare expression.
func parse(src string) (*node, error) {
	if len(src) > MaxLength {
		return nil, &Error{Msg: fmt.Sprintf("expression is longer than %d bytes", MaxLength)}
	}
	p := &parser{lex: lexer{src: src}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == tokEnd {
		return nil, &Error{Off: p.tok.off, Msg: "expression is empty"}
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokEnd {
		return nil, p.unexpected("an operator or the end")
	}
	return n, nil
}

func (p *parser) advance() error {
	t, err := p.lex.next()
	p.tok = t
	return err
}

func (p *parser) is(op string) bool { return p.tok.kind == tokOp && p.tok.text == op }

func (p *parser) unexpected(want string) error {
	if p.tok.kind == tokEnd {
		return &Error{Off: p.tok.off, Msg: "expression ends where " + want + " should follow"}
	}
	cure := ""
	switch strings.ToLower(p.tok.text) {
	case "and":
		cure = "write &&"
	case "or":
		cure = "write ||"
	case "not":
		cure = "write !"
	}
	return &Error{Off: p.tok.off, Msg: fmt.Sprintf("unexpected %q, expected %s", p.tok.text, want), Cure: cure}
}

// make builds a node and checks its depth.
func (p *parser) make(n node) (*node, error) {
	for _, a := range n.args {
		n.depth = max(n.depth, a.depth)
	}
	if n.depth++; n.depth > MaxDepth {
		return nil, p.tooDeep(n.off)
	}
	return &n, nil
}

func (p *parser) tooDeep(off int) error {
	return &Error{Off: off, Msg: fmt.Sprintf("expression nests deeper than %d", MaxDepth)}
}

func (p *parser) or() (*node, error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, p.tooDeep(p.tok.off)
	}
	defer func() { p.depth-- }()
	return p.chain(nodeOr, "||", func() (*node, error) { return p.chain(nodeAnd, "&&", p.equality) })
}

// chain reads operands joined by one operator into one node, so that a long chain is not a deep tree.
func (p *parser) chain(kind nodeKind, op string, operand func() (*node, error)) (*node, error) {
	first, err := operand()
	if err != nil || !p.is(op) {
		return first, err
	}
	n := node{kind: kind, name: op, args: []*node{first}, off: first.off}
	for p.is(op) {
		if err = p.advance(); err != nil {
			return nil, err
		}
		next, err := operand()
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, next)
	}
	return p.make(n)
}

func (p *parser) equality() (*node, error) { return p.binary(p.relation, "==", "!=") }

func (p *parser) relation() (*node, error) { return p.binary(p.unary, "<", "<=", ">", ">=") }

func (p *parser) binary(operand func() (*node, error), ops ...string) (*node, error) {
	left, err := operand()
	for err == nil {
		op := ""
		for _, o := range ops {
			if p.is(o) {
				op = o
			}
		}
		if op == "" {
			return left, nil
		}
		off := p.tok.off
		if err = p.advance(); err != nil {
			return nil, err
		}
		var right *node
		if right, err = operand(); err != nil {
			return nil, err
		}
		left, err = p.make(node{kind: nodeCompare, name: op, args: []*node{left, right}, off: off})
	}
	return nil, err
}

func (p *parser) unary() (*node, error) {
	if !p.is("!") {
		return p.postfix()
	}
	off := p.tok.off
	if p.depth++; p.depth > MaxDepth {
		return nil, p.tooDeep(off)
	}
	defer func() { p.depth-- }()
	if err := p.advance(); err != nil {
		return nil, err
	}
	n, err := p.unary()
	if err != nil {
		return nil, err
	}
	return p.make(node{kind: nodeNot, name: "!", args: []*node{n}, off: off})
}

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
