package localcmd

import (
	"encoding/json"
	"fmt"
	"os/user"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/agent/local"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// eventNames are the events that can be pretended, in the order in which they are tried.
var eventNames = []string{"push", "pull_request", "workflow_dispatch"}

// eventOf makes the event that the run pretends, with the inputs that it gives. A workflow that it would not start runs all the
// same, with a word about it.
func (p *prepared) eventOf(w *lock.Workflow, f flags) (ci.Event, map[string]any, error) {
	given, err := readInputs(f)
	if err != nil {
		return ci.Event{}, nil, err
	}
	name := f.event
	switch {
	case name != "" && !slices.Contains(eventNames, name):
		return ci.Event{}, nil, console.Usage("--event is %s, not %q", strings.Join(eventNames, ", "), name)
	case len(given) > 0 && name != "" && name != "workflow_dispatch":
		return ci.Event{}, nil, console.Usage("inputs belong to workflow_dispatch, not to %s", name)
	case len(given) > 0:
		name = "workflow_dispatch"
	case name == "":
		name = p.firstMatch(w)
	}
	ev := makeEvent(p.tree, name)
	if name == "workflow_dispatch" {
		if ev.Inputs, err = inputsOf(w, given); err != nil {
			return ev, nil, err
		}
	}
	if d := workflow.Match(w, ev); !d.Matched {
		p.notices = append(p.notices, fmt.Sprintf("on a server, %s would not start %s: %s", name, w.Name, whyNot(d)))
	}
	return ev, ev.Inputs, nil
}

func (p *prepared) firstMatch(w *lock.Workflow) string {
	for _, name := range eventNames {
		if workflow.Match(w, makeEvent(p.tree, name)).Matched {
			return name
		}
	}
	return eventNames[0]
}

// whyNot is the last thing that did not fit, of the trigger that came nearest.
func whyNot(d workflow.Decision) string {
	text, most, passed := "it has no such trigger", 0, map[int]int{}
	for _, c := range d.Checks {
		if c.Passed {
			passed[c.Trigger]++
			continue
		}
		if passed[c.Trigger] >= max(most, 1) {
			most = passed[c.Trigger]
			text = fmt.Sprintf("%s %q does not fit %q", c.Check, c.Value, c.Pattern)
			if c.Reason != "" {
				text = c.Reason
			}
		}
	}
	return text
}

func inputsOf(w *lock.Workflow, given map[string]any) (map[string]any, error) {
	t := workflow.DispatchTrigger(w)
	switch {
	case t == nil && len(given) > 0:
		return nil, console.Usage("the workflow %s has no workflow_dispatch trigger, so it takes no inputs", w.Name)
	case t == nil:
		return nil, nil
	}
	inputs, problems := workflow.ResolveInputs(t, given)
	if workflow.HasErrors(problems) {
		texts := make([]string, len(problems))
		for i, problem := range problems {
			texts[i] = problem.Message
			if problem.Cure != "" {
				texts[i] += " (" + problem.Cure + ")"
			}
		}
		return nil, console.Usage("%s; give inputs with --input name=value", strings.Join(texts, "; "))
	}
	return inputs, nil
}

// makeEvent pretends that the tree's commit was pushed, offered as a pull request to the default branch, or that somebody
// started the workflow by hand.
func makeEvent(t local.Tree, name string) ci.Event {
	ev := ci.Event{
		Type: workflow.TypePush, Repo: t.Name, SHA: t.SHA, Branch: t.Branch, DefaultBranch: t.Default, Title: t.Title, Actor: whoami(),
		ChangedFilesErr: "a local run compares no commits",
	}
	if t.Branch != "" {
		ev.Ref = "refs/heads/" + t.Branch
	}
	payload := map[string]any{
		"ref": ev.Ref, "after": t.SHA, "repository": map[string]any{"full_name": t.Name, "default_branch": t.Default},
		"sender": map[string]any{"login": ev.Actor}, "head_commit": map[string]any{"id": t.SHA, "message": t.Title},
	}
	switch name {
	case "pull_request":
		ev.Type, ev.Action, ev.Branch, ev.SourceBranch, ev.TargetBranch = workflow.TypePullRequest, "synchronize", "", t.Branch, t.Default
		payload = map[string]any{
			"action": ev.Action, "repository": payload["repository"], "sender": payload["sender"],
			"pull_request": map[string]any{
				"title": t.Title, "head": map[string]any{"ref": t.Branch, "sha": t.SHA}, "base": map[string]any{"ref": t.Default},
			},
		}
	case "workflow_dispatch":
		ev.Type, ev.Name = workflow.TypeDispatch, workflow.ManualEvent
	}
	ev.Payload, _ = json.Marshal(payload) // texts always encode
	return ev
}

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
