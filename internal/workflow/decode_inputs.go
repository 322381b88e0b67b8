package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// Types of inputs as the lock stores them (WF-9).
const (
	InputString  = "string"
	InputNumber  = "number"
	InputInteger = "integer"
	InputBoolean = "boolean"
	InputEnum    = "enum"
)

var (
	dispatchKeys = keys{name: "workflow_dispatch", known: []string{"inputs"}}
	inputKeys    = keys{
		name:  "an input",
		known: []string{"type", "description", "required", "default", "options", "min", "max", "pattern"},
		refused: func(key string) string {
			if key == "deprecationMessage" {
				return "put it into the description"
			}
			return ""
		},
	}
)

const (
	maxInputs  = 100
	maxPattern = 1000 // bytes of a regular expression
)

func (d *decoder) workflowDispatch(v value) lock.Trigger {
	t := lock.Trigger{Type: TypeDispatch, Manual: true}
	d.filters(v, dispatchKeys, func(_ string, v value) { t.Inputs = d.inputs(v) })
	return t
}

func (d *decoder) inputs(v value) map[string]lock.Input {
	if v.isNull() {
		return nil
	}
	out := map[string]lock.Input{}
	d.object(v, keys{name: "inputs"}, func(key string, v value) {
		if !validID(key) {
			d.errorf(v, idCure, "%q cannot be the name of an input", short(key))
			return
		}
		out[key] = d.input(v)
	})
	if len(out) > maxInputs {
		d.errorf(v, "", "there are %d inputs, at most %d are allowed", len(out), maxInputs)
	}
	return out
}

func (d *decoder) input(v value) lock.Input {
	in := lock.Input{Type: InputString}
	if v.isNull() {
		return in
	}
	var def *value
	d.object(v, inputKeys, func(key string, v value) {
		switch key {
		case "type":
			in.Type = d.inputType(v)
		case "description":
			in.Description, _ = d.text(v)
		case "required":
			in.Required, _ = d.boolean(v)
		case "default":
			def = &v
		case "options":
			in.Values = d.words(v)
		case "pattern":
			in.Pattern, _ = d.text(v)
			if err := checkPattern(in.Pattern); err != nil {
				d.errorf(v, "", "invalid pattern: %s", err)
				in.Pattern = ""
			}
		default:
			if f, ok := d.number(v, -math.MaxFloat64, math.MaxFloat64); ok && key == "min" {
				in.Min = &f
			} else if ok {
				in.Max = &f
			}
		}
	})
	d.checkInput(v, &in)
	if def != nil && !def.isNull() {
		d.inputDefault(*def, &in)
	}
	return in
}

func (d *decoder) inputType(v value) string {
	s, ok := d.word(v)
	switch s {
	case InputString, InputNumber, InputInteger, InputBoolean, InputEnum:
		return s
	case "choice":
		return InputEnum
	case "environment":
		d.errorf(v, "use choice with options", "input type environment is not supported")
	default:
		if ok {
			d.errorf(v, "known: string, number, integer, boolean, choice", "unknown input type %q", short(s))
		}
	}
	return InputString
}

// checkInput reports descriptors that contradict their type.
func (d *decoder) checkInput(v value, in *lock.Input) {
	numeric := in.Type == InputNumber || in.Type == InputInteger
	switch {
	case in.Type == InputEnum && len(in.Values) == 0:
		d.errorf(v, "add options:", "a choice needs options")
	case in.Type != InputEnum && len(in.Values) > 0:
		d.errorf(v, "write type: choice", "options belong to inputs of type choice")
	case !numeric && (in.Min != nil || in.Max != nil):
		d.errorf(v, "write type: number, or use pattern", "min and max belong to numbers")
	case in.Pattern != "" && in.Type != InputString:
		d.errorf(v, "remove it", "pattern belongs to inputs of type string")
	case in.Min != nil && in.Max != nil && *in.Min > *in.Max:
		d.errorf(v, "", "min is above max")
	}
}

func (d *decoder) inputDefault(v value, in *lock.Input) {
	got, ok := d.json(v)
	if !ok {
		return
	}
	if in.Type == InputString || in.Type == InputEnum {
		got = v.n.Value // as written: 1.10 stays 1.10
	}
	coerced, err := coerce(*in, got)
	if err != nil {
		d.errorf(v, "", "default %s", err)
		return
	}
	in.Default = coerced
}

// checkPattern reports a regular expression that the engine cannot compile or that is too large (LOCK-3).
func checkPattern(p string) error {
	if len(p) > maxPattern {
		return fmt.Errorf("longer than %d bytes", maxPattern)
	}
	if _, err := regexp.Compile(p); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return nil
}

// json reads any value as encoding/json would: numbers are float64, keys of maps are texts.
func (d *decoder) json(v value) (any, bool) {
	switch v.n.Kind {
	case sequenceKind:
		out, good := []any{}, true
		d.list(v, false, func(_ int, v value) {
			e, ok := d.json(v)
			good = good && ok
			out = append(out, e)
		})
		return out, good
	case mappingKind:
		out, good := map[string]any{}, true
		d.object(v, keys{name: v.last()}, func(key string, v value) {
			e, ok := d.json(v)
			good = good && ok
			out[key] = e
		})
		return out, good
	}
	return d.scalar(v)
}

func (d *decoder) scalar(v value) (any, bool) {
	switch v.n.Tag {
	case "!!null":
		return nil, true
	case "!!bool":
		return strings.EqualFold(v.n.Value, "true"), true
	case "!!int", "!!float":
		return d.jsonNumber(v)
	}
	if v.n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(v.n.Tag, "!!") {
		d.errorf(v, "remove it", "tag %s is not supported", v.n.Tag)
		return nil, false
	}
	return v.n.Value, true
}

func (d *decoder) jsonNumber(v value) (any, bool) {
	var f float64
	err := v.n.Decode(&f)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		d.errorf(v, "quote it", "%q is not a number that JSON can hold", short(v.n.Value))
		return nil, false
	}
	b, err := json.Marshal(f)
	if err == nil && v.n.Tag == "!!float" && strings.HasSuffix(v.n.Value, "0") && string(b) != v.n.Value && !strings.ContainsAny(v.n.Value, "eE_") {
		d.warnf(v, "quote it: '"+v.n.Value+"'", "%s is the number %s", v.n.Value, b)
	}
	if i, err := strconv.ParseInt(v.n.Value, 0, 64); err == nil && i > 1<<53 {
		d.warnf(v, "quote it", "%s is larger than a JSON number can hold exactly", v.n.Value)
	}
	return f, true
}
