package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/expr"
)

// Bounds of what a job may ask for, so that a shape fits an index.
const (
	maxLabels     = 64
	maxLabelBytes = 256
)

// outcome is what becomes of a job that is ready: it fails, is skipped or is queued with these wishes.
type outcome struct {
	failure         *initFailure
	skip            string // why, '' to queue it
	labels, exclude []string
	claim           ci.Claim
	shape           string
}

// evaluate decides about a ready job: its condition first, because a job that is skipped owes nothing else (D8).
func (f facts) evaluate() outcome {
	env := expr.Env{Contexts: f.contexts(), Status: f.status}
	if f.job.If != "" {
		ok, err := expr.Test(f.job.If, env)
		if err != nil {
			return outcome{failure: &initFailure{initEval, fmt.Sprintf("the condition `if: %s`: %v", clip(f.job.If, 200), err)}}
		}
		if !ok {
			return outcome{skip: fmt.Sprintf("its condition was false: %s", clip(f.job.If, 200))}
		}
	}
	if c := f.job.Container; c != nil {
		return outcome{failure: &initFailure{initContainer, fmt.Sprintf(
			"this job asks for the container image %q, and this version of kici cannot run containers yet; remove container: from the job", clip(c.Image, 200))}}
	}
	var out outcome
	var err error
	if out.labels, err = labelList(f.job.RunsOn.Labels, env); err != nil {
		return outcome{failure: &initFailure{initEval, fmt.Sprintf("runs-on: %v", err)}}
	}
	if out.exclude, err = labelList(f.job.RunsOn.Exclude, env); err != nil {
		return outcome{failure: &initFailure{initEval, fmt.Sprintf("runs-on.exclude: %v", err)}}
	}
	if message := badSelector(f.job.RunsOn.Labels, out); message != "" {
		return outcome{failure: &initFailure{initEval, message}}
	}
	if f.job.Resources != nil {
		out.claim = *f.job.Resources
	}
	out.shape = shapeKey(f.run.OrgID, out)
	return out
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
func badSelector(written []string, o outcome) string {
	switch {
	case len(written) > 0 && len(o.labels) == 0:
		return "runs-on evaluates to no label at all"
	case len(o.labels)+len(o.exclude) > maxLabels:
		return fmt.Sprintf("runs-on names %d labels; the limit is %d", len(o.labels)+len(o.exclude), maxLabels)
	}
	for _, l := range slices.Concat(o.labels, o.exclude) {
		if len(l) > maxLabelBytes {
			return fmt.Sprintf("the label %q is longer than %d bytes", clip(l, 40), maxLabelBytes)
		}
	}
	for _, l := range o.labels {
		if slices.Contains(o.exclude, l) {
			return fmt.Sprintf("runs-on both requires and excludes the label %q", l)
		}
	}
	return ""
}

// shapeKey names all jobs that ask for the same thing (D30). It is a digest, so that it fits an index whatever authors write.
func shapeKey(org string, o outcome) string {
	text, _ := json.Marshal([]any{org, o.labels, o.exclude, o.claim}) // strings and numbers always encode
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
