// Package envfile reads the files by which a step talks back: $KICI_OUTPUT, $KICI_ENV, $KICI_PATH and $KICI_SUMMARY (with
// GitHub's names as aliases), and the workflow commands in its standard output. All of it is input from outside: bounded,
// and refused with a sentence that says where the mistake is.
package envfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of one file.
const (
	MaxFileBytes = 1 << 20
	MaxEntries   = 1000
	MaxNameBytes = 256
)

// ErrFormat is wrapped by every refusal.
var ErrFormat = errors.New("cannot be read")

// Pair is one name and its value, in file order.
type Pair struct{ Name, Value string }

// Parse reads name=value lines and name<<DELIMITER blocks. Blank lines are ignored; a value may be empty, a name not.
// label names the file in errors ("KICI_ENV").
func Parse(label string, data []byte) ([]Pair, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%s %w: larger than %d bytes", label, ErrFormat, MaxFileBytes)
	}
	var pairs []Pair
	p := parser{rest: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}
	for {
		pair, ok, err := p.next()
		if err != nil {
			return nil, fmt.Errorf("%s %w: line %d: %w", label, ErrFormat, p.line, err)
		}
		if !ok {
			return pairs, nil
		}
		if len(pairs) == MaxEntries {
			return nil, fmt.Errorf("%s %w: more than %d entries", label, ErrFormat, MaxEntries)
		}
		pairs = append(pairs, pair)
	}
}

type parser struct {
	rest []byte
	line int
}

func (p *parser) readLine() (string, bool) {
	if len(p.rest) == 0 {
		return "", false
	}
	p.line++
	line, rest, _ := bytes.Cut(p.rest, []byte("\n"))
	p.rest = rest
	return strings.TrimSuffix(string(line), "\r"), true
}

func (p *parser) next() (Pair, bool, error) {
	for {
		line, ok := p.readLine()
		if !ok {
			return Pair{}, false, nil
		}
		if line == "" {
			continue
		}
		pair, err := p.entry(line)
		return pair, err == nil, err
	}
}

// entry: whichever of "=" and "<<" comes first decides the form, as on GitHub.
func (p *parser) entry(line string) (Pair, error) {
	eq, here := strings.Index(line, "="), strings.Index(line, "<<")
	switch {
	case eq >= 0 && (here < 0 || eq < here):
		return Pair{line[:eq], line[eq+1:]}, checkName(line[:eq])
	case here >= 0:
		name, delimiter := line[:here], line[here+2:]
		if delimiter == "" {
			return Pair{}, errors.New("no delimiter after <<")
		}
		value, err := p.block(delimiter)
		if err == nil {
			err = checkName(name)
		}
		return Pair{name, value}, err
	}
	return Pair{}, errors.New("expected name=value or name<<DELIMITER")
}

func (p *parser) block(delimiter string) (string, error) {
	var lines []string
	for {
		line, ok := p.readLine()
		if !ok {
			return "", fmt.Errorf("the delimiter %q is missing", delimiter)
		}
		if line == delimiter {
			return strings.Join(lines, "\n"), nil
		}
		lines = append(lines, line)
	}
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the name is longer than %d bytes", MaxNameBytes)
	case strings.ContainsAny(name, "\x00\n\r"):
		return errors.New("the name holds a control character")
	}
	return nil
}

// CheckEnv refuses variables that a step must not set for the steps after it: kici's own, and NODE_OPTIONS, as GitHub does.
// A value with a NUL byte cannot be passed on.
func CheckEnv(p Pair) error {
	name := strings.ToUpper(p.Name)
	switch {
	case strings.HasPrefix(name, "KICI_"):
		return fmt.Errorf("%s is reserved", p.Name)
	case name == "NODE_OPTIONS":
		return fmt.Errorf("%s cannot be set for later steps", p.Name)
	case strings.ContainsAny(p.Name, "= \t\x00"):
		return fmt.Errorf("%q is not a variable name", p.Name)
	case strings.Contains(p.Value, "\x00"):
		return fmt.Errorf("the value of %s holds a NUL byte", p.Name)
	}
	return nil
}

// ParsePath reads one directory a line.
func ParsePath(data []byte) ([]string, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("KICI_PATH %w: larger than %d bytes", ErrFormat, MaxFileBytes)
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		if strings.ContainsRune(line, 0) || strings.ContainsRune(line, os.PathListSeparator) || len(dirs) == MaxEntries {
			return nil, fmt.Errorf("KICI_PATH %w: one directory a line, at most %d", ErrFormat, MaxEntries)
		}
		dirs = append(dirs, line)
	}
	return dirs, nil
}

// Read returns the content of a file that a step may have replaced: nothing when it is gone, an error when it is not a
// regular file any more (a symbolic link could point at a file of the agent) or is too large.
func Read(path string) ([]byte, error) {
	f, err := openNoFollow(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file", ErrFormat)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return data, nil
}
