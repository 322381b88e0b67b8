package web

import (
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// group is a concurrency group of one place.
func group(key string) *lock.Concurrency { return &lock.Concurrency{Group: key} }

func TestQueueShowsWhoHoldsAGroupAndWhoWaits(t *testing.T) {
	s := newSite(t, "/ci")
	var ids []string
	for range 3 {
		ids = append(ids, s.world.Run(readtest.NewRun{Title: "ship <it>", Concurrency: group("deploy <prod>")}))
	}
	s.world.Run(readtest.NewRun{Key: readtest.Other, Repo: "acme/site", Concurrency: group("site only")})
	text := s.page("/ci/queue")
	for _, want := range []string{"deploy &lt;prod&gt;", "1 place, 2 wait", "holds it", ">next<", "1 before it", "ship &lt;it&gt;", "site only", "2 wait for concurrency groups"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	at := -1
	for _, id := range ids {
		i := strings.Index(text, `data-href="/ci/runs/`+id+`"`)
		if i <= at {
			t.Errorf("run %s stands at %d, after %d", id, i, at)
		}
		at = i
	}
	s.doors.scope = readtest.Key
	if text := s.page("/ci/queue"); strings.Contains(text, "site only") || !strings.Contains(text, "deploy &lt;prod&gt;") {
		t.Error("a token of one source sees the groups of another, or not its own")
	}
}
