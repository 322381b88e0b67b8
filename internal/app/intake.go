package app

import (
	"context"

	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/store"
)

// ingressRuns lets ingress make runs.
type ingressRuns struct{ runs *run.Service }

type plannedRun struct {
	runs *run.Service
	plan run.Planned
}

func (r ingressRuns) Plan(n ingress.NewRun) ingress.PlannedRun {
	plan := r.runs.Plan(run.New{
		OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow, Event: n.Event, TriggerEvent: n.TriggerEvent,
		Decision: n.Decision, DeliveryRow: n.DeliveryRow, DedupKey: n.DedupKey, Inputs: n.Inputs, Actor: n.Actor, TrustTier: n.TrustTier,
		ChainDepth: n.ChainDepth, Checks: n.Checks, Unstarted: n.Unstarted,
	})
	plan.Warnings = append(plan.Warnings, n.Warnings...)
	return plannedRun{r.runs, plan}
}

// Insert implements ingress.PlannedRun.
func (p plannedRun) Insert(_ context.Context, tx *store.Tx) (string, bool, error) {
	return p.runs.Insert(tx, p.plan)
}

type failedRun struct {
	runs *run.Service
	run  run.FailedRun
}

func (r ingressRuns) PlanFailed(f ingress.FailedRun) ingress.PlannedRun {
	return failedRun{r.runs, run.FailedRun{
		OrgID: f.OrgID, RoutingKey: f.RoutingKey, Repo: f.Repo, Event: f.Event, TriggerEvent: f.TriggerEvent,
		DeliveryRow: f.DeliveryRow, DedupKey: f.DedupKey, Actor: f.Actor, TrustTier: f.TrustTier,
		InitFailure: f.InitFailure, Reason: f.Reason, Checks: f.Checks,
	}}
}

// Insert implements ingress.PlannedRun.
func (f failedRun) Insert(_ context.Context, tx *store.Tx) (string, bool, error) {
	return f.runs.InsertFailed(tx, f.run)
}

// ingressEvents is ingress's view of events.
type ingressEvents struct{ s *Server }

// EmitTx implements ingress.Events.
func (i ingressEvents) EmitTx(tx *store.Tx, e ingress.Event) error {
	_, err := i.s.events.EmitTx(tx, event.Emit{
		OrgID: e.OrgID, Name: e.Name, Payload: e.Payload, SourceRepo: e.Repo, SourceRoutingKey: e.RoutingKey, Actor: e.Actor,
	})
	return err
}

// ingressSecrets keeps the secrets of sources.
type ingressSecrets struct{ *secret.Service }

// Put implements ingress.Secrets.
func (s ingressSecrets) Put(ctx context.Context, tx *store.Tx, id ingress.SecretID, value string) error {
	return s.Service.Put(ctx, tx, secret.Name{Org: id.OrgID, Scope: id.Scope, Key: id.Key}, value)
}

// Drop implements ingress.Secrets.
func (s ingressSecrets) Drop(ctx context.Context, tx *store.Tx, id ingress.SecretID) error {
	return s.Service.Drop(ctx, tx, secret.Name{Org: id.OrgID, Scope: id.Scope, Key: id.Key})
}

// Open implements ingress.Secrets.
func (s ingressSecrets) Open(ctx context.Context, orgID, scope string) (map[string]ingress.Secret, error) {
	values, err := s.Service.Open(ctx, orgID, scope)
	out := make(map[string]ingress.Secret, len(values))
	for key, v := range values {
		out[key] = ingress.Secret{Value: v.Text, UpdatedAt: v.UpdatedAt}
	}
	return out, err
}

var (
	_ ingress.Runs    = ingressRuns{}
	_ ingress.Secrets = ingressSecrets{}
)
