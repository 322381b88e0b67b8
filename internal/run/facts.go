package run

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// facts is everything that expressions of a job can see before an agent has it (D8).
type facts struct {
	server   string
	run      db.LockRunRow
	event    ci.Event
	inputs   map[string]any
	workflow *lock.Workflow
	job      *lock.Job
	matrix   json.RawMessage
	needs    map[string]any
	status   string // expr.Env.Status
}

// runFacts is the part of a planned run's row that expressions see.
func runFacts(p Planned) db.LockRunRow {
	n := p.new
	return db.LockRunRow{
		ID: p.RunID, OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow.Name,
		Status: string(ci.RunPending), Title: p.Title, Ref: n.Event.Ref, Branch: branch(n.Event), Sha: n.Event.SHA,
		Actor: actor(n), TriggerEvent: n.TriggerEvent, TrustTier: string(n.TrustTier), IsFork: n.Event.Fork,
		ChainDepth: int64(n.ChainDepth), RunAttempt: max(n.Attempt, 1),
	}
}

func actor(n New) string {
	if n.Actor != "" {
		return n.Actor
	}
	return n.Event.Actor
}

// branch is what lists show: the branch, a tag's name, or a pull request's source.
func branch(e ci.Event) string {
	for _, b := range []string{e.Branch, e.SourceBranch, e.Tag} {
		if b != "" {
			return b
		}
	}
	return ""
}

// contexts returns the values behind ${{ }} by name.
func (f facts) contexts() map[string]any {
	out := map[string]any{"kici": f.kici(), "inputs": f.inputs}
	if f.inputs == nil {
		out["inputs"] = map[string]any{}
	}
	if f.matrix != nil {
		out["matrix"] = f.matrix
	}
	if f.needs != nil {
		out["needs"] = f.needs
	}
	return out
}

// kici is the kici (github) context, with GitHub's property names.
func (f facts) kici() map[string]any {
	refName, refType := refWords(f.event)
	k := map[string]any{
		"event_name": eventName(f.event), "ref": f.event.Ref, "ref_name": refName, "ref_type": refType, "sha": f.event.SHA,
		"repository": f.run.Repo, "repository_owner": owner(f.run.Repo), "actor": f.run.Actor, "triggering_actor": f.run.Actor,
		"run_id": f.run.ID, "run_number": strconv.FormatInt(f.run.Number, 10), "run_attempt": strconv.FormatInt(f.run.RunAttempt, 10),
		"workflow": f.run.Workflow, "base_ref": f.event.TargetBranch, "head_ref": f.event.SourceBranch, "server_url": f.server,
		"event": f.event.Payload,
	}
	if len(f.event.Payload) == 0 {
		k["event"] = map[string]any{}
	}
	if f.job != nil {
		k["job"] = f.job.Name
	}
	return k
}

func owner(repo string) string {
	o, _, _ := strings.Cut(repo, "/")
	return o
}

// eventName is the name that authors write in YAML for an event's lock type.
func eventName(e ci.Event) string {
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

// needsContext is needs.<job>.{result, outputs}. A fanned-out job shows one aggregated result, and its children's outputs
// merged in their order, where an empty value does not replace another.
func needsContext(rows []db.NeedsOfJobRow) map[string]any {
	results := map[string][]string{}
	outputs := map[string]map[string]any{}
	for _, r := range rows {
		name := r.NeedsName
		results[name] = append(results[name], ci.JobStatus(r.Status).Result(r.AllowedFailure))
		if outputs[name] == nil {
			outputs[name] = map[string]any{}
		}
		var own map[string]string
		_ = json.Unmarshal([]byte(r.Outputs), &own) // our own JSON
		for k, v := range own {
			if _, had := outputs[name][k]; v != "" || !had {
				outputs[name][k] = v
			}
		}
	}
	ctx := map[string]any{}
	for name, list := range results {
		ctx[name] = map[string]any{"result": worst(list), "outputs": outputs[name]}
	}
	return ctx
}

// worst is the result of a fanned-out job: any failure, else any cancelled, else skipped if all were, else success.
func worst(results []string) string {
	count := map[string]int{}
	for _, r := range results {
		count[r]++
	}
	switch {
	case count["failure"] > 0:
		return "failure"
	case count["cancelled"] > 0:
		return "cancelled"
	case len(results) > 0 && count["skipped"] == len(results):
		return "skipped"
	}
	return "success"
}
