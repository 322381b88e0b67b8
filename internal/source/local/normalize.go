package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/source"
)

// The lock's names of event types (WF-12).
const (
	typePush = "push"
	typeTag  = "tag"
	typePR   = "pr"
)

// Normalize understands push and pull_request in the shape that the forges use.
func (s *Source) Normalize(ctx context.Context, d source.Delivery) (ci.Event, error) {
	ev := ci.Event{Source: s.cfg.Name, Repo: s.cfg.Repo, Payload: json.RawMessage(d.Body)}
	var err error
	switch d.Event {
	case "push":
		err = push(d.Body, &ev)
	case "pull_request":
		if err = pullRequest(d.Body, &ev); err == nil {
			err = s.branchPoint(ctx, &ev)
		}
	default:
		err = fmt.Errorf("%w: a local source knows push and pull_request, not %q", source.ErrIgnored, d.Event)
	}
	if err != nil {
		return ev, err
	}
	ev.DefaultBranch, err = s.DefaultBranch(ctx)
	if errors.Is(err, source.ErrNotFound) { // a detached HEAD: no branch is the default
		err = nil
	}
	return ev, err
}

func push(body []byte, ev *ci.Event) error {
	var p source.Payload
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("%w: push: %w", source.ErrInvalid, err)
	}
	ev.Ref, ev.SHA, ev.Actor = p.Ref, p.After, source.Bound(p.Pusher.Name, source.MaxIDBytes)
	if err := git.CheckRef(p.Ref); err != nil {
		return fmt.Errorf("%w: push: %w", source.ErrInvalid, err)
	}
	if branch, ok := strings.CutPrefix(p.Ref, "refs/heads/"); ok {
		ev.Type, ev.Branch = typePush, branch
	} else if tag, ok := strings.CutPrefix(p.Ref, "refs/tags/"); ok {
		ev.Type, ev.Tag = typeTag, tag
	} else {
		return fmt.Errorf("%w: %s is neither a branch nor a tag", source.ErrIgnored, p.Ref)
	}
	if !git.IsZero(p.Before) {
		if err := git.CheckSHA(p.Before); err != nil {
			return fmt.Errorf("%w: push: before: %w", source.ErrInvalid, err)
		}
		ev.Before = p.Before
	}
	if p.Deleted || git.IsZero(p.After) {
		ev.Deleted, ev.SHA = true, ""
		return fmt.Errorf("%w: %s was deleted", source.ErrIgnored, p.Ref)
	}
	if err := git.CheckSHA(p.After); err != nil {
		return fmt.Errorf("%w: push: after: %w", source.ErrInvalid, err)
	}
	return nil
}

// branchPoint makes Before the commit where the request left its base, so that what its base got since does not count as changed.
func (s *Source) branchPoint(ctx context.Context, ev *ci.Event) error {
	at, err := s.repo.MergeBase(ctx, ev.BaseSHA, ev.SHA)
	if err = s.translate(err); errors.Is(err, source.ErrNotFound) {
		return nil // the base is unknown here: the difference to it will say so
	}
	if at != "" {
		ev.Before = at
	}
	return err
}

type pullRequestPayload struct {
	Action      string `json:"action"`
	Number      int64  `json:"number"`
	PullRequest struct {
		Title string           `json:"title"`
		Head  pullRequestPoint `json:"head"`
		Base  pullRequestPoint `json:"base"`
		User  struct {
			Login string `json:"login"`
		} `json:"user"`
	} `json:"pull_request"`
}

type pullRequestPoint struct {
	Ref  string `json:"ref"`
	SHA  string `json:"sha"`
	Repo struct {
		Fork     bool   `json:"fork"`
		FullName string `json:"full_name"`
	} `json:"repo"`
}

func pullRequest(body []byte, ev *ci.Event) error {
	var p pullRequestPayload
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("%w: pull_request: %w", source.ErrInvalid, err)
	}
	head, base := p.PullRequest.Head, p.PullRequest.Base
	ev.Type, ev.Action, ev.Number, ev.Title = typePR, source.Bound(p.Action, source.MaxEventBytes), p.Number, source.Bound(p.PullRequest.Title, 300)
	ev.SHA, ev.BaseSHA, ev.Before = head.SHA, base.SHA, base.SHA
	ev.SourceBranch, ev.TargetBranch, ev.Branch = head.Ref, base.Ref, head.Ref
	ev.Ref = fmt.Sprintf("refs/pull/%d/head", p.Number)
	ev.Actor = source.Bound(p.PullRequest.User.Login, source.MaxIDBytes)
	ev.Fork = head.Repo.Fork || head.Repo.FullName != base.Repo.FullName
	for name, ref := range map[string]string{"head": head.Ref, "base": base.Ref} {
		if err := git.CheckRef("refs/heads/" + ref); err != nil {
			return fmt.Errorf("%w: pull_request.%s: %w", source.ErrInvalid, name, err)
		}
	}
	for name, sha := range map[string]string{"head": head.SHA, "base": base.SHA} {
		if err := git.CheckSHA(sha); err != nil {
			return fmt.Errorf("%w: pull_request.%s: %w", source.ErrInvalid, name, err)
		}
	}
	if ev.Fork {
		return fmt.Errorf("%w: pull request %d comes from a fork, which is not run by default", source.ErrIgnored, p.Number)
	}
	return nil
}
