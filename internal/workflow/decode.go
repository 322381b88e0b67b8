package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	got := ""
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

// text is any scalar but null, as it is written.
func (d *decoder) text(v value) (string, bool) {
	if v.n.Kind != yaml.ScalarNode || v.isNull() {
		d.wrong(v, "a text")
		return "", false
	}
	if v.n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(v.n.Tag, "!!") {
		d.errorf(v, "remove it", "tag %s is not supported", v.n.Tag)
		return "", false
	}
	return v.n.Value, true
}

// word is a text without expressions.
func (d *decoder) word(v value) (string, bool) {
	s, ok := d.text(v)
	switch {
	case !ok:
		return "", false
	case strings.TrimSpace(s) == "":
		d.errorf(v, "", "%s is empty", v.last())
		return "", false
	case expr.HasExpr(s):
		d.errorf(v, "write the value itself", "%s cannot contain an expression", v.last())
		return "", false
	}
	return s, true
}

// words is a word or a list of words.
func (d *decoder) words(v value) []string {
	var out []string
	d.list(v, true, func(_ int, v value) {
		if s, ok := d.word(v); ok {
			out = append(out, s)
		}
	})
	return out
}

func (d *decoder) boolean(v value) (b, ok bool) {
	if v.n.Kind == yaml.ScalarNode && v.n.Tag == "!!bool" {
		return strings.EqualFold(v.n.Value, "true"), true
	}
	if v.n.Kind == yaml.ScalarNode && !v.isNull() {
		switch strings.ToLower(v.n.Value) {
		case "yes", "on", "true", "1":
			d.errorf(v, "write true", "%s must be true or false, got %q", v.last(), v.n.Value)
			return false, false
		case "no", "off", "false", "0":
			d.errorf(v, "write false", "%s must be true or false, got %q", v.last(), v.n.Value)
			return false, false
		}
	}
	d.wrong(v, "true or false")
	return false, false
}

// number is a number in [low, high].
func (d *decoder) number(v value, low, high float64) (float64, bool) {
	if v.n.Kind != yaml.ScalarNode || v.isNull() {
		d.wrong(v, "a number")
		return 0, false
	}
	if expr.HasExpr(v.n.Value) {
		d.errorf(v, "write the number itself", "%s cannot be an expression", v.last())
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(v.n.Value), 64)
	if err != nil || f != f {
		d.wrong(v, "a number")
		return 0, false
	}
	if f < low || f > high {
		d.errorf(v, "", "%s must be between %v and %v, got %v", v.last(), low, high, f)
		return 0, false
	}
	return f, true
}

func (d *decoder) integer(v value, low, high int) (int, bool) {
	f, ok := d.number(v, float64(low), float64(high))
	if ok && f != float64(int(f)) {
		d.wrong(v, "a whole number")
		return 0, false
	}
	return int(f), ok
}

// expression checks a text with ${{ }} against what its field may use, and remembers which names it uses.
func (d *decoder) expression(v value, s string, scope expr.Scope) {
	if !expr.HasExpr(s) {
		return
	}
	if errs := expr.CheckText(s, scope); len(errs) > 0 {
		d.report(v, errs)
		return
	}
	d.remember(v, expr.Refs(s, false))
}

// condition reads an if: or another field that is one expression, with or without ${{ }}, and returns it bare.
func (d *decoder) condition(v value, scope expr.Scope) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	bare, whole := expr.Bare(s)
	if !whole && expr.HasExpr(s) {
		d.errorf(v, "put the whole condition into one ${{ }}, or use none",
			"%s mixes text and ${{ }}, which would always be true", v.last())
		return ""
	}
	if !whole {
		bare = strings.TrimSpace(s)
	}
	if bare == "" {
		d.errorf(v, "remove it", "%s is empty", v.last())
		return ""
	}
	if errs := expr.Check(s, scope); len(errs) > 0 {
		d.report(v, errs)
		return bare
	}
	d.remember(v, expr.Refs(s, true))
	return bare
}

func (d *decoder) report(v value, errs []*expr.Error) {
	for _, e := range errs {
		d.addAt(v, e.Off, Problem{Message: e.Msg, Cure: e.Cure})
	}
}

// addAt adds a problem at an offset in a scalar's value.
func (d *decoder) addAt(v value, off int, p Problem) {
	p.Line, p.Col = d.locate(v.n, off)
	d.put(v, p)
}

func (d *decoder) remember(v value, refs []expr.Ref) {
	for _, r := range refs {
		if r.Name != "" {
			d.refs = append(d.refs, use{r, v})
		}
	}
}

// locate turns an offset in a scalar's value into a place in the file. Where the file writes the value otherwise (folded
// over lines, with escapes), it is the place of the value.
func (d *decoder) locate(n *yaml.Node, off int) (line, col int) {
	if d.lines == nil {
		d.lines = strings.Split(string(d.data), "\n")
	}
	off = min(off, len(n.Value))
	start := strings.LastIndexByte(n.Value[:off], '\n') + 1
	text, _, _ := strings.Cut(n.Value[start:], "\n")
	first, from := n.Line-1, max(0, n.Column-1)
	if n.Style&yaml.LiteralStyle != 0 {
		first, from = n.Line+strings.Count(n.Value[:start], "\n"), 0
	}
	const near = 20 // lines that a value may be folded over
	for i := first; i < min(len(d.lines), first+near) && text != ""; i++ {
		raw := d.lines[i]
		if i > first || from > len(raw) {
			from = 0
		}
		if k := strings.Index(raw[from:], text); k >= 0 {
			return i + 1, 1 + utf8.RuneCountInString(raw[:from+k]) + utf8.RuneCountInString(n.Value[start:off])
		}
	}
	return n.Line, n.Column
}
