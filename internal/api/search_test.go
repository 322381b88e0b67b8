package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestSearchInALog(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	r.logs.add(r.JobID(id, "build"), 1, "one", "two", "another one")
	path := admin + "/runs/" + id + "/jobs/build/steps/1/logs"
	status, text := r.do("GET", path+"/search?q=one", "owner", "")
	var got client.LogMatches
	if err := json.Unmarshal([]byte(text), &got); status != 200 || err != nil || len(got.Lines) != 2 || got.Lines[1].N != 3 || !got.Complete {
		t.Errorf("%d %s", status, text)
	}
	for query, want := range map[string]int{
		"": 400, "?q=": 400, "?q=" + strings.Repeat("x", 201): 400, "?q=" + strings.Repeat("%C3%BC", 101): 400, "?q=x&cursor=bad": 400, "?q=nothing": 200,
	} {
		if status, text := r.do("GET", path+"/search"+query, "owner", ""); status != want {
			t.Errorf("%q: %d %s, want %d", query, status, text, want)
		}
	}
	if status, text := r.do("GET", path+"/raw", "owner", ""); status != 200 || text != "one\ntwo\nanother one\n" {
		t.Errorf("raw: %d %q", status, text)
	}
}
