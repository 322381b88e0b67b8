package workflow

import (
	"encoding/json"
	"slices"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

var strategyKeys = keys{name: "strategy", known: []string{"matrix", "fail-fast", "max-parallel"}}

func (d *decoder) strategy(v value, j *lock.Job) {
	d.object(v, strategyKeys, func(key string, v value) {
		switch key {
		case "matrix":
			j.Matrix = d.matrix(v)
		case "fail-fast":
			j.FailFast, _ = d.boolean(v)
		case "max-parallel":
			j.MaxParallel, _ = d.integer(v, 1, lock.MaxMatrixCells)
		}
	})
}

// matrix reads a map of lists, one list (dimension "value", WF-6), or a whole expression.
func (d *decoder) matrix(v value) *lock.Matrix {
	m := &lock.Matrix{}
	before := d.errors
	switch v.n.Kind {
	case scalarKind:
		s, _ := d.text(v)
		if _, whole := expr.Bare(s); !whole {
			d.wrong(v, "a map of lists, or one ${{ }}")
			return nil
		}
		m.Expression = d.condition(v, scopeRun)
		return m
	case sequenceKind:
		m.Dimensions = map[string][]json.RawMessage{}
		d.dimension(v, "value", m)
	default:
		m.Dimensions = map[string][]json.RawMessage{}
		d.object(v, keys{name: "matrix"}, func(key string, v value) {
			switch {
			case key == "include":
				m.Include, m.IncludeExpression = d.combinations(v)
			case key == "exclude":
				m.Exclude, m.ExcludeExpression = d.combinations(v)
			case !validID(key):
				d.errorf(v, idCure, "%q cannot be the name of a matrix dimension", short(key))
			default:
				d.dimension(v, key, m)
			}
		})
	}
	d.checkMatrix(v, m, d.errors == before)
	return m
}

// dimension reads the values of one dimension. A value that is an expression is kept as its source and evaluated with the
// others when the run is created; one that stands for the whole list must be alone.
func (d *decoder) dimension(v value, name string, m *lock.Matrix) {
	var out []json.RawMessage
	add := func(v value) {
		d.inner(v)
		if b, ok := d.raw(v); ok {
			out = append(out, b)
		}
	}
	_, whole := expr.Bare(v.n.Value)
	if v.n.Kind == scalarKind && !whole {
		d.errorf(v, "write ["+short(v.n.Value)+"]", "matrix dimension %q must be a list", name)
		return
	}
	d.list(v, true, func(_ int, v value) { add(v) })
	if v.n.Kind == sequenceKind && len(v.n.Content) == 0 {
		d.errorf(v, "remove it, or list values", "matrix dimension %q is empty", name)
	}
	m.Dimensions[name] = out
	m.Order = append(m.Order, name)
}

// inner checks the expressions in a value of the matrix, however deep.
func (d *decoder) inner(v value) {
	if v.n.Kind == scalarKind {
		d.expression(v, v.n.Value, scopeRun)
		return
	}
	for i, c := range v.n.Content {
		d.inner(newValue(c, &place{up: v.at, index: i}))
	}
}

// combinations reads include or exclude: a list of maps, or one expression for all of it.
func (d *decoder) combinations(v value) (out []map[string]json.RawMessage, expression string) {
	if _, whole := expr.Bare(v.n.Value); whole && v.n.Kind == scalarKind {
		return nil, d.condition(v, scopeRun)
	}
	d.list(v, false, func(_ int, v value) {
		entry := map[string]json.RawMessage{}
		d.inner(v)
		if d.object(v, keys{name: v.last()}, func(key string, v value) {
			if !validID(key) {
				d.errorf(v, idCure, "%q cannot be the name of a matrix dimension", short(key))
				return
			}
			if b, ok := d.raw(v); ok {
				entry[key] = b
			}
		}) && len(entry) > 0 { // an empty entry does nothing (WF-6)
			out = append(out, entry)
		}
	})
	return out, ""
}

// checkMatrix counts the combinations and looks for excludes that can never match.
func (d *decoder) checkMatrix(v value, m *lock.Matrix, good bool) {
	for _, e := range m.Exclude {
		for _, k := range sortedKeys(e) {
			if !slices.Contains(m.Order, k) {
				d.errorf(v, cureFor(k, m.Order, ""), "matrix excludes by %q, which is not one of its dimensions", k)
			}
		}
	}
	if dynamic(m) || !good {
		return
	}
	if _, err := combine(m); err != nil {
		d.errorf(v, "use fewer values, or exclude some", "%s", err)
	}
}
