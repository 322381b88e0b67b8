package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/suggest"
)

// Scope is what the expressions of a field may use (D8).
type Scope struct {
	Phase    string   // when the field is evaluated, for messages: "when the run is created"
	Contexts []string // "github" stands for "kici"
	Status   bool     // success(), failure(), cancelled(), always()
	Files    bool     // hashFiles()
}

// Ref is a use of a context with its first property, where that is a plain name: needs.build, steps['a'].
type Ref struct {
	Context string // lower case; "kici" also for "github"
	Name    string // "" when there is none, or when it is computed
	Off     int    // of Name, else of the context
}

// Check parses one expression, bare or as a whole ${{ }}, and returns every mistake: one of syntax, or all uses of what
// the scope does not offer.
func Check(src string, scope Scope) []*Error {
	body, at := strip(src)
	return checkBody(nil, body, at, scope)
}

// CheckText is Check for every ${{ }} of a text.
func CheckText(text string, scope Scope) []*Error {
	if !HasExpr(text) {
		return nil
	}
	var found []*Error
	err := split(text, func(off int, literal bool, part string) error {
		if !literal {
			found = checkBody(found, part, off, scope)
		}
		return nil
	})
	return appendError(found, err, 0)
}

// Refs lists the uses of contexts in a text with ${{ }}, or, if bare, in one expression. Broken expressions have none.
func Refs(text string, bare bool) []Ref {
	var refs []Ref
	add := func(off int, src string) {
		n, err := parse(src)
		if err != nil {
			return
		}
		for _, r := range n.refs() {
			r.Off += off
			refs = append(refs, r)
		}
	}
	if bare {
		body, at := strip(text)
		add(at, body)
		return refs
	}
	if HasExpr(text) {
		_ = split(text, func(off int, literal bool, part string) error {
			if !literal {
				add(off, part)
			}
			return nil
		})
	}
	return refs
}

func appendError(to []*Error, err error, off int) []*Error {
	var e *Error
	if errors.As(shift(err, off), &e) {
		return append(to, e)
	}
	return to
}

func checkBody(found []*Error, src string, off int, scope Scope) []*Error {
	n, err := parse(src)
	if err != nil {
		return appendError(found, err, off)
	}
	n.walk(func(n *node) {
		if e := scope.check(n); e != nil {
			e.Off += off
			found = append(found, e)
		}
	})
	return found
}

func (s Scope) check(n *node) *Error {
	switch {
	case n.kind == nodeCall && isStatus(n.name) && !s.Status:
		return &Error{Off: n.off, Msg: n.name + "() can be used only in if:"}
	case n.kind == nodeCall && n.name == "hashFiles" && !s.Files:
		return &Error{Off: n.off, Msg: "hashFiles() can be used only in steps, where the files are"}
	case n.kind != nodeContext || slices.Contains(s.Contexts, canonical(n.name)):
		return nil
	}
	return &Error{Off: n.off, Msg: s.refusal(n.name), Cure: s.cure(n.name)}
}

func canonical(context string) string {
	if context == "github" {
		return "kici"
	}
	return context
}

// contexts are all that exist somewhere; notOurs are GitHub's that kici does not have.
var (
	contexts = []string{"kici", "matrix", "needs", "steps", "env", "inputs", "secrets", "job", "runner", "github"}
	notOurs  = []string{"vars", "strategy", "jobs"}
)

func (s Scope) refusal(name string) string {
	switch {
	case slices.Contains(contexts, name):
		return fmt.Sprintf("context %q is not available here: this is evaluated %s", name, s.Phase)
	case slices.Contains(notOurs, name):
		return fmt.Sprintf("kici has no context %q", name)
	}
	return fmt.Sprintf("unknown context %q", name)
}

func (s Scope) cure(name string) string {
	here := "available: " + strings.Join(s.Contexts, ", ")
	if len(s.Contexts) == 0 {
		here = "no context is available"
	}
	if slices.Contains(contexts, name) || slices.Contains(notOurs, name) {
		return here
	}
	if near := suggest.Nearest(name, s.Contexts); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return here + "; text stands in 'single quotes'"
}

// walk visits the tree in the order of the source, operators after their operands.
func (n *node) walk(f func(*node)) {
	for _, a := range n.args {
		a.walk(f)
	}
	f(n)
}

func (n *node) refs() []Ref {
	var out []Ref
	var visit func(n *node)
	visit = func(n *node) {
		switch {
		case n.kind == nodeContext:
			out = append(out, Ref{Context: canonical(n.name), Off: n.off})
			return
		case n.kind == nodeIndex && n.args[0].kind == nodeContext && n.args[1].kind == nodeLiteral:
			if name, ok := n.args[1].value.(string); ok {
				out = append(out, Ref{Context: canonical(n.args[0].name), Name: name, Off: n.args[1].off})
				return
			}
		}
		for _, a := range n.args {
			visit(a)
		}
	}
	visit(n)
	return out
}
