package web

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// ended is a run of two jobs of which the first has failed.
func (s *site) ended() (run, build string) {
	s.t.Helper()
	run = s.world.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("build"), readtest.Job("ship", "build")}})
	build = s.world.JobID(run, "build")
	s.world.Agent("agent-1", build)
	s.world.Online("agent-1")
	s.world.Assign(run, build, "agent-1")
	s.world.Start(run, build, "agent-1")
	s.world.Finish(build, "agent-1", ci.JobFailed)
	return run, build
}

func TestTheRecordOfARun(t *testing.T) {
	s := newSite(t, "/ci")
	run, build := s.ended()
	text := s.page("/ci/runs/" + run + "/timeline")
	last := -1
	for _, want := range []string{"was created by push", "it waits for an agent", "assigned to agent agent-1", "began to work on it", "it ended: failed", "the run ended: failed"} {
		i := strings.Index(text, want)
		if i <= last {
			t.Errorf("%q stands at %d, after %d", want, i, last)
		}
		last = i
	}
	if !strings.Contains(text, `href="/ci/agents?all=1#agent-agent-1"`) || strings.Contains(text, "sse-connect") {
		t.Error("an agent has no link, or a run that has ended is followed")
	}
	for _, by := range []string{build, "build"} {
		text = s.page("/ci/runs/" + run + "/timeline?job=" + by)
		if strings.Contains(text, "was created by push") || !strings.Contains(text, "began to work on it") || strings.Contains(text, ">ship</a>") {
			t.Error("the filter by job shows what is not of it, or not what is")
		}
	}
	if r := s.ask("owner", http.MethodGet, "/ci/runs/"+run+"/timeline?job=none", nil); r.StatusCode != http.StatusNotFound {
		t.Error(r.StatusCode)
	}
	text = s.page("/ci/runs/" + run)
	first, end := strings.Index(text, "the run ended: failed"), strings.Index(text, "began to work on it")
	if first < 0 || end < first || !strings.Contains(text, `href="/ci/runs/`+run+`/timeline"`) {
		t.Error("the run's page does not end with what happened last")
	}
	if text := s.page("/ci/runs/" + run + "/jobs/" + build); !strings.Contains(text, "/timeline?job="+build) {
		t.Error("a job has no link to what happened to it")
	}
	s.doors.scope = readtest.Other
	if r := s.ask("owner", http.MethodGet, "/ci/runs/"+run+"/timeline", nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("the record of another source's run: %d", r.StatusCode)
	}
}

func TestARunThatIsHeldSaysWhoHoldsIt(t *testing.T) {
	s := newSite(t, "")
	one := s.world.Run(readtest.NewRun{Concurrency: group("prod")})
	two := s.world.Run(readtest.NewRun{Concurrency: group("prod")})
	s.world.Run(readtest.NewRun{Concurrency: group("prod")})
	text := s.page("/runs/" + two)
	for _, want := range []string{"#2 waits for the concurrency group prod", "Held back by the concurrency group", `href="/runs/` + one + `"`, "this: next", "1 place, 2 wait", `href="/queue#held"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if text := s.page("/runs/" + one); strings.Contains(text, "Held back by") {
		t.Error("the run that holds the group is said to be held")
	}
}

func TestARunShowsWhatFollowedFromItAndWhatStartedIt(t *testing.T) {
	s := newSite(t, "")
	one, _ := s.ended()
	two := s.world.Run(readtest.NewRun{Workflow: "after"})
	there := s.world.Run(readtest.NewRun{Key: readtest.Other, Repo: "acme/secret-site"})
	s.emit(db.InsertEventParams{ID: "e1", EventName: "deploy.ready", SourceRoutingKey: readtest.Key, SourceRunID: one}, event.OutcomeMatched, "")
	s.world.Write(func(tx *store.Tx) error {
		for reg, run := range map[string]string{"r1": two, "r2": there} {
			if _, err := tx.InsertEventRun(context.Background(), "e1", reg, run); err != nil {
				return err
			}
		}
		return nil
	})
	text := s.page("/runs/" + one)
	for _, want := range []string{"What followed from it", `href="/events/e1"`, `href="/runs/` + two + `"`, "acme/secret-site"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if text := s.page("/runs/" + two); !strings.Contains(text, `href="/events/e1" title="the event that started it"`) {
		t.Error("the run does not lead to the event that started it")
	}
	s.doors.scope = readtest.Key
	if text := s.page("/runs/" + one); strings.Contains(text, "acme/secret-site") {
		t.Error("a token of one source sees the run of another")
	}
}

func TestEntriesHaveTheColourOfWhatTheySay(t *testing.T) {
	for text, want := range map[string]string{
		"it ended: success": "success", "it ended: failed: exit code 1": "failed", "it ended: failed, allowed": "allowed", "the run ended: cancelled (x)": "cancelled", "it ended: skipped": "skipped",
		"it ended": "skipped",
	} {
		if got := entryClass(client.TimelineEntry{Kind: "finished", Text: text}); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
