package api

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/store/storetest"
)

// Clearing the queue and ending what stands still only count until they are told to do it (QUE-20).
func TestClearQueueAsks(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	for _, c := range []struct{ path, body, want string }{
		{"/queue/clear", "", `{"dryRun":true,"runs":1,"jobs":1}`},
		{"/queue/clear", `{"confirm":false}`, `{"dryRun":true,"runs":1,"jobs":1}`},
		{"/execution/purge-stale", "", `{"dryRun":true,"runs":[]}`},
		{"/execution/purge-stale", `{"idleMs":1}`, "at least 600000 ms"},
		{"/queue/clear", `{"confirm":true}`, `{"dryRun":false,"runs":1,"jobs":1}`},
		{"/queue/clear", `{"confirm":true}`, `{"dryRun":false,"runs":0,"jobs":0}`},
	} {
		if _, text := r.do("POST", admin+c.path, "admin", c.body); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, text, c.want)
		}
	}
	if status, text := r.do("GET", admin+"/runs/"+id, "admin", ""); status != 200 || !strings.Contains(text, `"status":"cancelled"`) {
		t.Errorf("%d %s", status, text)
	}
	if e := r.auth.last(); e.Action == "" {
		t.Error("nothing is recorded")
	}
}
