package expr

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// filtered is a list made by .*; a property of it is taken from every item.
type filtered []any

// norm brings a value of a context into the language's own types: nil, bool, float64, string, []any, map[string]any
// (and filtered). It goes one level deep; what is inside is brought when it is reached.
func norm(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, float64, string, map[string]any, []any, filtered:
		return v, nil
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case json.Number:
		f, err := v.Float64()
		return f, err
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = s
		}
		return m, nil
	case []string:
		l := make([]any, len(v))
		for i, s := range v {
			l[i] = s
		}
		return l, nil
	case json.RawMessage:
		return decode(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("value cannot be used in an expression: %w", err)
	}
	return decode(b)
}

func decode(b []byte) (any, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var v any
	err := json.Unmarshal(b, &v)
	return v, err
}

// Truthy reports whether a value counts as true: all but null, false, 0, NaN and the empty string.
func Truthy(v any) bool {
	v, err := norm(v)
	if err != nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0 && !math.IsNaN(v)
	case string:
		return v != ""
	}
	return true
}

// Text is a value as it appears when it is put into a text. Lists and objects are JSON.
func Text(v any) string {
	v, err := norm(v)
	if err != nil {
		return ""
	}
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return formatNumber(v)
	case string:
		return v
	}
	s, err := encode(v, "")
	if err != nil {
		return ""
	}
	return s
}

func formatNumber(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'G', 15, 64)
}

// encode is toJSON: sorted keys, no HTML escapes.
func encode(v any, indent string) (string, error) {
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return formatNumber(f), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func isPrimitive(v any) bool {
	switch v.(type) {
	case nil, bool, float64, string:
		return true
	}
	return false
}

// toNumber is the coercion of loose comparison.
func toNumber(v any) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		return v
	case string:
		return parseNumber(v)
	}
	return math.NaN()
}

// equal is loose equality: values of different types are compared as numbers, strings without case, and lists and
// objects are equal to nothing.
func equal(a, b any) bool {
	switch x := a.(type) {
	case nil:
		if b == nil {
			return true
		}
	case bool:
		if y, ok := b.(bool); ok {
			return x == y
		}
	case string:
		if y, ok := b.(string); ok {
			return strings.EqualFold(x, y)
		}
	}
	return toNumber(a) == toNumber(b)
}

// compare answers <, <=, > and >=; NaN and lists answer false to all of them.
func compare(op string, a, b any) bool {
	var c int
	x, xs := a.(string)
	y, ys := b.(string)
	if xs && ys {
		c = strings.Compare(strings.ToUpper(x), strings.ToUpper(y))
	} else {
		m, n := toNumber(a), toNumber(b)
		if math.IsNaN(m) || math.IsNaN(n) {
			return false
		}
		c = cmp.Compare(m, n)
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// lookup finds a key of an object, exactly or else without case; the smallest such key wins, so that the answer does not
// depend on the map's order.
func lookup(m map[string]any, key string) (any, bool) {
	if v, ok := m[key]; ok {
		return v, true
	}
	found, ok := "", false
	for k := range m {
		if strings.EqualFold(k, key) && (!ok || k < found) {
			found, ok = k, true
		}
	}
	return m[found], ok
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
