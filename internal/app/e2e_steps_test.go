package app

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/storetest"
)

const adding = `
name: adding
on: workflow_dispatch
jobs:
  plan:
    runs-on: linux
    steps:
      - run: |
          cat > jobs.yaml <<'END'
          jobs:
            one:
              runs-on: linux
              steps: [{run: echo one}]
            two:
              needs: [one, plan]
              runs-on: linux
              steps: [{run: echo two}]
          END
          kici job add jobs.yaml --request-id same
          kici job add jobs.yaml --request-id same
          kici event emit deploy.done --payload '{"env":"prod"}' --request-id e --output json
          kici event emit deploy.done --request-id e
          if kici event emit kici.forged; then exit 9; fi
          if echo 'jobs: {three: {steps: []}}' | kici job add -; then exit 9; fi
`

// A step of a real agent adds two jobs, one of which needs the other, and emits an event, each once (EVT-1). XC-42: a reserved name is
// refused, naming the prefix. The timeline tells it.
func TestE2EStepsEmitAndAddJobs(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		w := newWorld(t, func(o *Options) { o.DatabaseURL = d.Config.URL })
		if err := os.WriteFile(w.file("repo", ".kici", "workflows", "adding.yaml"), []byte(adding), 0o600); err != nil {
			t.Fatal(err)
		}
		w.git("add", "-A")
		w.git("commit", "-q", "-m", "adds jobs")
		runID := w.startRun("adding")
		run := w.ended(runID)
		got := map[string]string{}
		var plan string
		for _, j := range run.Jobs {
			got[j.Name] = j.Status
			if j.Name == "plan" {
				plan = j.ID
			}
		}
		text := w.log(runID, plan, 1)
		if len(got) != 3 || got["plan"] != "success" || got["one"] != "success" || got["two"] != "success" || run.Status != "success" {
			t.Fatalf("run %s, jobs %v\n%s", run.Status, got, text)
		}
		if strings.Count(text, "one\ntwo\n") != 2 || !strings.Contains(text, `"kici."`) || !strings.Contains(text, "three") {
			t.Errorf("log of plan:\n%s", text)
		}
		wantEvent(t, w, runID, plan, text)
		wantTimeline(t, w, runID)
		w.noAgents()
	})
}

func wantEvent(t *testing.T, w *world, runID, jobID, text string) {
	t.Helper()
	rows, err := w.s.store.Read().EventsOfRun(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range rows {
		if e.EventName != "deploy.done" {
			continue
		}
		n++
		var payload map[string]string
		if json.Unmarshal([]byte(e.Payload), &payload) != nil || payload["env"] != "prod" || e.SourceJobID != jobID || e.ChainDepth != 1 {
			t.Errorf("%+v", e)
		}
		if strings.Count(text, e.ID) != 2 {
			t.Errorf("the step was not told %s twice:\n%s", e.ID, text)
		}
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

func wantTimeline(t *testing.T, w *world, runID string) {
	t.Helper()
	line, err := w.api.Timeline(t.Context(), runID, client.TimelineQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, e := range line.Entries {
		have[e.Kind+" "+e.Job]++
	}
	for _, k := range []string{
		"delivered ", "created ", "queued plan", "agent_requested plan", "assigned plan", "started plan", "jobs_added plan", "added one", "added two",
		"event_emitted plan", "finished plan", "ready two", "finished two", "run_finished ",
	} {
		if have[k] != 1 {
			t.Errorf("%q is in the timeline %d times: %v", k, have[k], have)
		}
	}
}
