package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// Compile makes a lock of the YAML files among files. With any problem that is not a warning the lock is nil. The same files in any
// order give the same lock.
func Compile(files []Source) (*lock.File, []Problem) {
	picked := pick(files)
	problems := picked.problems
	out := &lock.File{Format: lock.Format, ContentHash: contentHash(picked.yaml), Workflows: []lock.Workflow{}}
	for _, f := range picked.yaml {
		w, found := compileFile(f)
		problems = append(problems, found...)
		out.Workflows = append(out.Workflows, w)
	}
	problems = append(problems, checkNames(out.Workflows)...)
	if !HasErrors(problems) {
		problems = append(problems, checkEncoded(out)...)
	}
	problems = limit(problems)
	if HasErrors(problems) {
		return nil, problems
	}
	return out, problems
}

// Encode is a lock file's bytes: indented JSON with a newline, the same for the same lock.
func Encode(f *lock.File) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		return nil, fmt.Errorf("encode lock: %w", err)
	}
	return b.Bytes(), nil
}

// picked are the sources that count, in order of path.
type picked struct {
	yaml     []Source
	lock     *Source
	problems []Problem
}

const (
	modeLink   = "120000"
	modeModule = "160000"
)

// pick sorts the entries of .kici and refuses those that are not plain files: a symbolic link could make one commit read
// what another, or the machine, holds.
func pick(files []Source) picked {
	var p picked
	sorted := slices.Clone(files)
	slices.SortStableFunc(sorted, func(a, b Source) int { return strings.Compare(a.Path, b.Path) })
	sorted = slices.CompactFunc(sorted, func(a, b Source) bool { return a.Path == b.Path })
	for _, f := range sorted {
		p.add(f)
	}
	total := 0
	for _, f := range p.yaml {
		total += len(f.Data)
	}
	switch n := len(p.yaml); {
	case n > lock.MaxWorkflows:
		p.fail(FilesDir, fmt.Sprintf("there are %d workflow files, at most %d are read", n, lock.MaxWorkflows), "")
	case total > lock.MaxBytes:
		p.fail(FilesDir, fmt.Sprintf("the workflow files are larger than %d bytes together", lock.MaxBytes), "")
	default:
		return p
	}
	p.yaml = nil
	return p
}

// add sorts one entry.
func (p *picked) add(f Source) {
	direct := path.Dir(f.Path) == FilesDir && isYAML(f.Path)
	switch {
	case f.Mode == modeLink || f.Mode == modeModule:
		if direct || f.Path == Dir || f.Path == FilesDir || f.Path == LockPath {
			what := map[string]string{modeLink: "symbolic links", modeModule: "submodules"}[f.Mode]
			p.fail(f.Path, what+" are not followed", "commit the files themselves")
		}
	case f.Path == LockPath:
		p.lock = &f
	case direct:
		p.yaml = append(p.yaml, f)
	case isYAML(f.Path) && strings.HasPrefix(f.Path, Dir+"/"):
		if path.Dir(f.Path) == Dir || strings.HasPrefix(f.Path, FilesDir+"/") {
			p.problems = append(p.problems, Problem{
				File: f.Path, Message: "this file is not read: workflow files stand directly in " + FilesDir, Warning: true,
			})
		}
	}
}

func (p *picked) fail(file, message, cure string) {
	p.problems = append(p.problems, Problem{File: file, Message: message, Cure: cure})
}

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// contentHash is SHA-256 over the format and each file's path and content, line ends made LF (LOCK-7).
func contentHash(files []Source) string {
	h := sha256.New()
	h.Write([]byte(lock.Format))
	for _, f := range files {
		h.Write([]byte("\x00" + f.Path + "\x00"))
		data := f.Data
		if i := slices.Index(data, '\r'); i >= 0 {
			data = []byte(strings.ReplaceAll(string(data), "\r\n", "\n"))
		}
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkNames reports workflow names that two files share.
func checkNames(workflows []lock.Workflow) []Problem {
	var problems []Problem
	first := make(map[string]string, len(workflows))
	for _, w := range workflows {
		if w.Name == "" {
			continue
		}
		if other, ok := first[w.Name]; ok {
			problems = append(problems, Problem{
				File: w.SourceFile, Line: 1, Col: 1, Field: "name",
				Message: fmt.Sprintf("workflow %q has the same name as the one in %s", w.Name, other),
				Cure:    "give each workflow its own name:",
			})
			continue
		}
		first[w.Name] = w.SourceFile
	}
	return problems
}

// checkEncoded refuses a lock that aliases or defaults have made larger than a lock may be.
func checkEncoded(f *lock.File) []Problem {
	b, err := json.Marshal(f)
	if err == nil && len(b) <= lock.MaxBytes {
		return nil
	}
	message := fmt.Sprintf("the lock file would be larger than %d bytes", lock.MaxBytes)
	if err != nil {
		message = err.Error()
	}
	return []Problem{{File: LockPath, Message: message, Cure: "split the workflows, or move long scripts into files of the repository"}}
}

// limit cuts a report that is too long, errors first, and says so.
func limit(problems []Problem) []Problem {
	if len(problems) <= maxProblems {
		return problems
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		switch {
		case a.Warning == b.Warning:
			return 0
		case a.Warning:
			return 1
		}
		return -1
	})
	more := len(problems) - maxProblems
	cut := problems[:maxProblems]
	return append(cut, Problem{Message: fmt.Sprintf("%d more problems are not shown", more), Warning: !HasErrors(cut)})
}
