package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/workflow/expr"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// decoder walks the nodes of one file and collects every problem instead of stopping at the first.
type decoder struct {
	file     string
	data     []byte
	lines    []string // of data, made when a position inside a text is first needed
	problems []Problem
	errors   int   // of problems that are not warnings
	partial  bool  // the text is a part of something: names that it lacks may be there
	refs     []use // uses of contexts, checked when all names are known
}

// Shorter names for what the decoder uses everywhere.
type scope = expr.Scope

const (
	scalarKind   = yaml.ScalarNode
	mappingKind  = yaml.MappingNode
	sequenceKind = yaml.SequenceNode
)

// keys are what a map may contain.
type keys struct {
	name    string // of the map, for messages
	known   []string
	refused func(key string) string // a cure for keys that authors know from elsewhere and that are not ours; may be nil
}

func (k keys) has(key string) bool { return slices.Contains(k.known, key) }

// place is where a value stands, kept as a list so that it costs nothing until a problem prints it.
type place struct {
	up    *place
	key   string // "" for an element of a list
	index int
	word  *yaml.Node // that the key is written as; nil for an element
}

func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.key == "":
		return p.up.String() + "[" + strconv.Itoa(p.index) + "]"
	case p.up == nil:
		return p.key
	}
	return p.up.String() + "." + p.key
}

// value is a node, aliases followed, and where it stands.
type value struct {
	n  *yaml.Node
	at *place
}

func newValue(n *yaml.Node, at *place) value {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return value{n, at}
}

func (v value) isNull() bool { return v.n.Kind == yaml.ScalarNode && v.n.Tag == "!!null" }

// without is null in the place of v.
func (v value) without() value {
	return value{&yaml.Node{Kind: scalarKind, Tag: "!!null", Line: v.n.Line, Column: v.n.Column}, v.at}
}

// use is one reference to a context, and the value that it stands in.
type use struct {
	expr.Ref
	in value
}

// start is the node at which a value begins for a reader: its key, when it fills the lines below.
func (v value) start() *yaml.Node {
	if v.n.Kind != scalarKind && v.at != nil && v.at.word != nil {
		return v.at.word
	}
	return v.n
}

func (d *decoder) add(v value, p Problem) {
	at := v.start()
	p.Line, p.Col = at.Line, at.Column
	d.put(v, p)
}

func (d *decoder) put(v value, p Problem) {
	p.File, p.Field = d.file, v.at.String()
	d.problems = append(d.problems, p)
	if !p.Warning {
		d.errors++
	}
}

// good calls f and reports whether it found no error: only then is it worth saying that something is missing.
func (d *decoder) good(f func()) bool {
	before := d.errors
	f()
	return d.errors == before
}

func (d *decoder) errorf(v value, cure, format string, args ...any) {
	d.add(v, Problem{Message: fmt.Sprintf(format, args...), Cure: cure})
}

func (d *decoder) warnf(v value, cure, format string, args ...any) {
	d.add(v, Problem{Message: fmt.Sprintf(format, args...), Cure: cure, Warning: true})
}

// wrong reports a value of the wrong kind.
func (d *decoder) wrong(v value, want string) {
	var got string
	switch {
	case v.isNull():
		got = "nothing"
	case v.n.Kind == yaml.MappingNode:
		got = "a map"
	case v.n.Kind == yaml.SequenceNode:
		got = "a list"
	default:
		got = strconv.Quote(short(v.n.Value))
	}
	d.errorf(v, "", "%s must be %s, got %s", v.last(), want, got)
}

// last is the name of the value in a sentence.
func (v value) last() string {
	p := v.at
	for p != nil && p.key == "" {
		p = p.up
	}
	switch {
	case p == nil:
		return "the file"
	case p != v.at:
		return "an element of " + p.key
	}
	return p.key
}

func short(s string) string {
	const most = 60
	if line, _, more := strings.Cut(s, "\n"); more {
		s = line + "…"
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// object calls f for every known key of a map, in the order of the file; with no known keys, for every key.
func (d *decoder) object(v value, what keys, f func(key string, v value)) bool {
	if v.n.Kind != yaml.MappingNode {
		d.wrong(v, "a map")
		return false
	}
	seen := make(map[string]int, len(v.n.Content)/2)
	for i := 0; i+1 < len(v.n.Content); i += 2 {
		k := newValue(v.n.Content[i], v.at)
		key, ok := d.key(k, seen)
		if !ok {
			continue
		}
		child := newValue(v.n.Content[i+1], &place{up: v.at, key: key, word: k.n})
		if what.known == nil || what.has(key) {
			f(key, child)
			continue
		}
		d.unknownKey(k, key, what)
	}
	return true
}

// key reads the key of a map and refuses what cannot be one.
func (d *decoder) key(k value, seen map[string]int) (string, bool) {
	key := k.n.Value
	switch {
	case k.n.Kind != yaml.ScalarNode:
		d.errorf(k, "", "a key must be a plain word")
		return "", false
	case k.n.Tag == "!!merge":
		d.errorf(k, "write the keys out, or use an anchor for a whole value", "merge keys (<<) are not supported")
		return "", false
	case key == "":
		d.errorf(k, "", "a key is empty")
		return "", false
	}
	if line, dup := seen[key]; dup {
		d.errorf(k, "keep one of them", "key %q is there already, in line %d", key, line)
		return "", false
	}
	seen[key] = k.n.Line
	return key, true
}

func (d *decoder) unknownKey(k value, key string, what keys) {
	k.at = &place{up: k.at, key: key}
	if what.refused != nil {
		if why := what.refused(key); why != "" {
			d.errorf(k, why, "key %q is not supported in %s", key, what.name)
			return
		}
	}
	near := suggest.Nearest(key, what.known)
	if near == "" && key == "true" && what.has("on") {
		near = "on"
	}
	cure := suggest.Cure(key, what.known)
	if near != "" {
		cure = fmt.Sprintf("did you mean %q?", near)
	}
	d.errorf(k, cure, "unknown key %q in %s", key, what.name)
}

// list calls f for every element of a list. A single value counts as a list of one when single is set.
func (d *decoder) list(v value, single bool, f func(i int, v value)) bool {
	switch {
	case v.n.Kind == yaml.SequenceNode:
		for i, c := range v.n.Content {
			f(i, newValue(c, &place{up: v.at, index: i}))
		}
		return true
	case single && !v.isNull():
		f(0, v)
		return true
	}
	d.wrong(v, "a list")
	return false
}
