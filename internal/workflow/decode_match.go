package workflow

import (
	"encoding/json"

	"github.com/kici-go/kici/internal/workflow/suggest"
)

// matchMap reads match: and not: of a trigger: JSONPath → expected value (WF-16).
func (d *decoder) matchMap(v value) map[string]any {
	out := map[string]any{}
	d.object(v, keys{name: v.last()}, func(key string, v value) {
		if _, err := parseJSONPath(key); err != nil {
			d.errorf(v, "such as $.action or $.commits[*].author.name", "invalid JSONPath %q: %s", short(key), err)
			return
		}
		want, ok := d.json(v)
		if !ok {
			return
		}
		if err := checkExpected(want); err != nil {
			d.errorf(v, "", "%s", err)
			return
		}
		out[key] = want
	})
	return out
}

// raw is json, encoded.
func (d *decoder) raw(v value) (json.RawMessage, bool) {
	x, ok := d.json(v)
	if !ok {
		return nil, false
	}
	b, err := json.Marshal(x)
	if err != nil {
		d.errorf(v, "", "%s", err)
		return nil, false
	}
	return b, true
}

// cureFor is suggest.Cure, or another cure where no known word is near.
func cureFor(word string, known []string, otherwise string) string {
	if near := suggest.Nearest(word, known); near != "" || otherwise == "" {
		return suggest.Cure(word, known)
	}
	return otherwise
}
