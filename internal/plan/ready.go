package plan

import (
	"fmt"
	"slices"
	"strings"

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
	Image           string // its own, '' for none
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
	if message := f.Sandbox.denied(f.Job.Sandbox); message != "" {
		return failed(InitSandbox, "%s", message)
	}
	var out Outcome
	var err error
	if f.Job.Container != nil {
		if out.Image, err = image(f.Job.Container.Image, env); err != nil {
			return failed(InitEval, "container.image: %v", err)
		}
	}
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

// maxImage bounds a reference to an image.
const maxImage = 512

// image evaluates the reference to a job's own image.
func image(text string, env expr.Env) (string, error) {
	out, err := expr.Interpolate(text, env)
	out = strings.TrimSpace(out)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q: %w", clip(text, 200), err)
	case out == "":
		return "", fmt.Errorf("%q evaluates to nothing", clip(text, 200))
	case len(out) > maxImage:
		return "", fmt.Errorf("%q has %d bytes; the limit is %d", clip(out, 40), len(out), maxImage)
	case strings.ContainsFunc(out, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", fmt.Errorf("%q contains white space", clip(out, 200))
	}
	return out, nil
}

// Login evaluates what f.Job gives for the registry of its image: nothing, or both. Secrets are the organisation's; without them, as for
// a job from a fork, whatever names one is empty.
func (f Facts) Login(secrets map[string]string) (username, password string, err error) {
	if f.Job.Container == nil || f.Job.Container.Credentials == nil {
		return "", "", nil
	}
	c, contexts := f.Job.Container.Credentials, f.Contexts()
	contexts["secrets"] = secrets
	env := expr.Env{Contexts: contexts}
	for text, into := range map[string]*string{c.Username: &username, c.Password: &password} {
		if *into, err = expr.Interpolate(text, env); err != nil {
			return "", "", fmt.Errorf("container.credentials: %q: %w", clip(text, 200), err)
		}
	}
	return username, password, nil
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
