package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Run is the part of a run that expressions see.
type Run struct {
	ID, Repo, Workflow, Actor string
	Number, Attempt           int64
}

// Facts is everything that expressions of a run, or of one of its jobs, can see before an agent has the job (D8). Job, Matrix,
// Needs and Status are those of one job and absent for the run as a whole.
type Facts struct {
	Server   string // address for people
	Run      Run
	Event    ci.Event
	Inputs   map[string]any
	Workflow *lock.Workflow

	Job    *lock.Job
	Matrix json.RawMessage
	Needs  map[string]any // NeedsContext
	Status string         // Word; what success(), failure() and cancelled() ask

	Sandbox Sandbox // what jobs of the organisation may ask of one
}

// Contexts returns the values behind ${{ }} by name.
func (f Facts) Contexts() map[string]any {
	out := map[string]any{"kici": f.kici(), "inputs": f.Inputs}
	if f.Inputs == nil {
		out["inputs"] = map[string]any{}
	}
	if f.Matrix != nil {
		out["matrix"] = f.Matrix
	}
	if f.Needs != nil {
		out["needs"] = f.Needs
	}
	return out
}

// kici is the kici (github) context, with GitHub's property names.
func (f Facts) kici() map[string]any {
	refName, refType := refWords(f.Event)
	k := map[string]any{
		"event_name": EventName(f.Event), "ref": f.Event.Ref, "ref_name": refName, "ref_type": refType, "sha": f.Event.SHA,
		"repository": f.Run.Repo, "repository_owner": owner(f.Run.Repo), "actor": f.Run.Actor, "triggering_actor": f.Run.Actor,
		"run_id": f.Run.ID, "run_number": strconv.FormatInt(f.Run.Number, 10), "run_attempt": strconv.FormatInt(f.Run.Attempt, 10),
		"workflow": f.Run.Workflow, "base_ref": f.Event.TargetBranch, "head_ref": f.Event.SourceBranch, "server_url": f.Server,
		"event": f.Event.Payload,
	}
	if len(f.Event.Payload) == 0 {
		k["event"] = map[string]any{}
	}
	if f.Job != nil {
		k["job"] = f.Job.Name
	}
	return k
}

func owner(repo string) string {
	o, _, _ := strings.Cut(repo, "/")
	return o
}

// EventName is the name that authors write in YAML for an event's lock type.
func EventName(e ci.Event) string {
	switch e.Type {
	case "pr":
		return "pull_request"
	case "tag":
		return "push"
	case "dispatch":
		if e.Action != "" || e.Name != "" {
			return "repository_dispatch"
		}
		return "workflow_dispatch"
	case "comment":
		return "issue_comment"
	case "review":
		return "pull_request_review"
	case "review_comment":
		return "pull_request_review_comment"
	}
	return e.Type
}

func refWords(e ci.Event) (name, kind string) {
	switch {
	case e.Tag != "":
		return e.Tag, "tag"
	case e.Type == "pr" && e.Number > 0:
		return fmt.Sprintf("%d/merge", e.Number), "branch"
	case strings.HasPrefix(e.Ref, "refs/tags/"):
		return strings.TrimPrefix(e.Ref, "refs/tags/"), "tag"
	case e.Branch != "":
		return e.Branch, "branch"
	}
	return strings.TrimPrefix(e.Ref, "refs/heads/"), "branch"
}
