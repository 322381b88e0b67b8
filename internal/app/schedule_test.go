package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
)

const secondly = `name: secondly
on:
  schedule: [{cron: '* * * * * *', inputs: {who: {default: clock}}}]
jobs:
  build:
    runs-on: nobody-has-this
    steps:
      - run: echo hello ${{ inputs.who }}
`

// From the default branch to a run by the clock: registered, due, event, run; then switched off, and started by hand.
func TestScheduleStartsRuns(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(filepath.Join(w.file("repo", ".kici", "workflows"), "secondly.yaml"), []byte(secondly), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "by the clock")
	if _, err := w.api.RefreshRegistrations(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	var run client.Run
	w.eventually("a run by the clock", func() bool {
		l, err := w.api.Runs(t.Context(), client.RunQuery{Workflow: "secondly"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.Runs {
			run = r
		}
		return len(l.Runs) > 1
	})
	d, err := w.api.Run(t.Context(), run.ID)
	if err != nil || !strings.HasPrefix(d.TriggerEvent, "schedule") || d.Branch != "main" || d.Inputs["who"] != "clock" {
		t.Errorf("%+v %v", d, err)
	}
	reg, err := w.api.Registration(t.Context(), "secondly")
	if err != nil || len(reg.Schedules) != 1 {
		t.Fatal(reg, err)
	}
	w.eventually("the schedule shows its run", func() bool {
		l, err := w.api.Schedules(t.Context(), client.ScheduleQuery{Workflow: "secondly"})
		return err == nil && len(l.Schedules) == 1 && l.Schedules[0].LastFiredAt != nil && len(l.Schedules[0].Next) == 3 && l.Schedules[0].LastRunID != ""
	})
	if _, err := w.api.EnableRegistration(t.Context(), "secondly", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.RunRegistration(t.Context(), "secondly", "x"); !client.IsStatus(err, 409) {
		t.Errorf("a disabled one runs: %v", err)
	}
	if _, err := w.api.EnableRegistration(t.Context(), "secondly", true); err != nil {
		t.Fatal(err)
	}
	one, err := w.api.RunRegistration(t.Context(), "secondly", "x")
	if err != nil {
		t.Fatal(err)
	}
	if two, err := w.api.RunRegistration(t.Context(), "secondly", "x"); err != nil || two.RunID != one.RunID {
		t.Errorf("%+v after %+v %v", two, one, err)
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("in vain: " + what)
		}
	}
}
