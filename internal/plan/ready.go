package plan

import (
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/expr"
)

// Bounds of what a job may ask for, so that what it asks for fits an index.
const (
	maxLabels     = 64
	maxLabelBytes = 256
)

// Outcome is what becomes of a job that is ready: it fails, is skipped or is queued with these wishes.
type Outcome struct {
	Failure         *Failure
	Skip            string // why, '' to queue it
	Labels, Exclude []string
	Claim           ci.Claim
	Group           *Group // that the job must be let into; nil for none
}

// Evaluate decides about the ready job f.Job: its condition first, because a job that is skipped owes nothing else (D8).
func (f Facts) Evaluate() Outcome {
	env := expr.Env{Contexts: f.Contexts(), Status: f.Status}
	if f.Job.If != "" {
		ok, err := expr.Test(f.Job.If, env)
		if err != nil {
			return failed(InitEval, "the condition `if: %s`: %v", clip(f.Job.If, 200), err)
		}
		if !ok {
			return Outcome{Skip: fmt.Sprintf("its condition was false: %s", clip(f.Job.If, 200))}
		}
	}
	if c := f.Job.Container; c != nil {
		return failed(InitContainer,
			"this job asks for the container image %q, and this version of kici cannot run containers yet; remove container: from the job", clip(c.Image, 200))
	}
	var out Outcome
	var err error
	if out.Labels, err = labelList(f.Job.RunsOn.Labels, env); err != nil {
		return failed(InitEval, "runs-on: %v", err)
	}
	if out.Exclude, err = labelList(f.Job.RunsOn.Exclude, env); err != nil {
		return failed(InitEval, "runs-on.exclude: %v", err)
	}
	if message := badSelector(f.Job.RunsOn.Labels, out); message != "" {
		return failed(InitEval, "%s", message)
	}
	if f.Job.Resources != nil {
		out.Claim = *f.Job.Resources
	}
	if out.Group, out.Failure = f.group(f.Job.Concurrency); out.Failure != nil {
		return Outcome{Failure: out.Failure}
	}
	return out
}

func failed(category, format string, args ...any) Outcome {
	return Outcome{Failure: &Failure{category, fmt.Sprintf(format, args...)}}
}

// labelList evaluates and normalises the elements of a selector. An element that is one whole expression may give a list.
func labelList(elements []string, env expr.Env) ([]string, error) {
	var out []string
	for _, e := range elements {
		src, whole := expr.Bare(e)
		if !whole {
			text, err := expr.Interpolate(e, env)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", clip(e, 200), err)
			}
			out = append(out, text)
			continue
		}
		v, err := expr.Eval(src, env)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip(e, 200), err)
		}
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				out = append(out, expr.Text(item))
			}
		case map[string]any:
			return nil, fmt.Errorf("%q gives an object; labels are words", clip(e, 200))
		default:
			out = append(out, expr.Text(v))
		}
	}
	return ci.NormalizeLabels(out), nil
}

// badSelector says what is wrong with an evaluated selector, "" for nothing.
func badSelector(written []string, o Outcome) string {
	switch {
	case len(written) > 0 && len(o.Labels) == 0:
		return "runs-on evaluates to no label at all"
	case len(o.Labels)+len(o.Exclude) > maxLabels:
		return fmt.Sprintf("runs-on names %d labels; the limit is %d", len(o.Labels)+len(o.Exclude), maxLabels)
	}
	for _, l := range slices.Concat(o.Labels, o.Exclude) {
		if len(l) > maxLabelBytes {
			return fmt.Sprintf("the label %q is longer than %d bytes", clip(l, 40), maxLabelBytes)
		}
	}
	for _, l := range slices.Concat(o.Labels, o.Exclude) {
		if ci.IsLabelPattern(l) {
			if _, err := ci.CompileLabelPattern(l); err != nil {
				return "runs-on: " + err.Error()
			}
		}
	}
	if l := ci.SelectorConflict(o.Labels, o.Exclude); l != "" {
		return fmt.Sprintf("runs-on both requires and excludes the label %q", l)
	}
	return ""
}
