package workflow

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/workflow/lock"
	"github.com/kici-go/kici/internal/workflow/suggest"
)

// maxInputBytes bounds one text that is given for an input.
const maxInputBytes = 64 << 10

// DispatchTrigger returns the workflow_dispatch trigger of a workflow, or nil: such a workflow cannot be started by hand.
func DispatchTrigger(w *lock.Workflow) *lock.Trigger {
	for i := range w.On {
		if w.On[i].Type == TypeDispatch && w.On[i].Manual {
			return &w.On[i]
		}
	}
	return nil
}

// ResolveInputs checks the given inputs against a trigger's descriptors (WF-9): unknown names and wrong values are problems,
// texts are converted, defaults fill in. Values are string, float64 or bool. With any problem the map is nil.
func ResolveInputs(trigger *lock.Trigger, given map[string]any) (map[string]any, []Problem) {
	var problems []Problem
	add := func(name, message, cure string) {
		problems = append(problems, Problem{Field: "inputs." + name, Message: message, Cure: cure})
	}
	names := sortedKeys(trigger.Inputs)
	for _, name := range sortedKeys(given) {
		if _, ok := trigger.Inputs[name]; !ok {
			cure := suggest.Cure(name, names)
			if len(names) == 0 {
				cure = "this workflow takes no inputs"
			}
			add(name, fmt.Sprintf("there is no input %q", short(name)), cure)
		}
	}
	out := make(map[string]any, len(names))
	for _, name := range names {
		in := trigger.Inputs[name]
		v, ok := given[name]
		switch {
		case ok && v != nil:
			got, err := coerce(in, v)
			if err != nil {
				add(name, fmt.Sprintf("input %s %s", name, err), "")
				continue
			}
			out[name] = got
		case in.Default != nil:
			out[name] = in.Default
		case in.Required:
			add(name, fmt.Sprintf("input %s is required", name), in.Description)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return out, nil
}

// coerce converts a given value to an input's type, or says what is wrong with it.
func coerce(in lock.Input, v any) (any, error) {
	switch n := v.(type) {
	case int:
		v = float64(n)
	case int64:
		v = float64(n)
	}
	switch in.Type {
	case InputBoolean:
		return toBool(v)
	case InputNumber, InputInteger:
		return toNumber(in, v)
	}
	return toText(in, v)
}

func toBool(v any) (any, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "1", "yes":
			return true, nil
		case "false", "0", "no":
			return false, nil
		}
	case float64:
		if v == 0 || v == 1 {
			return v == 1, nil
		}
	}
	return nil, fmt.Errorf("must be true or false, got %s", printed(v))
}

func toNumber(in lock.Input, v any) (any, error) {
	f, ok := v.(float64)
	if s, isText := v.(string); isText {
		var err error
		f, err = strconv.ParseFloat(strings.TrimSpace(s), 64)
		ok = err == nil && !strings.ContainsAny(s, "xXpP_")
	}
	switch {
	case !ok || math.IsNaN(f) || math.IsInf(f, 0):
		return nil, fmt.Errorf("must be a number, got %s", printed(v))
	case in.Type == InputInteger && (f != math.Trunc(f) || math.Abs(f) > 1<<53):
		return nil, fmt.Errorf("must be a whole number, got %s", printed(v))
	case in.Min != nil && f < *in.Min:
		return nil, fmt.Errorf("must be at least %v, got %s", *in.Min, printed(v))
	case in.Max != nil && f > *in.Max:
		return nil, fmt.Errorf("must be at most %v, got %s", *in.Max, printed(v))
	}
	return f, nil
}

func toText(in lock.Input, v any) (any, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case bool:
		s = strconv.FormatBool(v)
	case float64:
		s = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return nil, fmt.Errorf("must be a text, got %s", printed(v))
	}
	if len(s) > maxInputBytes {
		return nil, fmt.Errorf("is longer than %d bytes", maxInputBytes)
	}
	if in.Type == InputEnum {
		if !slices.Contains(in.Values, s) {
			return nil, fmt.Errorf("must be one of %s, got %q", strings.Join(in.Values, ", "), short(s))
		}
		return s, nil
	}
	if in.Pattern != "" {
		re, err := regexp.Compile(in.Pattern)
		if err != nil || !re.MatchString(s) {
			return nil, fmt.Errorf("must match %s, got %q", in.Pattern, short(s))
		}
	}
	return s, nil
}

func printed(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(short(v))
	case nil:
		return "nothing"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}
