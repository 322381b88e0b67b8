package read_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// whys is the headline of every job of a run, asked for one by one, and checks that the run's page says the same.
func whys(t *testing.T, r *read.Reads, runID string) map[string]client.Why {
	t.Helper()
	d, err := r.Run(context.Background(), scope, runID)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]client.Why{}
	for _, j := range d.Jobs {
		w, err := r.Why(context.Background(), scope, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !ci.JobStatus(j.Status).Terminal() && (w.Headline == "" || len(w.Reasons) == 0 && w.Headline == "") {
			t.Errorf("%s is %s and nothing says why", j.Name, j.Status)
		}
		if j.Status != string(ci.JobSuccess) && j.Status != string(ci.JobRunning) && j.Why != w.Headline {
			t.Errorf("%s: the run's page says %q, the job's %q", j.Name, j.Why, w.Headline)
		}
		out[j.Name] = w
	}
	return out
}

func wantWhy(t *testing.T, got client.Why, kind, headline string) {
	t.Helper()
	if got.Headline != headline || len(got.Reasons) == 0 || got.Reasons[0].Kind != kind {
		t.Errorf("%s: %q %+v, want %s %q", got.Name, got.Headline, got.Reasons, kind, headline)
	}
}

// Every job that does not go on says why, and it is true: held by a group, by its run's group, by the window of its fan-out, by needs.
func TestWhyHeld(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		r := reads(st)
		deploy := &lock.Concurrency{Group: "Prod"}
		holder := w.Run(readtest.NewRun{Concurrency: deploy})
		second := w.Run(readtest.NewRun{Concurrency: deploy, Jobs: []lock.Job{readtest.Job("a"), readtest.Job("b", "a")}})
		third := w.Run(readtest.NewRun{Concurrency: deploy})
		got := whys(t, r, second)
		wantWhy(t, got["a"], "concurrency", `its run waits for concurrency group "prod", acme/shop#1 holds it`)
		wantWhy(t, got["b"], "need", got["a"].Headline)
		got = whys(t, r, third)
		wantWhy(t, got["build"], "concurrency", `its run waits for concurrency group "prod", acme/shop#1 holds it; one waits before it`)
		if u := got["build"].Reasons[0].Until; u == nil {
			t.Error("until when")
		}

		j := readtest.Job("deploy")
		j.Concurrency = deploy
		m := readtest.Job("test")
		m.Matrix = &lock.Matrix{Dimensions: map[string][]json.RawMessage{"n": {json.RawMessage("1"), json.RawMessage("2"), json.RawMessage("3")}}, Order: []string{"n"}}
		m.MaxParallel = 2
		fourth := w.Run(readtest.NewRun{Jobs: []lock.Job{j, m, readtest.Job("after", "deploy")}})
		got = whys(t, r, fourth)
		wantWhy(t, got["deploy"], "concurrency", `it waits for concurrency group "prod", acme/shop#1 holds it; 2 wait before it`)
		wantWhy(t, got["test (3)"], "max_parallel", "waits for its turn: max-parallel is 2, and test (1) and test (2) have not ended")
		wantWhy(t, got["after"], "need", "waits for deploy")

		if _, err := w.Runs.Cancel(context.Background(), run.CancelRequest{OrgID: readtest.Org, RunID: holder, By: "ada"}); err != nil {
			t.Fatal(err)
		}
		wantWhy(t, whys(t, r, second)["a"], "concurrency", `its run has a place in concurrency group "prod" and goes on in a moment`)
		w.Run(readtest.NewRun{Concurrency: &lock.Concurrency{Group: "prod", CancelInProgress: true}})
		wantWhy(t, whys(t, r, third)["build"], "concurrency", `its run is about to be ended: superseded by run #5 in concurrency group "prod"`)
		if text := whys(t, r, second)["a"].Headline; !strings.HasPrefix(text, "its run is about to be ended") {
			t.Error(text)
		}
	})
}
