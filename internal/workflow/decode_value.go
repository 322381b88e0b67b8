package workflow

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/workflow/expr"
)

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
