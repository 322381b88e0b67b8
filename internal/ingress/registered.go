package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// RegisteredStart is a registered workflow that something other than a push to its repository starts: a generic delivery, an
// internal event, a schedule, a person. It runs the commit of its registration.
type RegisteredStart struct {
	OrgID        string
	Registration db.WorkflowRegistration
	Workflow     lock.Workflow
	Event        ci.Event // what starts it; repository, commit and ref become those of the registration
	Decision     workflow.Decision
	DeliveryRow  string // deliveries.id, "" for none
	DedupKey     string // "" never conflicts
	TrustTier    ci.TrustTier
	ChainDepth   int
	Actor        string
	TriggerEvent string // WF-20; "" is the event's type and action
	Inputs       map[string]any
	Branch       string // what the run presents to branch restrictions (EVT-23); "" has none
}

// PlanRegistered plans the run of a registered workflow and writes nothing. Where its source or commit is gone for good the plan is
// a failed run that says so; an error means that it is worth trying again.
func (s *Service) PlanRegistered(ctx context.Context, r RegisteredStart) (PlannedRun, error) {
	n := s.registeredRun(ctx, r)
	commit, err := s.registeredCommit(ctx, r.OrgID, r.Registration)
	switch {
	case err == nil:
		n.Event.Title = commit.Title
		return s.d.Runs.Plan(n), nil
	case lasts(err):
		return s.planUnstarted(n, r.Registration, err), nil
	}
	return nil, err
}

// registeredRun is the run of a registered workflow but for its commit's title.
func (s *Service) registeredRun(ctx context.Context, r RegisteredStart) NewRun {
	reg, ev := r.Registration, r.Event
	ev.Repo, ev.SHA, ev.Branch, ev.DefaultBranch = reg.Repo, reg.CommitSha, r.Branch, reg.DefaultBranch
	ev.Ref = "refs/heads/" + reg.DefaultBranch
	if r.TriggerEvent == "" {
		r.TriggerEvent = triggerEvent(ev)
	}
	return NewRun{
		OrgID: r.OrgID, RoutingKey: reg.RoutingKey, Repo: reg.Repo, Workflow: r.Workflow, Event: ev, TriggerEvent: r.TriggerEvent,
		Decision: r.Decision, DeliveryRow: r.DeliveryRow, DedupKey: r.DedupKey, Inputs: r.Inputs, Actor: r.Actor, TrustTier: r.TrustTier,
		ChainDepth: r.ChainDepth, Checks: s.reports(ctx, r.OrgID, reg.RoutingKey),
	}
}

// planUnstarted plans the failed run that shows why a registered workflow was not started (ING-26). It can be run again once that is mended.
func (s *Service) planUnstarted(n NewRun, reg db.WorkflowRegistration, why error) PlannedRun {
	n.Unstarted = fmt.Sprintf("workflow %s of %s at %s: %v", reg.Workflow, reg.Repo, reg.CommitSha, why)
	return s.d.Runs.Plan(n)
}

// lasts reports whether asking again gives the same error.
func lasts(err error) bool {
	return slices.ContainsFunc([]error{
		source.ErrNotFound, source.ErrMisconfigured, source.ErrInvalid, source.ErrTooLarge, ErrNotFound, ErrDisabled,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

func (s *Service) registeredCommit(ctx context.Context, orgID string, reg db.WorkflowRegistration) (source.Commit, error) {
	e, err := s.byRoutingKey(ctx, orgID, reg.RoutingKey)
	if err != nil {
		return source.Commit{}, err
	}
	src, err := e.usable()
	if err != nil {
		return source.Commit{}, err
	}
	return src.Resolve(ctx, reg.CommitSha)
}
