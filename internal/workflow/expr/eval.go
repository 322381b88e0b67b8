package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

var errBudget = errors.New("expression needs too much work")

// evaluator walks a tree with a budget of work shared by everything that one call evaluates.
type evaluator struct {
	env     Env
	budget  int
	decoded map[*byte]any // JSON of contexts that was reached already, by its first byte
}

func newEvaluator(env Env) *evaluator { return &evaluator{env: env, budget: maxBudget} }

// Eval evaluates one expression, bare or as a whole ${{ }}, and returns nil, bool, float64, string, []any or
// map[string]any.
func Eval(src string, env Env) (any, error) {
	body, at := strip(src)
	v, err := newEvaluator(env).source(body)
	return v, shift(err, at)
}

// source parses and evaluates a bare expression.
func (e *evaluator) source(src string) (any, error) {
	n, err := parse(src)
	if err != nil {
		return nil, err
	}
	v, err := e.eval(n)
	if err != nil {
		return nil, err
	}
	if f, ok := v.(filtered); ok {
		v = []any(f)
	}
	return v, nil
}

func (e *evaluator) charge(n int) error {
	if e.budget -= n; e.budget < 0 {
		return errBudget
	}
	return nil
}

// norm is norm with its cost charged; JSON of a context is decoded once.
func (e *evaluator) norm(v any) (any, error) {
	raw, ok := v.(json.RawMessage)
	if !ok || len(raw) == 0 {
		return norm(v)
	}
	if got, ok := e.decoded[&raw[0]]; ok {
		return got, nil
	}
	if err := e.charge(len(raw)); err != nil {
		return nil, err
	}
	got, err := decode(raw)
	if e.decoded == nil {
		e.decoded = map[*byte]any{}
	}
	e.decoded[&raw[0]] = got
	return got, err
}

// eval wraps what goes wrong in an Error that points at the node.
func (e *evaluator) eval(n *node) (any, error) {
	err := e.charge(1)
	var v any
	if err == nil {
		v, err = e.node(n)
	}
	if err == nil {
		return v, nil
	}
	var located *Error
	if errors.As(err, &located) {
		return nil, err
	}
	return nil, &Error{Off: n.off, Msg: err.Error()}
}

func (e *evaluator) node(n *node) (any, error) {
	switch n.kind {
	case nodeLiteral:
		return n.value, nil
	case nodeContext:
		return e.context(n.name)
	case nodeAnd, nodeOr:
		return e.logic(n)
	case nodeNot:
		v, err := e.eval(n.args[0])
		return !Truthy(v), err
	case nodeCall:
		return e.call(n)
	}
	args := make([]any, len(n.args))
	for i, a := range n.args {
		var err error
		if args[i], err = e.eval(a); err != nil {
			return nil, err
		}
	}
	switch n.kind {
	case nodeIndex:
		return e.index(args[0], args[1])
	case nodeStar:
		return e.star(args[0])
	}
	return e.compare(n.name, args[0], args[1])
}

func (e *evaluator) context(name string) (any, error) {
	v, ok := e.env.Contexts[name]
	if !ok && name == "github" {
		v, ok = e.env.Contexts["kici"]
	}
	switch {
	case ok:
		return e.norm(v)
	case name == "matrix" || name == "needs" || name == "inputs":
		return nil, nil // a job without them
	}
	return nil, fmt.Errorf("context %q is not available here", name)
}

// logic is && and ||: the deciding operand itself is the value.
func (e *evaluator) logic(n *node) (v any, err error) {
	for _, a := range n.args {
		if v, err = e.eval(a); err != nil {
			return nil, err
		}
		if Truthy(v) == (n.kind == nodeOr) {
			break
		}
	}
	return v, nil
}

func (e *evaluator) compare(op string, a, b any) (any, error) {
	if err := e.charge(size(a) + size(b)); err != nil {
		return nil, err
	}
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	}
	return compare(op, a, b), nil
}

func size(v any) int {
	s, _ := v.(string)
	return len(s)
}

// index is a[b] and a.b. What is not there is null.
func (e *evaluator) index(of, at any) (any, error) {
	if f, ok := of.(filtered); ok {
		out := filtered{}
		for _, item := range f {
			v, found, err := e.item(item, at)
			if err != nil {
				return nil, err
			}
			if found {
				out = append(out, v)
			}
		}
		return out, nil
	}
	v, _, err := e.item(of, at)
	return v, err
}

func (e *evaluator) item(of, at any) (v any, found bool, err error) {
	if err = e.charge(1); err != nil {
		return nil, false, err
	}
	if of, err = e.norm(of); err != nil {
		return nil, false, err
	}
	switch of := of.(type) {
	case map[string]any:
		if !isPrimitive(at) {
			return nil, false, nil
		}
		key := Text(at)
		if _, exact := of[key]; !exact {
			if err = e.charge(len(of)); err != nil {
				return nil, false, err
			}
		}
		v, found = lookup(of, key)
	case []any:
		i := math.Floor(toNumber(at))
		if at != nil && i >= 0 && i < float64(len(of)) {
			v, found = of[int(i)], true
		}
	}
	if found {
		v, err = e.norm(v)
	}
	return v, found, err
}

// star is a.*: the items of a list, or the values of an object in the order of their keys.
func (e *evaluator) star(of any) (any, error) {
	out := filtered{}
	add := func(v any) error {
		v, err := e.norm(v)
		if err != nil {
			return err
		}
		before := len(out)
		switch v := v.(type) {
		case []any:
			out = append(out, v...)
		case map[string]any:
			for _, k := range sortedKeys(v) {
				out = append(out, v[k])
			}
		}
		return e.charge(1 + len(out) - before)
	}
	items, ok := of.(filtered)
	if !ok {
		items = filtered{of}
	}
	for _, item := range items {
		if err := add(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}
