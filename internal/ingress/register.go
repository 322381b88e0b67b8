package ingress

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/cron"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// RegisterRequest registers workflows by hand (REG-5).
type RegisterRequest struct {
	OrgID, Source string   // name, id or routing key
	Ref           string   // branch, tag, full ref or commit; "" is the default branch
	Workflows     []string // by name; none is all that have a trigger
	By            string
}

// Registered is what a registration by hand, or a refresh, led to.
type Registered struct {
	Source, Repo, SHA string
	Workflows         []string
	Version           int64 // of the registry
}

// Register registers workflows of a commit and leaves the others of the repository as they are. The commit is looked at as that of
// a push is; in addition a global workflow is refused that the organisation's lists would never let run (REG-6).
func (s *Service) Register(ctx context.Context, r RegisterRequest) (Registered, error) {
	row, ev, at, err := s.workflowsOf(ctx, r.OrgID, r.Source, r.Ref, r.By)
	if err != nil {
		return Registered{}, err
	}
	chosen, err := chooseWorkflows(at.file, r.Workflows)
	if err != nil {
		return Registered{}, err
	}
	for i := range chosen {
		if why := s.mayAuthor(row, &chosen[i]); why != "" {
			return Registered{}, invalid("workflow %s is global: %s", chosen[i].Name, why)
		}
	}
	out := registeredOf(row, ev, chosen)
	out.Version, err = s.d.Registrations.Register(ctx, scopeOf(row, ev, 0), chosen)
	return out, err
}

func (s *Service) workflowsOf(ctx context.Context, org, name, ref, by string) (db.Source, ci.Event, *resolved, error) {
	e, err := s.get(ctx, org, name)
	if err != nil {
		return db.Source{}, ci.Event{}, nil, err
	}
	src, err := e.usable()
	if err != nil {
		return e.row, ci.Event{}, nil, err
	}
	if !src.HasRepo() {
		return e.row, ci.Event{}, nil, invalid("source %s has no repository to take workflows from", e.row.Name)
	}
	ev, at, err := s.manualEvent(ctx, e.row, src, StartRequest{OrgID: org, Source: name, Ref: ref, By: by})
	return e.row, ev, at, err
}

func scopeOf(row db.Source, ev ci.Event, at int64) db.WorkflowRegistration {
	return db.WorkflowRegistration{
		OrgID: row.OrgID, RoutingKey: row.RoutingKey, Repo: row.Repo, CommitSha: ev.SHA, DefaultBranch: ev.DefaultBranch, SyncedAt: at,
	}
}

func registeredOf(row db.Source, ev ci.Event, workflows []lock.Workflow) Registered {
	out := Registered{Source: row.Name, Repo: row.Repo, SHA: ev.SHA, Workflows: []string{}}
	for _, w := range workflows {
		if len(w.On) > 0 {
			out.Workflows = append(out.Workflows, w.Name)
		}
	}
	return out
}

