// Package workflow turns what an author wrote into what the orchestrator runs: it compiles .kici/workflows/*.yaml into a
// lock file, reads a committed lock, decides whether an event starts a workflow, expands matrices and resolves typed inputs.
//
// Everything here is pure: bytes and values in, values out. No clock, no files, no network, no goroutines. Whatever an
// outsider can make large is bounded, and every mistake in a file is reported at once, each with line, column and cure.
package workflow

import (
	"fmt"
	"strings"
)

// Where workflow files stand in a repository.
const (
	Dir      = ".kici"
	FilesDir = ".kici/workflows"
	LockPath = ".kici/kici.lock.json"
)

// MaxFileBytes bounds one YAML file.
const MaxFileBytes = 1 << 20

// maxProblems bounds a report; a file with more mistakes says so at its end.
const maxProblems = 200

// Source is one entry of a repository's .kici directory as git has it.
type Source struct {
	Path string // from the repository's root: .kici/workflows/ci.yaml
	Mode string // git's mode: 100644, 100755, 120000 (symbolic link), 160000 (submodule); "" is a plain file
	Data []byte
}

// Problem is one mistake, or with Warning one thing to know, in one file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1; 0 means the file as a whole
	Col     int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"` // jobs.build.steps[2].run
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"` // what to write instead
	Warning bool   `json:"warning,omitempty"`
}

// Error is file:line:col: message (cure).
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	if p.Cure != "" {
		b.WriteString(" (" + p.Cure + ")")
	}
	return b.String()
}

// HasErrors reports whether some problem is more than a warning.
func HasErrors(problems []Problem) bool {
	for _, p := range problems {
		if !p.Warning {
			return true
		}
	}
	return false
}

// Result is what was found where a lock file, or workflow files to make one of, should be (LOCK-3, LOCK-4).
type Result uint8

// The results. Missing, corrupt and unreachable are three different things; unreachable is the fetcher's to report.
const (
	Missing Result = iota + 1 // neither a lock file nor workflow files
	OK
	Corrupt // something is there and cannot be used; the problems say why
	Drift   // the committed lock was not made from the committed workflow files (D7)
)

// String implements fmt.Stringer.
func (r Result) String() string {
	switch r {
	case Missing:
		return "missing"
	case OK:
		return "ok"
	case Corrupt:
		return "corrupt"
	case Drift:
		return "drift"
	}
	return "invalid"
}
