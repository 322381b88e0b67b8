package event

import (
	"bytes"
	"encoding/json"
)

// redacted replaces what nobody may read.
const redacted = "[redacted]"

// Redact takes the secret out of a payload before anybody sees it: the claim code of a scale-up (EVT-33). A payload of such an event
// that cannot be read is withheld whole.
func Redact(name string, payload json.RawMessage) json.RawMessage {
	if name != ScaleUp {
		return payload
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return json.RawMessage(`"` + redacted + `"`)
	}
	out, err := json.Marshal(hide(v))
	if err != nil {
		return json.RawMessage(`"` + redacted + `"`)
	}
	return out
}

func hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == "claimCode" {
				v[k] = redacted
			} else {
				v[k] = hide(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	}
	return v
}
