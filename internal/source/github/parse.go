package github

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// Parse understands pushes, pull requests and comments.
func (Dialect) Parse(d source.Delivery) (ci.Event, error) {
	var b body
	if err := json.Unmarshal(d.Body, &b); err != nil {
		return ci.Event{}, fmt.Errorf("%w: %s: %w", source.ErrInvalid, source.Bound(d.Event, source.MaxEventBytes), err)
	}
	ev := ci.Event{
		Repo: b.Repository.FullName, DefaultBranch: b.Repository.DefaultBranch, Actor: b.Sender.Login, Action: b.Action,
		Payload: json.RawMessage(d.Body),
	}
	switch d.Event {
	case "push":
		b.push(&ev)
	case "pull_request":
		return ev, b.pullRequest(&ev)
	case "issue_comment":
		return ev, b.issueComment(&ev)
	case "pull_request_review_comment":
		return ev, b.reviewComment(&ev)
	case "ping":
		return ev, fmt.Errorf("%w: GitHub says hello: the webhook works", source.ErrIgnored)
	default:
		return ev, fmt.Errorf("%w: GitHub's event %q starts nothing; kici takes push, pull_request, issue_comment and pull_request_review_comment",
			source.ErrIgnored, source.Bound(d.Event, source.MaxEventBytes))
	}
	return ev, nil
}

// body holds what is read of all events.
type body struct {
	Action     string `json:"action"`
	Number     int64  `json:"number"`
	Repository struct {
		FullName      string `json:"full_name"`
		DefaultBranch string `json:"default_branch"`
	} `json:"repository"`
	Sender user `json:"sender"`

	Ref        string `json:"ref"`
	Before     string `json:"before"`
	After      string `json:"after"`
	Deleted    bool   `json:"deleted"`
	HeadCommit *struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	} `json:"head_commit"`
	Pusher struct {
		Name string `json:"name"`
	} `json:"pusher"`

	PullRequest *pullRequest `json:"pull_request"`
	Issue       *struct {
		Number      int64           `json:"number"`
		Title       string          `json:"title"`
		PullRequest json.RawMessage `json:"pull_request"`
	} `json:"issue"`
	Comment *struct {
		Body string `json:"body"`
		User user   `json:"user"`
	} `json:"comment"`
}

type user struct {
	Login string `json:"login"`
}

type pullRequest struct {
	Number int64  `json:"number"`
	Title  string `json:"title"`
	User   user   `json:"user"`
	Head   point  `json:"head"`
	Base   point  `json:"base"`
}

type point struct {
	Ref  string `json:"ref"`
	SHA  string `json:"sha"`
	Repo *struct {
		FullName string `json:"full_name"`
	} `json:"repo"` // null when the fork was deleted
}

func (b body) push(ev *ci.Event) {
	ev.Type, ev.Ref, ev.SHA, ev.Before, ev.Deleted = "push", b.Ref, b.After, b.Before, b.Deleted
	if c := b.HeadCommit; c != nil {
		ev.Title = c.Message
		if strings.HasPrefix(b.Ref, "refs/tags/") && c.ID != "" { // of an annotated tag, `after` is the tag itself
			ev.SHA = c.ID
		}
	}
	if ev.Actor == "" {
		ev.Actor = b.Pusher.Name
	}
}

func (b body) pullRequest(ev *ci.Event) error {
	p := b.PullRequest
	if p == nil {
		return fmt.Errorf("%w: pull_request: the body has no pull_request", source.ErrInvalid)
	}
	ev.Type, ev.Number, ev.Title = "pr", p.Number, p.Title
	ev.SHA, ev.SourceBranch = p.Head.SHA, p.Head.Ref
	ev.BaseSHA, ev.TargetBranch = p.Base.SHA, p.Base.Ref
	ev.Ref = fmt.Sprintf("refs/pull/%d/head", p.Number)
	ev.Fork = p.Head.Repo == nil || !strings.EqualFold(p.Head.Repo.FullName, b.Repository.FullName)
	if ev.Actor == "" {
		ev.Actor = p.User.Login
	}
	return nil
}

func (b body) issueComment(ev *ci.Event) error {
	if b.Issue == nil || b.Comment == nil {
		return fmt.Errorf("%w: issue_comment: the body has no issue or no comment", source.ErrInvalid)
	}
	ev.Type, ev.CommentOn, ev.Number, ev.Title, ev.Comment = "comment", "issue", b.Issue.Number, b.Issue.Title, b.Comment.Body
	if len(b.Issue.PullRequest) > 0 && string(b.Issue.PullRequest) != "null" {
		ev.CommentOn = "pr"
	}
	return nil
}

func (b body) reviewComment(ev *ci.Event) error {
	if b.PullRequest == nil || b.Comment == nil {
		return fmt.Errorf("%w: pull_request_review_comment: the body has no pull_request or no comment", source.ErrInvalid)
	}
	ev.Type, ev.CommentOn, ev.Number, ev.Title, ev.Comment = "comment", "pr", b.PullRequest.Number, b.PullRequest.Title, b.Comment.Body
	return nil
}
