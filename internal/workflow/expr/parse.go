package expr

import (
	"fmt"
	"strings"
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
