package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// dynamic reports whether some value of a matrix is known only when the run is created.
func dynamic(m *lock.Matrix) bool {
	if m.Expression != "" || m.IncludeExpression != "" || m.ExcludeExpression != "" {
		return true
	}
	has := func(b json.RawMessage) bool { return bytes.Contains(b, []byte("${{")) }
	entry := func(e map[string]json.RawMessage) bool {
		for _, b := range e {
			if has(b) {
				return true
			}
		}
		return false
	}
	for _, values := range m.Dimensions {
		if slices.ContainsFunc(values, has) {
			return true
		}
	}
	return slices.ContainsFunc(m.Include, entry) || slices.ContainsFunc(m.Exclude, entry)
}

// evaluateMatrix replaces the expressions of a matrix by their values.
func evaluateMatrix(m *lock.Matrix, in ExpandContext) (*lock.Matrix, error) {
	e := matrixEvaluator{expr.Env{Contexts: in.Contexts}}
	if m.Expression != "" {
		v, err := expr.Eval(m.Expression, e.env)
		if err != nil {
			return nil, fmt.Errorf("matrix: %w", err)
		}
		return matrixOf(v)
	}
	out := &lock.Matrix{Order: m.Order, Dimensions: make(map[string][]json.RawMessage, len(m.Order))}
	for _, name := range m.Order {
		values, err := e.dimension(m.Dimensions[name])
		if err != nil {
			return nil, fmt.Errorf("matrix.%s: %w", name, err)
		}
		out.Dimensions[name] = values
	}
	var err error
	if out.Include, err = e.entries(m.Include, m.IncludeExpression); err != nil {
		return nil, fmt.Errorf("matrix.include: %w", err)
	}
	if out.Exclude, err = e.entries(m.Exclude, m.ExcludeExpression); err != nil {
		return nil, fmt.Errorf("matrix.exclude: %w", err)
	}
	return out, nil
}

// matrixOf reads the value of a whole-matrix expression: a map of lists with include and exclude, or a list.
func matrixOf(v any) (*lock.Matrix, error) {
	out := &lock.Matrix{Dimensions: map[string][]json.RawMessage{}}
	if list, ok := v.([]any); ok {
		v = map[string]any{"value": list}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the expression must give an object or a list, got %s", printed(v))
	}
	for _, name := range sortedKeys(object) {
		list, ok := object[name].([]any)
		if !ok {
			return nil, fmt.Errorf("%s must be a list, got %s", name, printed(object[name]))
		}
		var err error
		switch {
		case name == "include":
			out.Include, err = entriesOf(list)
		case name == "exclude":
			out.Exclude, err = entriesOf(list)
		case !validID(name):
			err = fmt.Errorf("%q cannot be the name of a matrix dimension", short(name))
		default:
			out.Order = append(out.Order, name)
			out.Dimensions[name], err = rawList(list)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func rawList(list []any) ([]json.RawMessage, error) {
	const most = 10_000
	if len(list) > most {
		return nil, fmt.Errorf("a list has more than %d values", most)
	}
	out := make([]json.RawMessage, len(list))
	for i, v := range list {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		out[i] = b
	}
	return out, nil
}

func entriesOf(list []any) ([]map[string]json.RawMessage, error) {
	var out []map[string]json.RawMessage
	for _, v := range list {
		object, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("an entry must be an object, got %s", printed(v))
		}
		entry := make(map[string]json.RawMessage, len(object))
		for k, v := range object {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			entry[k] = b
		}
		if len(entry) > 0 {
			out = append(out, entry)
		}
	}
	return out, nil
}

type matrixEvaluator struct{ env expr.Env }

func (e matrixEvaluator) dimension(values []json.RawMessage) ([]json.RawMessage, error) {
	if len(values) == 1 {
		v, err := e.value(values[0])
		if err != nil {
			return nil, err
		}
		if list, ok := v.([]any); ok && !bytes.HasPrefix(values[0], []byte("[")) {
			return rawList(list)
		}
		return rawList([]any{v})
	}
	out := make([]any, len(values))
	for i, b := range values {
		var err error
		if out[i], err = e.value(b); err != nil {
			return nil, err
		}
	}
	return rawList(out)
}

func (e matrixEvaluator) entries(static []map[string]json.RawMessage, expression string) ([]map[string]json.RawMessage, error) {
	var out []map[string]json.RawMessage
	for _, entry := range static {
		done := maps.Clone(entry)
		for k, b := range entry {
			v, err := e.value(b)
			if err != nil {
				return nil, err
			}
			if done[k], err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		out = append(out, done)
	}
	if expression == "" {
		return out, nil
	}
	v, err := expr.Eval(expression, e.env)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("the expression must give a list of objects")
	}
	more, err := entriesOf(list)
	return append(out, more...), err
}

// value decodes a value and evaluates the expressions in its texts.
func (e matrixEvaluator) value(b json.RawMessage) (any, error) {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return e.inside(v)
}

func (e matrixEvaluator) inside(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		if _, whole := expr.Bare(v); whole {
			return expr.Eval(v, e.env)
		}
		return expr.Interpolate(v, e.env)
	case []any:
		for i := range v {
			if v[i], err = e.inside(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if v[k], err = e.inside(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
