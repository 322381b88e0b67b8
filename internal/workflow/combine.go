package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// cell is one combination.
type cell []Value

func (c cell) get(name string) (json.RawMessage, bool) {
	for _, v := range c {
		if v.Name == name {
			return v.Value, true
		}
	}
	return nil, false
}

// label is the values as texts: linux, 1.26.
func (c cell) label() string {
	parts := make([]string, len(c))
	for i, v := range c {
		parts[i] = oneLine(expr.Text(v.Value))
	}
	return strings.Join(parts, ", ")
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func (c cell) object() json.RawMessage {
	m := make(map[string]json.RawMessage, len(c))
	for _, v := range c {
		m[v.Name] = v.Value
	}
	b, err := json.Marshal(m)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// combine makes the combinations of a matrix without expressions: all of its dimensions, less the excluded, and then the
// included, as GitHub does: an include joins every combination whose dimensions it does not contradict, else it is a new one.
func combine(m *lock.Matrix) ([]cell, error) {
	const (
		most        = 10_000 // before excludes
		mostEntries = 500    // of include and of exclude
	)
	if len(m.Include) > mostEntries || len(m.Exclude) > mostEntries {
		return nil, fmt.Errorf("the matrix has more than %d entries in include or exclude", mostEntries)
	}
	m = canonical(m)
	total := 1
	for _, name := range m.Order {
		n := len(m.Dimensions[name])
		if n > 0 && total > most/n {
			return nil, fmt.Errorf("the matrix has more than %d combinations, at most %d are allowed", most, lock.MaxMatrixCells)
		}
		total *= n
	}
	var cells []cell
	if len(m.Order) > 0 {
		cells = product(m, total)
	}
	cells = slices.DeleteFunc(cells, func(c cell) bool {
		return slices.ContainsFunc(m.Exclude, func(e map[string]json.RawMessage) bool { return c.covers(e) })
	})
	if n := len(cells); n > lock.MaxMatrixCells {
		return nil, fmt.Errorf("the matrix has %d combinations, at most %d are allowed", n, lock.MaxMatrixCells)
	}
	cells = include(cells, m)
	switch n := len(cells); {
	case n == 0:
		return nil, errors.New("the matrix has no combination")
	case n > lock.MaxMatrixCells:
		return nil, fmt.Errorf("the matrix has %d combinations, at most %d are allowed", n, lock.MaxMatrixCells)
	}
	return cells, nil
}

// product is every combination of the dimensions, the last one varying fastest.
func product(m *lock.Matrix, total int) []cell {
	cells := make([]cell, 0, total)
	for i := range total {
		c := make(cell, len(m.Order))
		rest := i
		for k := len(m.Order) - 1; k >= 0; k-- {
			name := m.Order[k]
			values := m.Dimensions[name]
			c[k] = Value{name, values[rest%len(values)]}
			rest /= len(values)
		}
		cells = append(cells, c)
	}
	return cells
}

// covers reports whether the combination has every value of e.
func (c cell) covers(e map[string]json.RawMessage) bool {
	if len(e) == 0 {
		return false
	}
	for name, want := range e {
		if got, ok := c.get(name); !ok || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

func include(cells []cell, m *lock.Matrix) []cell {
	base := len(cells)
	for _, e := range m.Include {
		if len(e) == 0 {
			continue
		}
		names := orderedNames(e, m.Order)
		joined := false
		for i := range base {
			if !cells[i].contradicts(e, m.Order) {
				joined = true
				cells[i] = cells[i].with(e, names)
			}
		}
		if !joined {
			cells = append(cells, cell{}.with(e, names))
		}
	}
	return cells
}

// contradicts reports whether e has another value for one of the original dimensions.
func (c cell) contradicts(e map[string]json.RawMessage, dimensions []string) bool {
	for _, name := range dimensions {
		want, has := e[name]
		if got, ok := c.get(name); has && ok && !bytes.Equal(got, want) {
			return true
		}
	}
	return false
}

// with is the combination with the values of e added. Values that an earlier include added are replaced; those of the original
// dimensions are equal, or e would contradict.
func (c cell) with(e map[string]json.RawMessage, names []string) cell {
	out := slices.Clone(c)
	for _, name := range names {
		if i := slices.IndexFunc(out, func(v Value) bool { return v.Name == name }); i >= 0 {
			out[i].Value = e[name]
			continue
		}
		out = append(out, Value{name, e[name]})
	}
	return out
}

// orderedNames are the names of e: those of dimensions in their order, then the others by name.
func orderedNames(e map[string]json.RawMessage, order []string) []string {
	var names []string
	for _, name := range order {
		if _, ok := e[name]; ok {
			names = append(names, name)
		}
	}
	for _, name := range sortedKeys(e) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// canonical writes every value in one way, so that equal values have equal bytes.
func canonical(m *lock.Matrix) *lock.Matrix {
	one := func(b json.RawMessage) json.RawMessage {
		var v any
		if json.Unmarshal(b, &v) != nil {
			return b
		}
		out, err := json.Marshal(v)
		if err != nil {
			return b
		}
		return out
	}
	entries := func(list []map[string]json.RawMessage) []map[string]json.RawMessage {
		out := make([]map[string]json.RawMessage, len(list))
		for i, e := range list {
			out[i] = make(map[string]json.RawMessage, len(e))
			for k, b := range e {
				out[i][k] = one(b)
			}
		}
		return out
	}
	out := &lock.Matrix{
		Order: m.Order, Include: entries(m.Include), Exclude: entries(m.Exclude),
		Dimensions: make(map[string][]json.RawMessage, len(m.Dimensions)),
	}
	for name, values := range m.Dimensions {
		list := make([]json.RawMessage, len(values))
		for i, b := range values {
			list[i] = one(b)
		}
		out.Dimensions[name] = list
	}
	return out
}
