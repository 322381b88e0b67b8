package workflow

import (
	"testing"

	"github.com/kici-go/kici/internal/ci"
)

func TestRepos(t *testing.T) {
	for _, c := range []struct {
		patterns string
		repo     string
		want     bool
	}{
		{"[acme/*]", "acme/shop", true},
		{"[acme/*]", "other/shop", false},
		{"[acme/*, '!acme/secret']", "acme/secret", false},
		{"['!acme/secret', acme/*]", "acme/secret", false}, // the order does not matter, unlike for branches
		{"['!acme/secret']", "acme/shop", true},
		{"['!acme/secret']", "acme/secret", false},
		{"['**']", "group/sub/project", true},
	} {
		w := workflowOn(t, "\n  push: {branches: [main], repos: "+c.patterns+"}")
		if !Global(w) {
			t.Errorf("%s: not global", c.patterns)
		}
		d := Match(w, ci.Event{Type: "push", Branch: "main", Repo: c.repo})
		if d.Matched != c.want {
			t.Errorf("%s of %s: %+v", c.patterns, c.repo, d)
		}
		if d := Match(w, ci.Event{Type: "push", Branch: "dev", Repo: c.repo}); d.Matched {
			t.Errorf("%s: the other filters do not count: %+v", c.patterns, d)
		}
	}
}

func TestOnlyTriggersThatNameRepositoriesFollowOthers(t *testing.T) {
	w := workflowOn(t, "\n  push:\n  pull_request: {types: [opened], repos: [acme/*]}")
	push, pull := ci.Event{Type: "push", Branch: "main", Repo: "acme/shop"}, ci.Event{Type: "pr", Action: "opened", Repo: "acme/shop"}
	if MatchGlobal(w, push).Matched || !Match(w, push).Matched || FollowsType(w, "push") {
		t.Error("a push of another repository")
	}
	if d := MatchGlobal(w, pull); !d.Matched || w.On[d.Trigger].Type != TypePullRequest || !FollowsType(w, "pr") {
		t.Errorf("%+v", d)
	}
	if Global(workflowOn(t, " push")) {
		t.Error("a plain push is global")
	}
}

func TestScheduleInputs(t *testing.T) {
	w := workflowOn(t, "\n  schedule: [{cron: '0 4 * * *', inputs: {env: {default: prod}, level: {type: integer}}}]")
	got, err := ScheduleInputs(ScheduleTrigger(w))
	if err != nil || got["env"] != "prod" || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	_, problems := Compile([]Source{{Path: FilesDir + "/x.yaml", Data: []byte("on: {schedule: [{cron: '0 4 * * *', inputs: {env: {required: true}}}]}\njobs: {a: {runs-on: linux, steps: [{run: x}]}}")}})
	if !HasErrors(problems) {
		t.Error("an input that nobody can give is accepted")
	}
}
