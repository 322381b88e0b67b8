package scaler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/workflow/suggest"
)

// reader walks YAML nodes strictly and collects every problem with its position.
type reader struct {
	file     string
	problems *[]Problem
}

// maxConfigBytes bounds one file of configuration.
const maxConfigBytes = 1 << 20

// field is a value and where it stands.
type field struct {
	node *yaml.Node // nil when missing
	path string
}

func (f field) present() bool { return f.node != nil }

func (f field) at(i int) string { return fmt.Sprintf("%s[%d]", f.path, i) }

func (r reader) fault(f field, cure, format string, args ...any) {
	r.add(f, Problem{Message: fmt.Sprintf(format, args...), Cure: cure})
}

func (r reader) warn(f field, cure, format string, args ...any) {
	r.add(f, Problem{Message: fmt.Sprintf(format, args...), Cure: cure, Warning: true})
}

func (r reader) add(f field, p Problem) {
	p.File, p.Path = r.file, f.path
	if f.node != nil {
		p.Line, p.Col = f.node.Line, f.node.Column
	}
	*r.problems = append(*r.problems, p)
}

// parse returns the document's root, or nil for an empty or broken file.
func (r reader) parse(data []byte) *yaml.Node {
	if len(data) > maxConfigBytes {
		r.fault(field{}, "", "the file is larger than %d bytes", maxConfigBytes)
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		p := Problem{File: r.file, Message: strings.TrimPrefix(err.Error(), "yaml: "), Col: 1}
		if rest, ok := strings.CutPrefix(p.Message, "line "); ok {
			if n, msg, ok := strings.Cut(rest, ": "); ok {
				p.Line, _ = strconv.Atoi(n)
				p.Message = msg
			}
		}
		*r.problems = append(*r.problems, p)
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// mapping returns the fields of a mapping and reports keys that are unknown or given twice. known is nil where any key goes.
func (r reader) mapping(f field, known []string) map[string]field {
	out := map[string]field{}
	n := resolve(f.node)
	if n == nil || n.Tag == "!!null" {
		return out
	}
	if n.Kind != yaml.MappingNode {
		r.fault(f, "", "must be a mapping of keys to values")
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := field{key, join(f.path, key.Value)}
		switch _, twice := out[key.Value]; {
		case twice:
			r.fault(at, "", "key is given twice")
		case known != nil && !slices.Contains(known, key.Value):
			r.fault(at, suggest.Cure(key.Value, known), "unknown key")
		case resolve(value).Tag == "!!null":
			// an empty value is a missing one
		default:
			out[key.Value] = field{value, at.path}
		}
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// resolve follows an alias. A cycle of aliases cannot loop: every reader below goes one level down at a time.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// list returns the elements of a sequence.
func (r reader) list(f field) []field {
	if !f.present() {
		return nil
	}
	n := resolve(f.node)
	if n.Kind != yaml.SequenceNode {
		r.fault(f, "", "must be a list")
		return nil
	}
	out := make([]field, len(n.Content))
	for i, c := range n.Content {
		out[i] = field{c, f.at(i)}
	}
	return out
}

// text returns a scalar as text; numbers and booleans keep their spelling.
func (r reader) text(f field) string {
	if !f.present() {
		return ""
	}
	n := resolve(f.node)
	if n.Kind != yaml.ScalarNode {
		r.fault(f, "", "must be text")
		return ""
	}
	return n.Value
}

func (r reader) texts(f field) []string {
	var out []string
	for _, e := range r.list(f) {
		out = append(out, r.text(e))
	}
	return out
}

func (r reader) boolean(f field, missing bool) bool {
	if !f.present() {
		return missing
	}
	n := resolve(f.node)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.fault(f, "", "must be true or false")
		return missing
	}
	return strings.EqualFold(n.Value, "true")
}

// integer returns a whole number of at least least.
func (r reader) integer(f field, missing, least int64) int64 {
	if !f.present() {
		return missing
	}
	n := resolve(f.node)
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < least || v > math.MaxInt32 {
		r.fault(f, "", "must be a whole number from %d to %d", least, math.MaxInt32)
		return missing
	}
	return v
}

var errNumber = errors.New("must be a number")

func (r reader) number(f field) (float64, error) {
	n := resolve(f.node)
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil {
		return 0, errNumber
	}
	return v, nil
}

// oneOf returns a text that must be one of known.
func (r reader) oneOf(f field, known ...string) string {
	s := r.text(f)
	if s != "" && !slices.Contains(known, s) {
		r.fault(f, suggest.Cure(s, known), "%q is not one of %s", s, strings.Join(known, ", "))
		return ""
	}
	return s
}
