package deliverycmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// A delivery that started nothing says why: each workflow, each check that failed, with pattern and value.
func TestADeliveryThatStartedNothing(t *testing.T) {
	var out bytes.Buffer
	c := &console.Console{Out: &out, Err: &out, Output: "table", Now: time.Now, NoTrunc: true, Getenv: func(string) string { return "" }}
	err := printDelivery(c, client.Delivery{ID: "d", Status: "processed", Decisions: json.RawMessage(`[
		{"workflow":"ci","matched":false,"checks":[
			{"trigger":0,"check":"event","pattern":"push","value":"push","passed":true},
			{"trigger":0,"check":"branches","pattern":"main","value":"topic","passed":false},
			{"trigger":0,"check":"paths","pattern":"src/**","value":"README.md","passed":false},
			{"trigger":1,"check":"event","pattern":"schedule","value":"push","passed":false}]},
		{"workflow":"hook","matched":false,"checks":[
			{"trigger":0,"check":"event","pattern":"generic_webhook","value":"push","passed":false},
			{"trigger":1,"check":"event","pattern":"tag","value":"push","passed":false}]},
		{"workflow":"fields","matched":false,"checks":[{"trigger":0,"check":"match","pattern":"{\"a\":1}","value":"{\"a\":2}","passed":false}]},
		{"workflow":"new","matched":false,"checks":[{"trigger":0,"check":"event","reason":"this version does not know the trigger","passed":false}]}
	]`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`branches: "topic" is not in "main"`, `paths: "README.md" is not in "src/**"`,
		"it is push, and the workflow waits for generic_webhook, tag", `match: {"a":1}, and the payload has {"a":2}`,
		"no trigger is for this event", "this delivery started nothing",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), "not matched") != 4 {
		t.Errorf("one line a workflow:\n%s", out.String())
	}
}
