package ingress

import (
	"context"

	"github.com/kici-go/kici/internal/workflow/lock"
)

// RefWorkflows is what a branch, tag or commit has under .kici. File is shared: nobody changes it.
type RefWorkflows struct {
	Source, Ref, SHA, Title string // Ref is the full ref, "" for a commit that was named by its id
	DefaultBranch           string
	File                    *lock.File
}

// Workflows reads the workflows of a source at ref, "" for its default branch, as Start would. What is wrong there is a
// RequestError: no such ref, no workflows, workflows with faults.
func (s *Service) Workflows(ctx context.Context, orgID, name, ref string) (RefWorkflows, error) {
	e, err := s.get(ctx, orgID, name)
	if err != nil {
		return RefWorkflows{}, err
	}
	src, err := e.usable()
	if err != nil {
		return RefWorkflows{}, err
	}
	if !src.HasRepo() {
		return RefWorkflows{}, invalid("source %s has no repository to take workflows from", e.row.Name)
	}
	ev, at, err := s.manualEvent(ctx, e.row, src, StartRequest{OrgID: orgID, Source: name, Ref: ref})
	if err != nil {
		return RefWorkflows{}, err
	}
	return RefWorkflows{Source: e.row.Name, Ref: ev.Ref, SHA: ev.SHA, Title: ev.Title, DefaultBranch: ev.DefaultBranch, File: at.file}, nil
}
