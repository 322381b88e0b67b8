package scaler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Problem is one thing wrong with scalers.yaml, with where it stands and what to do.
type Problem struct {
	File      string
	Line, Col int    // 0 when the whole file is meant
	Path      string // scalers[0].labelSets[1].resources.memory
	Message   string
	Cure      string
	Warning   bool // start-up goes on
}

// Error is "file:line:col: path: message (cure)".
func (p Problem) Error() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Col)
	}
	s += ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	s += p.Message
	if p.Cure != "" {
		s += " (" + p.Cure + ")"
	}
	return s
}

// Errors joins the problems that are no mere warnings, nil when there are none.
func Errors(ps []Problem) error {
	var errs []error
	for _, p := range ps {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errors.Join(errs...)
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}
