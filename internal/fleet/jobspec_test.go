package fleet

import (
	"encoding/json"
	"strings"
	"testing"
)

// A large payload does not keep a job from being described; what is left says so.
func TestBoundEvent(t *testing.T) {
	small := json.RawMessage(`{"ref":"x","event":{"a":1}}`)
	if got := boundEvent(small); string(got) != string(small) {
		t.Errorf("a small one is changed: %s", got)
	}
	large := json.RawMessage(`{"ref":"x","event":{"a":"` + strings.Repeat("y", maxEventBytes) + `"}}`)
	var got struct {
		Ref   string
		Event map[string]string
	}
	if err := json.Unmarshal(boundEvent(large), &got); err != nil || got.Ref != "x" || !strings.Contains(got.Event["kici_notice"], "too many") || len(got.Event) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}
