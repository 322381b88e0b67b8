package ingress

import (
	"context"
	"fmt"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Globals is what the cluster and the organisation say of global workflows (GLB-2). Its zero value allows none: settings that cannot
// be read are that.
type Globals struct {
	Enabled bool       // the cluster's switch
	Allow   []RepoRule // repositories that may author global workflows; nil is every one, an empty list none
	Deny    []RepoRule // repositories whose events start none
}

// RepoRule is one entry of a list.
type RepoRule struct {
	RoutingKey string // "" is any
	Pattern    string // of the repository's identifier, as branch patterns are
}

// mayAuthor says why a repository may not have global workflows, "" when it may. An invalid pattern never allows.
func (g Globals) mayAuthor(routingKey, repo string) string {
	if g.Allow == nil || slices.ContainsFunc(g.Allow, func(r RepoRule) bool { return r.matches(routingKey, repo, false) }) {
		return ""
	}
	return fmt.Sprintf("repository %s is not in the organisation's list of those that may author global workflows", repo)
}

// mayStart says why events of a repository start no global workflows, "" when they do. An invalid pattern always denies.
func (g Globals) mayStart(routingKey, repo string) string {
	if slices.ContainsFunc(g.Deny, func(r RepoRule) bool { return r.matches(routingKey, repo, true) }) {
		return fmt.Sprintf("repository %s is in the organisation's list of those whose events start no global workflows", repo)
	}
	return ""
}

func (r RepoRule) matches(routingKey, repo string, invalid bool) bool {
	if r.RoutingKey != "" && r.RoutingKey != routingKey {
		return false
	}
	matched, valid := workflow.MatchRepo(r.Pattern, repo)
	return matched || !valid && invalid
}

func (s *Service) mayAuthor(row db.Source, w *lock.Workflow) string {
	if !workflow.Global(w) {
		return ""
	}
	return s.d.Globals(row.OrgID).mayAuthor(row.RoutingKey, row.Repo)
}

// global is one global workflow of another repository that an event may start.
type global struct {
	reg      db.WorkflowRegistration
	workflow *lock.Workflow
}

// globalFacts is what the decision about global workflows rests on.
type globalFacts struct {
	settings   Globals
	event      ci.Event // with its repository
	routingKey string   // of the event's source
}

// refusal says why a global workflow may not follow this event, whatever its triggers say; "" when it may (GLB-2, GLB-5).
func (f globalFacts) refusal(g global) string {
	switch {
	case !f.settings.Enabled:
		return "global workflows are switched off for this cluster (globalWorkflowsEnabled)"
	case f.event.Fork:
		return "the event is from a fork, which is not trusted to start workflows of other repositories"
	}
	if why := f.settings.mayStart(f.routingKey, f.event.Repo); why != "" {
		return why
	}
	return f.settings.mayAuthor(g.reg.RoutingKey, g.reg.Repo)
}

// decide returns what is decided about one global workflow, and the match that starts it.
func (f globalFacts) decide(g global) (decision, workflow.Decision) {
	out := decision{Repo: g.reg.Repo, Workflow: g.reg.Workflow, Global: true}
	if out.Reason = f.refusal(g); out.Reason != "" {
		return out, workflow.Decision{}
	}
	found := workflow.MatchGlobal(g.workflow, f.event)
	out.Matched, out.Trigger, out.Degraded, out.Checks = found.Matched, found.TriggerType, found.Degraded, found.Checks
	return out, found
}

// candidates are the global workflows that wait for events of this type, without those of the event's own repository: they were
// tried with its commit (GLB-1).
func (s *Service) candidates(ctx context.Context, orgID string, ev ci.Event) ([]global, error) {
	found, err := s.d.Registrations.Globals(ctx, orgID, ev.Type)
	if err != nil {
		return nil, err
	}
	var out []global
	for reg, w := range found {
		if reg.Repo == ev.Repo {
			continue
		}
		if workflow.FollowsType(w, ev.Type) {
			out = append(out, global{reg, w})
		}
	}
	return out, nil
}

// matchGlobals adds the global workflows that the event starts, each at the commit of its registration.
func (s *Service) matchGlobals(ctx context.Context, d *db.Delivery, src source.Source, out outcome) (outcome, error) {
	all, err := s.candidates(ctx, d.OrgID, out.event)
	if err != nil || len(all) == 0 {
		return out, err
	}
	facts := globalFacts{settings: s.d.Globals(d.OrgID), event: out.event, routingKey: d.RoutingKey}
	if slices.ContainsFunc(all, func(g global) bool { return facts.refusal(g) == "" && workflow.NeedsChangedFiles(g.workflow) }) {
		if err := fetchChanged(ctx, src, &out.event); err != nil {
			return out, err
		}
		facts.event = out.event
	}
	for _, g := range all {
		decided, found := facts.decide(g)
		if decided.Matched {
			run, why, err := s.planGlobal(ctx, d, g, lean(out.event), found)
			if err != nil {
				return out, err
			}
			if decided.Reason, decided.Matched = why, why == ""; decided.Matched {
				out.matched++
				out.runs = append(out.runs, run)
			}
		}
		out.decisions = append(out.decisions, decided)
	}
	return out, nil
}

// patientAttempts is how often a delivery waits for a registered workflow's repository that cannot be reached. Then it goes on without
// that workflow and says so: somebody else's repository must not keep the event's own workflows from running (ING-26).
const patientAttempts = 2

func (s *Service) planGlobal(ctx context.Context, d *db.Delivery, g global, ev ci.Event, found workflow.Decision) (PlannedRun, string, error) {
	run, err := s.PlanRegistered(ctx, RegisteredStart{
		OrgID: d.OrgID, Registration: g.reg, Workflow: *g.workflow, Event: ev, Decision: found, DeliveryRow: d.ID, DedupKey: d.ID + ":" + g.reg.ID,
		TrustTier: ci.TierTrusted, Actor: ev.Actor, TriggerEvent: triggerEvent(ev), Branch: g.reg.DefaultBranch,
	})
	if err == nil || d.Attempts <= patientAttempts || ctx.Err() != nil {
		return run, "", err
	}
	_ = s.count("globals")
	s.log.Warn("global workflow is left out", "delivery_id", d.ID, "registration_id", g.reg.ID, "repo", g.reg.Repo, "err", err)
	return nil, "it could not be started: " + sentence(err), nil
}
