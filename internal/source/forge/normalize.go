package forge

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
	typePush    = "push"
	typeTag     = "tag"
	typePR      = "pr"
	typeComment = "comment"
)

// Bounds of what a body names.
const (
	maxTitle   = 300
	maxComment = 64 << 10
)

// Normalize makes the dialect's event whole and checks every word of it.
func (s *Source) Normalize(ctx context.Context, d source.Delivery) (ci.Event, error) {
	ev, err := s.parse(d)
	ev.Source = s.cfg.Name
	ev.Actor, ev.Action = source.Bound(ev.Actor, source.MaxIDBytes), source.Bound(ev.Action, source.MaxEventBytes)
	ev.Title, _, _ = strings.Cut(ev.Title, "\n")
	ev.Title = source.Bound(ev.Title, maxTitle)
	if len(ev.Payload) == 0 {
		ev.Payload = json.RawMessage(d.Body)
	}
	if err == nil && !strings.EqualFold(ev.Repo, s.opts.Repository) {
		err = fmt.Errorf("%w: it is about %q, and this source is for %s; if the repository was renamed, change the source's repository",
			source.ErrIgnored, source.Bound(ev.Repo, maxRepository), s.opts.Repository)
	}
	ev.Repo = s.repo()
	if err != nil {
		return ev, err
	}
	switch ev.Type {
	case typePush, typeTag:
		err = checkPush(&ev)
	case typePR:
		err = s.pullRequest(ctx, &ev)
	case typeComment: // needs the default branch first
	default:
		err = fmt.Errorf("%w: %s events start nothing", source.ErrIgnored, ev.Type)
	}
	if err == nil {
		err = s.defaultBranch(ctx, &ev)
	}
	if err == nil && ev.Type == typeComment {
		err = s.comment(ctx, &ev)
	}
	return ev, err
}

func (s *Source) parse(d source.Delivery) (ci.Event, error) {
	if d.Event != typePush || d.Headers[source.TriggerHeader] == "" {
		return s.dialect.Parse(d)
	}
	ev := ci.Event{Type: typePush, Repo: s.opts.Repository}
	var p source.Payload
	if err := json.Unmarshal(d.Body, &p); err != nil {
		return ev, fmt.Errorf("%w: push: %w", source.ErrInvalid, err)
	}
	ev.Ref, ev.SHA, ev.Before, ev.Deleted, ev.Actor = p.Ref, p.After, p.Before, p.Deleted, p.Pusher.Name
	return ev, nil
}

// checkPush tells branches from tags. What was deleted starts nothing.
func checkPush(ev *ci.Event) error {
	if err := git.CheckRef(ev.Ref); err != nil {
		return fmt.Errorf("%w: push: %w", source.ErrInvalid, err)
	}
	if branch, ok := strings.CutPrefix(ev.Ref, "refs/heads/"); ok {
		ev.Type, ev.Branch = typePush, branch
	} else if tag, ok := strings.CutPrefix(ev.Ref, "refs/tags/"); ok {
		ev.Type, ev.Tag = typeTag, tag
	} else {
		return fmt.Errorf("%w: %s is neither a branch nor a tag", source.ErrIgnored, ev.Ref)
	}
	if err := checkOptional("push: before", &ev.Before); err != nil {
		return err
	}
	if ev.Deleted || git.IsZero(ev.SHA) {
		ev.Deleted, ev.SHA = true, ""
		return fmt.Errorf("%w: %s was deleted", source.ErrIgnored, ev.Ref)
	}
	return checkSHA("push: after", ev.SHA)
}

func checkSHA(field, sha string) error {
	if err := git.CheckSHA(sha); err != nil {
		return fmt.Errorf("%w: %s: %w", source.ErrInvalid, field, err)
	}
	return nil
}

// checkOptional makes a commit id of zeros, which stands for none, empty.
func checkOptional(field string, sha *string) error {
	if git.IsZero(*sha) {
		*sha = ""
		return nil
	}
	return checkSHA(field, *sha)
}

// pullRequest checks the request and finds where it left its base. A fork's runs only where the source says so (D10).
func (s *Source) pullRequest(ctx context.Context, ev *ci.Event) error {
	for _, f := range []struct{ field, ref string }{
		{"head", "refs/heads/" + ev.SourceBranch}, {"base", "refs/heads/" + ev.TargetBranch}, {"ref", ev.Ref},
	} {
		if err := git.CheckRef(f.ref); err != nil {
			return fmt.Errorf("%w: pull request: %s: %w", source.ErrInvalid, f.field, err)
		}
	}
	if err := errors.Join(checkSHA("pull request: head", ev.SHA), checkOptional("pull request: base", &ev.BaseSHA)); err != nil {
		return err
	}
	ev.Branch = ev.SourceBranch
	if ev.Fork && s.opts.Forks != ForksRun {
		return fmt.Errorf("%w: pull request %d comes from a fork; those run nothing unless the source says `forks: run`", source.ErrIgnored, ev.Number)
	}
	if ev.BaseSHA == "" {
		base, err := s.mirror.Resolve(ctx, s.clone(), "refs/heads/"+ev.TargetBranch)
		if errors.Is(err, source.ErrNotFound) {
			return fmt.Errorf("%w: the base branch %s of pull request %d is gone", source.ErrIgnored, ev.TargetBranch, ev.Number)
		} else if err != nil {
			return err
		}
		ev.BaseSHA = base.SHA
	}
	return s.branchPoint(ctx, ev)
}

// branchPoint makes Before the commit where the request left its base, so that what its base got since does not count as changed.
func (s *Source) branchPoint(ctx context.Context, ev *ci.Event) error {
	at, err := s.mirror.MergeBase(ctx, s.clone(), ev.BaseSHA, ev.SHA)
	switch {
	case errors.Is(err, source.ErrNotFound) || err == nil && at == "": // nothing in common, or not there: the difference to the base will say so
		ev.Before = ev.BaseSHA
		return nil
	case err != nil:
		return err
	}
	ev.Before = at
	return nil
}

// defaultBranch fills the branch: the operator's word wins over the body's, and the forge is asked last.
func (s *Source) defaultBranch(ctx context.Context, ev *ci.Event) error {
	if s.opts.DefaultBranch != "" {
		ev.DefaultBranch = s.opts.DefaultBranch
	}
	if ev.DefaultBranch != "" {
		if err := git.CheckRef("refs/heads/" + ev.DefaultBranch); err != nil {
			return fmt.Errorf("%w: default branch: %w", source.ErrInvalid, err)
		}
		return nil
	}
	var err error
	ev.DefaultBranch, err = s.DefaultBranch(ctx)
	if errors.Is(err, source.ErrNotFound) { // an empty repository, or a detached head: no branch is the default
		err = nil
	}
	return err
}

// comment lets a comment run on the head of the default branch, as GitHub does: whoever may comment need not be trusted with code.
func (s *Source) comment(ctx context.Context, ev *ci.Event) error {
	ev.Comment = bounded(ev.Comment, maxComment)
	if ev.DefaultBranch == "" {
		return fmt.Errorf("%w: a comment runs on the default branch, and there is none", source.ErrIgnored)
	}
	ev.Branch, ev.Ref = ev.DefaultBranch, "refs/heads/"+ev.DefaultBranch
	head, err := s.mirror.Resolve(ctx, s.clone(), ev.Ref)
	if errors.Is(err, source.ErrNotFound) {
		return fmt.Errorf("%w: a comment runs on the default branch %s, and there is none", source.ErrIgnored, ev.DefaultBranch)
	}
	ev.SHA = head.SHA
	return err
}

// bounded cuts text to a size.
func bounded(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\ufffd")
}