func chooseWorkflows(file *lock.File, names []string) ([]lock.Workflow, error) {
	var all []string
	var chosen []lock.Workflow
	for _, w := range file.Workflows {
		all = append(all, w.Name)
		switch {
		case len(names) == 0 && len(w.On) > 0 || slices.Contains(names, w.Name) && len(w.On) > 0:
			chosen = append(chosen, w)
		case slices.Contains(names, w.Name):
			return nil, invalid("workflow %s has no trigger, so nothing would ever start it", w.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, invalid("there is no workflow %q; this commit has: %s", short(name, 200), strings.Join(all, ", "))
		}
	}
	if len(chosen) == 0 {
		return nil, invalid("no workflow of this commit has a trigger")
	}
	return chosen, nil
}

// Refresh makes the workflows of a source's default branch, as it is now, its registrations: what a push would do, without its runs.
func (s *Service) Refresh(ctx context.Context, orgID, name, by string) (Registered, error) {
	began := s.d.Env.NowMs() // a push that is received from here on is newer
	row, ev, at, err := s.workflowsOf(ctx, orgID, name, "", by)
	var workflows []lock.Workflow
	switch {
	case err == nil:
		workflows = at.file.Workflows
	case !s.hasNone(ctx, row, ev):
		return Registered{}, err
	}
	out := registeredOf(row, ev, workflows)
	applied := false
	err = s.d.Store.Write(ctx, func(tx *store.Tx) (err error) {
		applied, err = s.d.Registrations.Sync(ctx, tx, scopeOf(row, ev, began), s.d.Env.NewID(), workflows)
		if err != nil {
			return err
		}
		out.Version, err = tx.RegistryVersion(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil // nothing was ever registered
		}
		return err
	})
	if err == nil && !applied {
		return out, fmt.Errorf("%w: a push that is newer has registered the workflows of source %s", ErrTryAgain, row.Name)
	}
	return out, err
}

// hasNone tells whether a commit that was just looked at is known to have no workflows.
func (s *Service) hasNone(ctx context.Context, row db.Source, ev ci.Event) bool {
	if ev.SHA == "" {
		return false
	}
	src, err := s.sourceFor(ctx, row.OrgID, row.RoutingKey)
	if err != nil {
		return false
	}
	at, err := s.workflows(ctx, row.RoutingKey, ev.SHA, src)
	return err == nil && at.result == workflow.Missing
}

// RunScheduleRequest starts a scheduled workflow by hand (PIPE-26).
type RunScheduleRequest struct {
	OrgID, RegistrationID string
	By                    string
	RequestID             string // a repeat gets the first request's run (PIPE-27); "" never repeats
}

// manualSchedule is the trigger event of such a run (WF-20), and EventManual the event that tells of it (EVT-9).
const (
	manualSchedule = "manual_schedule"
	EventManual    = "workflow.manual_schedule"
)

// RunSchedule starts the registered commit of a workflow with the default inputs of its first schedule, as if that had just come due, and
// returns the run's id. It goes the way of a fire, so whatever would hold that holds this.
func (s *Service) RunSchedule(ctx context.Context, r RunScheduleRequest) (string, error) {
	reg, w, ok, err := s.d.Registrations.ByID(ctx, r.RegistrationID)
	switch {
	case err != nil:
		return "", err
	case !ok || reg.OrgID != r.OrgID:
		return "", ErrNoRegistration
	case reg.Disabled:
		return "", conflict("workflow %s is disabled; enable it with `kici registration enable %s`", reg.Workflow, reg.ID)
	case w == nil:
		return "", conflict("this version of kici cannot read workflow %s; push to the default branch, or run `kici registration refresh`", reg.Workflow)
	}
	trigger := workflow.ScheduleTrigger(w)
	if trigger == nil {
		return "", conflict("workflow %s has no schedule; start it with `kici run start %s`", reg.Workflow, reg.Workflow)
	}
	if reg.CommitSha == "" {
		return "", conflict("workflow %s is registered without a commit; push to the default branch, or run `kici registration refresh`", reg.Workflow)
	}
	start, err := s.scheduleStart(reg, w, trigger, r)
	if err != nil {
		return "", err
	}
	planned, err := s.PlanRegistered(ctx, start)
	if err != nil {
		return "", err
	}
	var id string
	err = s.d.Store.Write(ctx, func(tx *store.Tx) error {
		var created bool
		if id, created, err = planned.Insert(ctx, tx); err != nil || !created {
			return err
		}
		return s.tellManual(tx, start, id)
	})
	return id, err
}

// tellManual emits that a schedule was run by hand, in the transaction of its run: what the event of a fire says, who asked, and the run.
func (s *Service) tellManual(tx *store.Tx, start RegisteredStart, runID string) error {
	var body map[string]string
	if err := json.Unmarshal(start.Event.Payload, &body); err != nil {
		return err
	}
	body["runId"] = runID
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	reg := start.Registration
	return s.d.Events.EmitTx(tx, Event{
		OrgID: start.OrgID, Name: EventManual, Repo: reg.Repo, RoutingKey: reg.RoutingKey, Actor: start.Actor, Payload: payload,
	})
}

func (s *Service) scheduleStart(reg db.WorkflowRegistration, w *lock.Workflow, trigger *lock.Trigger, r RunScheduleRequest) (RegisteredStart, error) {
	inputs, err := workflow.ScheduleInputs(trigger)
	if err != nil {
		return RegisteredStart{}, conflict("the inputs of workflow %s: %v", w.Name, err)
	}
	zone := trigger.Timezone
	if zone == "" {
		zone = cron.UTC
	}
	payload, err := json.Marshal(map[string]string{
		"cronExpression": trigger.Cron, "timezone": zone, "registrationId": reg.ID, "workflowName": reg.Workflow, "routingKey": reg.RoutingKey,
		"repoIdentifier": reg.Repo, "scheduledAt": s.d.Env.Now().UTC().Format(time.RFC3339), "commitSha": reg.CommitSha, "sourceFile": reg.SourceFile,
		"requestedBy": r.By,
	})
	if err != nil {
		return RegisteredStart{}, err
	}
	ev := ci.Event{Type: workflow.TypeSchedule, Name: manualSchedule, Actor: r.By, Payload: payload, Inputs: inputs}
	key := ""
	if r.RequestID != "" {
		key = manualSchedule + ":" + reg.ID + ":" + r.RequestID
	}
	return RegisteredStart{
		OrgID: reg.OrgID, Registration: reg, Workflow: *w, Event: ev, Decision: workflow.Match(w, ev), DedupKey: key, TrustTier: ci.TierTrusted,
		Actor: r.By, TriggerEvent: manualSchedule, Inputs: inputs, Branch: reg.DefaultBranch,
	}, nil
}
