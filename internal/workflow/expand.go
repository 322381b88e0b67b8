package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// ExpandContext is what a matrix and a job's name may use when the run is created (D8).
type ExpandContext struct {
	Contexts map[string]any // kici, inputs
}

// Child is one job to create: a job without matrix has one, without values.
type Child struct {
	Name        string          // unique among the children: "test" or "test (linux, 1.26)" (WF-7)
	DisplayName string          // the evaluated name:, "" when the job has none
	Values      []Value         // in the order of the matrix
	Matrix      json.RawMessage // the values as one JSON object, the matrix context; nil without matrix
	Index       int             // from 0
	Total       int
}

// Value is one named value of a combination.
type Value struct {
	Name  string
	Value json.RawMessage
}

// ErrMatrix is wrapped by every error of Expand; it is the init failure matrix_expansion of that job only (WF-6).
var ErrMatrix = errors.New("matrix_expansion")

// maxChildName bounds a child's name; longer combinations are cut and numbered.
const maxChildName = 200

// Expand makes the children of a job, in the order of its matrix.
func Expand(j *lock.Job, in ExpandContext) ([]Child, error) {
	if j.Matrix == nil {
		return []Child{{Name: j.Name, DisplayName: displayName(j, in, nil, ""), Total: 1}}, nil
	}
	m := j.Matrix
	if dynamic(m) {
		var err error
		if m, err = evaluateMatrix(m, in); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMatrix, err)
		}
	}
	cells, err := combine(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMatrix, err)
	}
	children := make([]Child, len(cells))
	taken := make(map[string]bool, len(cells))
	for i, c := range cells {
		label := c.label()
		name := j.Name + " (" + label + ")"
		if len(name) > maxChildName {
			name = strings.ToValidUTF8(name[:maxChildName], "") + "…"
			taken[name] = true // always numbered
		}
		if taken[name] {
			name += " #" + strconv.Itoa(i+1)
		}
		taken[name] = true
		matrix := c.object()
		children[i] = Child{
			Name: name, DisplayName: displayName(j, in, matrix, label), Values: c, Matrix: matrix, Index: i, Total: len(cells),
		}
	}
	return children, nil
}

func displayName(j *lock.Job, in ExpandContext, matrix json.RawMessage, label string) string {
	switch {
	case j.DisplayName == "":
		return ""
	case !expr.HasExpr(j.DisplayName) && label != "":
		return cut(j.DisplayName + " (" + label + ")")
	}
	env := expr.Env{Contexts: map[string]any{"kici": in.Contexts["kici"], "inputs": in.Contexts["inputs"], "matrix": matrix}}
	s, err := expr.Interpolate(j.DisplayName, env)
	if err != nil {
		return "" // the job's own name is shown
	}
	return cut(strings.Join(strings.Fields(s), " "))
}
