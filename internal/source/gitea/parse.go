package gitea

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
)

type repository struct {
	FullName      string `json:"full_name"`
	DefaultBranch string `json:"default_branch"`
}

type user struct {
	Login string `json:"login"`
}

// envelope is what every event has.
type envelope struct {
	Action     string     `json:"action"`
	Repository repository `json:"repository"`
	Sender     user       `json:"sender"`
}

// Parse turns a delivery into an event. A new branch or tag comes twice, as create and as push, and so does a deleted one: only
// push counts.
func (Dialect) Parse(d source.Delivery) (ci.Event, error) {
	ev := ci.Event{Payload: json.RawMessage(d.Body)}
	var e envelope
	if err := decode(d, &e); err != nil {
		return ev, err
	}
	if e.Repository.FullName == "" {
		return ev, missing(d.Event, "repository.full_name")
	}
	ev.Repo, ev.DefaultBranch, ev.Actor, ev.Action = e.Repository.FullName, e.Repository.DefaultBranch, e.Sender.Login, e.Action
	switch d.Event {
	case "push":
		return ev, push(d, &ev)
	case "pull_request":
		return ev, pullRequest(d, &ev)
	case "issue_comment":
		return ev, comment(d, &ev)
	case "create", "delete":
		return ev, fmt.Errorf("%w: %s comes as push too, which counts", source.ErrIgnored, d.Event)
	case "pull_request_comment", "pull_request_approved", "pull_request_rejected":
		return ev, fmt.Errorf("%w: a review (%s) starts nothing", source.ErrIgnored, d.Event)
	}
	return ev, fmt.Errorf("%w: a gitea source knows push, pull_request and issue_comment, not %q", source.ErrIgnored, d.Event)
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

// push is of a branch or a tag. For an annotated tag `after` is the tag's own object; the commit is in head_commit.
func push(d source.Delivery, ev *ci.Event) error {
	var p struct {
		Ref        string `json:"ref"`
		Before     string `json:"before"`
		After      string `json:"after"`
		HeadCommit struct {
			ID string `json:"id"`
		} `json:"head_commit"`
		Pusher user `json:"pusher"`
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
	ev.Type, ev.Ref, ev.Before, ev.SHA, ev.Action = "push", p.Ref, p.Before, p.After, ""
	if p.Pusher.Login != "" {
		ev.Actor = p.Pusher.Login
	}
	if git.IsZero(p.After) {
		ev.Deleted = true
		return nil
	}
	if p.Before == p.After && git.CheckRef(p.Ref) == nil { // the forge's button "Test delivery"
		return fmt.Errorf("%w: nothing was pushed: before and after are the same commit, as in a test delivery", source.ErrIgnored)
	}
	if strings.HasPrefix(p.Ref, "refs/tags/") && p.HeadCommit.ID != "" {
		ev.SHA = p.HeadCommit.ID
	}
	return nil
}

type pull struct {
	Number    int64  `json:"number"`
	Title     string `json:"title"`
	MergeBase string `json:"merge_base"`
	Head      point  `json:"head"`
	Base      point  `json:"base"`
}

type point struct {
	Label string      `json:"label"`
	Ref   string      `json:"ref"`
	SHA   string      `json:"sha"`
	Repo  *repository `json:"repo"` // null when it was deleted
}

// actions are Gitea's words that are not GitHub's. label_updated does not say whether labels came or went.
var actions = map[string]string{"synchronized": "synchronize", "label_updated": "labeled", "label_cleared": "unlabeled"}

func pullRequest(d source.Delivery, ev *ci.Event) error {
	var p struct {
		PullRequest *pull `json:"pull_request"`
	}
	if err := decode(d, &p); err != nil {
		return err
	}
	switch {
	case p.PullRequest == nil:
		return missing(d.Event, "pull_request")
	case ev.Action == "":
		return missing(d.Event, "action")
	case p.PullRequest.Number == 0:
		return missing(d.Event, "pull_request.number")
	case p.PullRequest.Head.SHA == "":
		return missing(d.Event, "pull_request.head.sha")
	}
	pr := *p.PullRequest
	if word, ok := actions[ev.Action]; ok {
		ev.Action = word
	}
	ev.Type, ev.Number, ev.Title = "pr", pr.Number, pr.Title
	ev.Ref = fmt.Sprintf("refs/pull/%d/head", pr.Number)
	ev.SHA, ev.BaseSHA, ev.Before = pr.Head.SHA, pr.Base.SHA, pr.MergeBase
	ev.SourceBranch, ev.TargetBranch, ev.Fork = pr.Head.branch(), pr.Base.Ref, pr.outside()
	return nil
}

// branch is the name of the head's branch; after the branch was deleted, only label has it.
func (p point) branch() string {
	if strings.HasPrefix(p.Ref, "refs/pull/") && p.Label != "" {
		return p.Label
	}
	return p.Ref
}

// outside reports whether the request may come from somebody who cannot push here: from another repository, from one that is gone,
// or by AGit (git push origin HEAD:refs/for/main), which needs no more than the right to read and claims the base as its
// repository. What tells AGit is that its head has no label.
func (p pull) outside() bool {
	return p.Head.Repo == nil || p.Base.Repo == nil || !strings.EqualFold(p.Head.Repo.FullName, p.Base.Repo.FullName) || p.Head.Label == ""
}

func comment(d source.Delivery, ev *ci.Event) error {
	var p struct {
		Issue *struct {
			Number int64  `json:"number"`
			Title  string `json:"title"`
		} `json:"issue"`
		Comment *struct {
			Body string `json:"body"`
		} `json:"comment"`
		IsPull bool `json:"is_pull"`
	}
	if err := decode(d, &p); err != nil {
		return err
	}
	switch {
	case ev.Action == "":
		return missing(d.Event, "action")
	case p.Issue == nil || p.Issue.Number == 0:
		return missing(d.Event, "issue.number")
	case p.Comment == nil:
		return missing(d.Event, "comment")
	}
	ev.Type, ev.Number, ev.Title, ev.Comment, ev.CommentOn = "comment", p.Issue.Number, p.Issue.Title, p.Comment.Body, "issue"
	if p.IsPull {
		ev.CommentOn = "pr"
	}
	return nil
}
