package ingress

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// commits reads the workflows that an event starts and the commit that it runs. For a fork those are two: its author may have
// changed the workflows, so the base branch's run (LOCK-9). ErrNoCommit when one is not there.
func (s *Service) commits(ctx context.Context, routingKey string, src source.Source, ev ci.Event) (*resolved, source.Commit, error) {
	lockSHA := ev.SHA
	if ev.Fork {
		if lockSHA = ev.BaseSHA; lockSHA == "" {
			return nil, source.Commit{}, fmt.Errorf("%w: the base of the fork's pull request is not known, and its own workflows must not run", ErrNoCommit)
		}
	}
	at, err := s.workflows(ctx, routingKey, lockSHA, src)
	if errors.Is(err, source.ErrNotFound) {
		return nil, source.Commit{}, fmt.Errorf("%w: %s", ErrNoCommit, lockSHA)
	} else if err != nil || !ev.Fork {
		return at, commitOf(at), err
	}
	head, err := src.Resolve(ctx, ev.SHA)
	if errors.Is(err, source.ErrNotFound) {
		return nil, head, fmt.Errorf("%w: %s", ErrNoCommit, ev.SHA)
	}
	return at, head, err
}

func commitOf(at *resolved) source.Commit {
	if at == nil {
		return source.Commit{}
	}
	return at.commit
}

// tierOf is how far the code of an event is trusted: a fork's author need not be known to anybody here (PIPE-4), so its jobs
// get no secrets.
func tierOf(ev ci.Event) ci.TrustTier {
	if ev.Fork {
		return ci.TierUnknown
	}
	return ci.TierTrusted
}

// forkWarnings is what people should know of a fork's run: which workflows it uses, and that it would change them (XC-24).
func forkWarnings(ev ci.Event) []string {
	if !ev.Fork {
		return nil
	}
	warnings := []string{fmt.Sprintf("from a fork: run with the workflows of %s (%.7s) and without secrets", ev.TargetBranch, ev.BaseSHA)}
	first, more := "", 0
	for _, f := range ev.ChangedFiles {
		switch {
		case f != workflow.LockPath && !strings.HasPrefix(f, workflow.FilesDir+"/"):
		case first == "":
			first = f
		default:
			more++
		}
	}
	switch {
	case ev.ChangedFilesErr != "":
		warnings = append(warnings, "whether it changes workflows is not known: "+ev.ChangedFilesErr)
	case more > 0:
		warnings = append(warnings, fmt.Sprintf("it changes %s and %d more files of workflows; that counts once it is merged", first, more))
	case first != "":
		warnings = append(warnings, fmt.Sprintf("it changes %s; that counts once it is merged", first))
	}
	return warnings
}

// recordedEvent reports whether a delivery told where a branch or tag of a forge is now.
func recordedEvent(d db.Delivery, out outcome) bool {
	ev := out.event
	return source.OnForge(d.Kind) && (ev.Type == "push" || ev.Type == "tag") && ev.Ref != "" && ev.SHA != "" &&
		(out.status == statusProcessed || out.status == statusMissing || out.status == statusCorrupt)
}
