package gitlab

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
)

// envelope is what every event has.
type envelope struct {
	Project struct {
		Path          string `json:"path_with_namespace"`
		DefaultBranch string `json:"default_branch"`
	} `json:"project"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
}

// Parse turns a delivery into an event. GitLab sends nothing for a push of more branches or tags than its setting
// push_event_hooks_limit (3); those are found by comparing heads.
func (Dialect) Parse(d source.Delivery) (ci.Event, error) {
	ev := ci.Event{Payload: json.RawMessage(d.Body)}
	var e envelope
	if err := decode(d, &e); err != nil {
		return ev, err
	}
	if e.Project.Path == "" {
		return ev, missing(d.Event, "project.path_with_namespace")
	}
	ev.Repo, ev.DefaultBranch, ev.Actor = e.Project.Path, e.Project.DefaultBranch, e.User.Username
	switch d.Event {
	case "push", "tag_push":
		return ev, push(d, &ev)
	case "merge_request":
		return ev, mergeRequest(d, &ev)
	case "note":
		return ev, note(d, &ev)
	case "confidential_note":
		return ev, fmt.Errorf("%w: a confidential comment starts nothing", source.ErrIgnored)
	}
	return ev, fmt.Errorf("%w: a gitlab source knows push, tag_push, merge_request and note, not %q", source.ErrIgnored, d.Event)
}

// decode reads the body; errors name the field.
func decode(d source.Delivery, into any) error {
	if err := json.Unmarshal(d.Body, into); err != nil {
		return fmt.Errorf("%w: %s: %s", source.ErrInvalid, d.Event, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func missing(event, field string) error {
	return fmt.Errorf("%w: %s: %s is missing", source.ErrInvalid, event, field)
}

// push is of a branch or a tag. For an annotated tag `after` is the tag's own object; the commit is checkout_sha.
func push(d source.Delivery, ev *ci.Event) error {
	var p struct {
		Ref         string `json:"ref"`
		Before      string `json:"before"`
		After       string `json:"after"`
		CheckoutSHA string `json:"checkout_sha"`
		Username    string `json:"user_username"`
	}
	if err := decode(d, &p); err != nil {
		return err
	}
	switch {
	case p.Ref == "":
		return missing(d.Event, "ref")
	case p.After == "":
		return missing(d.Event, "after")
	}
	ev.Type, ev.Ref, ev.Before, ev.SHA, ev.Actor = "push", p.Ref, p.Before, p.After, p.Username
	if git.IsZero(p.After) {
		ev.Deleted = true
	} else if strings.HasPrefix(p.Ref, "refs/tags/") && p.CheckoutSHA != "" {
		ev.SHA = p.CheckoutSHA
	}
	return nil
}

type attributes struct {
	IID           int64  `json:"iid"`
	Action        string `json:"action"`
	Title         string `json:"title"`
	SourceBranch  string `json:"source_branch"`
	TargetBranch  string `json:"target_branch"`
	SourceProject int64  `json:"source_project_id"`
	TargetProject int64  `json:"target_project_id"`
	OldRev        string `json:"oldrev"` // only where new commits came
	LastCommit    struct {
		ID string `json:"id"`
	} `json:"last_commit"`
}

// mergeRequest has no base commit: GitLab does not tell it.
func mergeRequest(d source.Delivery, ev *ci.Event) error {
	var p struct {
		Attributes *attributes `json:"object_attributes"`
	}
	if err := decode(d, &p); err != nil {
		return err
	}
	switch {
	case p.Attributes == nil:
		return missing(d.Event, "object_attributes")
	case p.Attributes.Action == "":
		return missing(d.Event, "object_attributes.action")
	case p.Attributes.IID == 0:
		return missing(d.Event, "object_attributes.iid")
	case p.Attributes.LastCommit.ID == "":
		return missing(d.Event, "object_attributes.last_commit.id")
	}
	a := *p.Attributes
	ev.Type, ev.Action, ev.Number, ev.Title = "pr", a.action(), a.IID, a.Title
	ev.Ref = fmt.Sprintf("refs/merge-requests/%d/head", a.IID)
	ev.SHA, ev.SourceBranch, ev.TargetBranch = a.LastCommit.ID, a.SourceBranch, a.TargetBranch
	ev.Fork = a.SourceProject == 0 || a.SourceProject != a.TargetProject // 0 where the fork is gone
	if ev.Action == "" {
		return fmt.Errorf("%w: the action %q of a merge request starts nothing", source.ErrIgnored, source.Bound(a.Action, source.MaxEventBytes))
	}
	return nil
}

// action is GitHub's word, "" where it has none (approvals). An update is synchronize when commits came with it.
func (a attributes) action() string {
	switch a.Action {
	case "open":
		return "opened"
	case "reopen":
		return "reopened"
	case "close", "merge":
		return "closed"
	case "update":
		if a.OldRev != "" {
			return "synchronize"
		}
		return "edited"
	}
	return ""
}

type noted struct {
	IID   int64  `json:"iid"`
	Title string `json:"title"`
}

func note(d source.Delivery, ev *ci.Event) error {
	var p struct {
		Attributes *struct {
			Action string `json:"action"` // create or update; older versions leave it out
			Note   string `json:"note"`
			On     string `json:"noteable_type"`
			System bool   `json:"system"`
		} `json:"object_attributes"`
		MergeRequest *noted `json:"merge_request"`
		Issue        *noted `json:"issue"`
	}
	if err := decode(d, &p); err != nil {
		return err
	}
	a := p.Attributes
	if a == nil {
		return missing(d.Event, "object_attributes")
	}
	on, what := p.Issue, "issue"
	switch a.On {
	case "Issue":
		ev.CommentOn = "issue"
	case "MergeRequest":
		on, what, ev.CommentOn = p.MergeRequest, "merge_request", "pr"
	default:
		return fmt.Errorf("%w: a comment on %q starts nothing", source.ErrIgnored, source.Bound(a.On, source.MaxEventBytes))
	}
	switch {
	case a.System:
		return fmt.Errorf("%w: a comment by GitLab itself starts nothing", source.ErrIgnored)
	case on == nil || on.IID == 0:
		return missing(d.Event, what+".iid")
	}
	ev.Type, ev.Action, ev.Number, ev.Title, ev.Comment = "comment", "created", on.IID, on.Title, a.Note
	if a.Action == "update" {
		ev.Action = "edited"
	}
	return nil
}
