package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Bounds of one YAML file after its aliases are followed.
const (
	maxNodes = 100_000
	maxDepth = 50
)

// parseYAML reads one document into nodes. Nothing is decoded before the bounds are checked, so anchors that multiply
// cost nothing.
func parseYAML(f Source) (*yaml.Node, []Problem) {
	fail := func(line, col int, message, cure string) (*yaml.Node, []Problem) {
		return nil, []Problem{{File: f.Path, Line: line, Col: col, Message: message, Cure: cure}}
	}
	if len(f.Data) > MaxFileBytes {
		return fail(0, 0, fmt.Sprintf("file is larger than %d bytes", MaxFileBytes), "split it, or move long scripts into files of the repository")
	}
	if line, col, bad := invalidText(f.Data); bad {
		return fail(line, col, "file is not plain UTF-8 text", "save it as UTF-8")
	}
	loader, err := yaml.NewLoader(bytes.NewReader(f.Data))
	if err != nil {
		return fail(0, 0, err.Error(), "")
	}
	var doc yaml.Node
	if err = loader.Load(&doc); err != nil {
		return nil, []Problem{yamlProblem(f.Path, err)}
	}
	var second yaml.Node
	if err = loader.Load(&second); err == nil {
		return fail(second.Line, second.Column, "file has a second document", "put each workflow into a file of its own")
	} else if !errors.Is(err, io.EOF) {
		return nil, []Problem{yamlProblem(f.Path, err)}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return fail(1, 1, "file is empty", "see kici init for an example")
	}
	g := gauge{seen: map[*yaml.Node]extent{}}
	if _, err := g.measure(doc.Content[0], 1); err != nil {
		return fail(err.line, err.col, err.message, "")
	}
	return doc.Content[0], nil
}

// invalidText finds the first byte that YAML does not allow.
func invalidText(data []byte) (line, col int, bad bool) {
	line, col = 1, 1
	for i := 0; i < len(data); {
		c := data[i]
		size := 1
		switch {
		case c == '\n':
			line, col = line+1, 0
		case c < ' ' && c != '\t' && c != '\r' || c == 0x7f:
			return line, col, true
		case c >= utf8.RuneSelf:
			var r rune
			if r, size = utf8.DecodeRune(data[i:]); r == utf8.RuneError && size == 1 {
				return line, col, true
			}
		}
		i += size
		col++
	}
	return 0, 0, false
}

func yamlProblem(file string, err error) Problem {
	p := Problem{File: file, Line: 1, Col: 1, Message: err.Error()}
	if errors.Is(err, io.EOF) {
		p.Message, p.Cure = "file is empty", "see kici init for an example"
		return p
	}
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return p
	}
	p.Message = strings.TrimPrefix(load.Message, "yaml: ")
	if load.Mark.Line > 0 {
		p.Line, p.Col = load.Mark.Line, max(1, load.Mark.Column)
	}
	if load.ContextMsg != "" {
		p.Message = load.ContextMsg + ": " + p.Message
	}
	if begin := load.ContextMark.Line; begin > 0 && begin != p.Line {
		p.Message += fmt.Sprintf(", it begins in line %d", begin)
	}
	p.Message = "invalid YAML: " + p.Message
	switch {
	case strings.Contains(load.Message, "cannot start any token"):
		p.Cure = "indent with spaces, and quote values that begin with @, `, % or *"
	case strings.Contains(load.Message, "mapping values are not allowed"):
		p.Cure = "check the indentation, and quote values that contain ': '"
	case strings.Contains(load.Message, "unknown anchor"):
		p.Cure = "quote values that begin with *"
	}
	return p
}

// gauge measures a tree with its aliases followed, without following any of them twice.
type gauge struct {
	seen map[*yaml.Node]extent
}

type extent struct {
	nodes, depth int
	open         bool // being measured: an alias to it is a circle
}

type boundError struct {
	line, col int
	message   string
}

func (g *gauge) measure(n *yaml.Node, depth int) (extent, *boundError) {
	fail := func(format string, args ...any) (extent, *boundError) {
		return extent{}, &boundError{n.Line, n.Column, fmt.Sprintf(format, args...)}
	}
	if depth > maxDepth {
		return fail("file nests deeper than %d", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		e, ok := g.seen[n.Alias]
		if !ok || e.open {
			return fail("anchor %q contains itself", n.Value)
		}
		if depth+e.depth > maxDepth {
			return fail("file nests deeper than %d when its anchors are followed", maxDepth)
		}
		return e, nil
	}
	if n.Anchor != "" {
		g.seen[n] = extent{open: true}
	}
	sum := extent{nodes: 1}
	for _, c := range n.Content {
		e, err := g.measure(c, depth+1)
		if err != nil {
			return e, err
		}
		sum.nodes += e.nodes
		sum.depth = max(sum.depth, e.depth+1)
		if sum.nodes > maxNodes {
			return fail("file has more than %d values when its anchors are followed", maxNodes)
		}
	}
	if n.Anchor != "" {
		g.seen[n] = sum
	}
	return sum, nil
}
