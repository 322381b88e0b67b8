package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// Load makes the lock of a commit from the entries of its .kici directory, by precedence: a committed lock file, checked for
// drift, else the YAML files. The lock is not nil exactly when the result is OK.
func Load(files []Source) (*lock.File, Result, []Problem) {
	picked := pick(files)
	switch {
	case HasErrors(picked.problems):
		return nil, Corrupt, picked.problems
	case picked.lock == nil && len(picked.yaml) == 0:
		return nil, Missing, picked.problems
	case picked.lock == nil:
		f, problems := Compile(files)
		if f == nil {
			return nil, Corrupt, problems
		}
		return f, OK, problems
	}
	f, problems := ParseLock(picked.lock.Data)
	if f == nil {
		return nil, Corrupt, problems
	}
	if p, drifted := drift(f, picked.yaml); drifted {
		return nil, Drift, []Problem{p}
	}
	return f, OK, append(problems, picked.problems...)
}

// drift compares a committed lock with the committed sources (D7). A lock that another program made has no YAML beside it
// and nothing to compare with.
func drift(f *lock.File, yaml []Source) (Problem, bool) {
	made := len(yaml) > 0
	for _, w := range f.Workflows {
		made = made || isYAML(w.SourceFile)
	}
	if !made || f.ContentHash == contentHash(yaml) {
		return Problem{}, false
	}
	return Problem{
		File:    LockPath,
		Message: "the committed lock file was not made from the committed workflow files",
		Cure:    "run kici compile and commit the result, or delete " + LockPath,
	}, true
}

// ParseLock reads a lock file. Without errors the lock can be used as it is: names, edges, patterns and sizes have been checked
// (LOCK-2, LOCK-3). Unknown fields are ignored.
func ParseLock(data []byte) (*lock.File, []Problem) {
	fail := func(message, cure string) (*lock.File, []Problem) {
		return nil, []Problem{{File: LockPath, Message: message, Cure: cure}}
	}
	if len(data) > lock.MaxBytes {
		return fail(fmt.Sprintf("the lock file is larger than %d bytes", lock.MaxBytes), "")
	}
	if p, ok := checkFormat(data); !ok {
		return nil, []Problem{p}
	}
	var f lock.File
	if err := json.Unmarshal(data, &f); err != nil {
		p := jsonProblem(data, err)
		return nil, []Problem{p}
	}
	problems := limit(verify(&f))
	if HasErrors(problems) {
		return nil, problems
	}
	return &f, problems
}

// checkFormat tells whose move it is: the author's or the operator's (XC-22).
func checkFormat(data []byte) (Problem, bool) {
	var head struct {
		Format        *string          `json:"format"`
		SchemaVersion *json.RawMessage `json:"schemaVersion"`
	}
	p := Problem{File: LockPath, Line: 1, Col: 1}
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return jsonProblem(data, err), false
	case head.Format != nil && *head.Format == lock.Format:
		return p, true
	case head.Format == nil && head.SchemaVersion != nil:
		p.Message = fmt.Sprintf("this is a lock file of another program (schemaVersion %s); this one reads format %q", short(string(*head.SchemaVersion)), lock.Format)
		p.Cure = "describe the workflows in " + FilesDir + "/*.yaml and delete it, or run kici compile"
	case head.Format == nil:
		p.Message, p.Cure = "the lock file has no format", "run kici compile"
	case strings.HasPrefix(*head.Format, "kici/"):
		p.Message = fmt.Sprintf("the lock file has format %q; this kici reads %q", short(*head.Format), lock.Format)
		p.Cure = "the operator upgrades kici, or the author runs this version's kici compile"
	default:
		p.Message = fmt.Sprintf("unknown lock file format %q", short(*head.Format))
		p.Cure = "run kici compile"
	}
	return p, false
}

func jsonProblem(data []byte, err error) Problem {
	p := Problem{File: LockPath, Line: 1, Col: 1, Message: "the lock file is not valid JSON: " + err.Error(), Cure: "run kici compile"}
	off := int64(-1)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		off = syntax.Offset
	case errors.As(err, &kind):
		off = kind.Offset
		p.Message = fmt.Sprintf("%s must be %s, got %s", kind.Field, kind.Type, kind.Value)
	}
	if off > 0 && off <= int64(len(data)) {
		before := string(data[:off])
		p.Line = 1 + strings.Count(before, "\n")
		p.Col = len(before) - strings.LastIndexByte(before, '\n') - 1
	}
	p.Col = max(1, p.Col)
	return p
}
