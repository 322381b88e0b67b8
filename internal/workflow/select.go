package workflow

import (
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Select evaluates runs-on when a job becomes ready (D8) and returns normalised labels. An element that is one whole ${{ }} and
// gives a list stands for all of its texts.
func Select(s lock.Selector, env expr.Env) (labels, exclude []string, err error) {
	if labels, err = evalLabels(s.Labels, env); err != nil {
		return nil, nil, fmt.Errorf("runs-on: %w", err)
	}
	if exclude, err = evalLabels(s.Exclude, env); err != nil {
		return nil, nil, fmt.Errorf("runs-on.exclude: %w", err)
	}
	if len(labels) == 0 {
		return nil, nil, fmt.Errorf("runs-on gives no label")
	}
	if ci.HasAny(labels, exclude) {
		return nil, nil, fmt.Errorf("runs-on requires and excludes the same label: %v and %v", labels, exclude)
	}
	return labels, exclude, nil
}

func evalLabels(elements []string, env expr.Env) ([]string, error) {
	var out []string
	for _, e := range elements {
		if !expr.HasExpr(e) {
			out = append(out, e)
			continue
		}
		got, err := evalLabel(e, env)
		if err != nil {
			return nil, err
		}
		for _, l := range got {
			if err = checkLabel(l); err != nil {
				return nil, err
			}
		}
		out = append(out, got...)
	}
	return ci.NormalizeLabels(out), nil
}

func evalLabel(e string, env expr.Env) ([]string, error) {
	if _, whole := expr.Bare(e); !whole {
		s, err := expr.Interpolate(e, env)
		return []string{s}, err
	}
	v, err := expr.Eval(e, env)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []string
	for _, item := range list {
		out = append(out, expr.Text(item))
	}
	return out, nil
}
