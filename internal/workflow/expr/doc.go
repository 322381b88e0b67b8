// Package expr is the ${{ }} expression language of workflow files: GitHub Actions' grammar and semantics (loose
// equality, case-insensitive comparison, && and || that return an operand, missing properties that are null, .* filters).
// It is pure and bounded: the length, depth, work and output of an expression all have limits, so that a hostile file
// costs an error and not the process.
//
// Three callers use it: workflow checks expressions when a file is compiled (Check, CheckText), run creation and the
// scheduler evaluate those of jobs, and the agent those of steps (Interpolate, Eval, Condition).
package expr

import "fmt"

// Limits. An expression that reaches one is an error that names it.
const (
	MaxLength = 21_000   // bytes of one expression
	MaxDepth  = 100      // nested operators, calls and properties
	MaxOutput = 1 << 20  // bytes of a string that an expression or an interpolated text makes
	maxBudget = 16 << 20 // units of work of one Eval or Interpolate: a node costs 1, a string its bytes, a list its items
)

// Env is what an expression sees.
type Env struct {
	// Contexts are the values by name: kici, matrix, needs, steps, env, inputs, secrets, job, runner. "github" means
	// "kici" unless it is here itself. Values are anything that encodes as JSON; map[string]any, map[string]string,
	// []any, strings, numbers, bools and json.RawMessage are used without a detour.
	Contexts map[string]any
	// Status answers the status functions: "" and "success" make success() true, "failure" failure(), "cancelled"
	// cancelled(); any other word, such as "skipped", none of them. always() is always true.
	Status string
	// HashFiles answers hashFiles(); nil makes it an error.
	HashFiles func(patterns []string) (string, error)
}

// Error is a mistake in an expression, or a failure while evaluating it.
type Error struct {
	Off  int    // byte offset in the text that was given, of where the mistake stands
	Msg  string // one sentence, lower case
	Cure string // what to write instead; may be ""
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("column %d: %s", e.Off+1, e.Msg)
	if e.Cure != "" {
		s += " (" + e.Cure + ")"
	}
	return s
}
