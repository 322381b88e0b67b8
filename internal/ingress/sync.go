package ingress

import (
	"context"
	"database/sql"
	"errors"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// syncPlan is a registration sync that belongs to a delivery's transaction (REG-2).
type syncPlan struct {
	scope     db.WorkflowRegistration
	delivery  string
	workflows []lock.Workflow
	expect    string // the commit that was registered when it was planned
	before    string // the push's own: following it needs no look at the history
}

// planSync plans the registration of a push to the default branch, nil for any other event and for workflows that cannot be
// read: those must not remove what is registered (XC-20). A push whose commit is already contained in the registered one
// came late and is left out (XC-25).
func (s *Service) planSync(ctx context.Context, d *db.Delivery, src source.Source, ev ci.Event, at *resolved) (*syncPlan, error) {
	if ev.Type != "push" || ev.Branch == "" || ev.Branch != ev.DefaultBranch || at.result != workflow.OK && at.result != workflow.Missing {
		return nil, nil
	}
	registered, err := s.d.Registrations.Synced(ctx, d.RoutingKey, ev.Repo)
	if err != nil {
		return nil, err
	}
	p := &syncPlan{delivery: d.ID, expect: registered, before: ev.Before, scope: db.WorkflowRegistration{
		OrgID: d.OrgID, RoutingKey: d.RoutingKey, Repo: ev.Repo, CommitSha: ev.SHA, DefaultBranch: ev.DefaultBranch, SyncedAt: d.ReceivedAt,
	}}
	if cmp, ok := src.(source.Ancestor); ok && !p.follows(registered) {
		late, err := cmp.IsAncestor(ctx, ev.SHA, registered)
		if err != nil && !errors.Is(err, source.ErrNotFound) { // the registered commit may be gone after a forced push
			return nil, err
		}
		if late {
			return nil, nil
		}
	}
	if at.result == workflow.OK {
		p.workflows = at.file.Workflows
	}
	return p, nil
}

// follows reports whether the push plainly comes after the registered commit.
func (p *syncPlan) follows(registered string) bool {
	return registered == "" || registered == p.scope.CommitSha || registered == p.before
}

func (s *Service) applySync(ctx context.Context, tx *store.Tx, p *syncPlan) error {
	if p == nil {
		return nil
	}
	row, err := tx.LockRegistrationSync(ctx, p.scope.RoutingKey, p.scope.Repo)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if row.CommitSha != p.expect && !p.follows(row.CommitSha) {
		return errStale
	}
	_, err = s.d.Registrations.Sync(ctx, tx, p.scope, p.delivery, p.workflows)
	return err
}
