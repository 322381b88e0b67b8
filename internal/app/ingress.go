package app

import (
	"context"
	"errors"

	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/generic"
	"github.com/kici-go/kici/internal/source/local"
	"github.com/kici-go/kici/internal/store"
)

// sourceFactories are the kinds of sources that this server knows: a new kind is one folder and one line here.
func sourceFactories(repos *git.Repos) map[string]ingress.Factory {
	return map[string]ingress.Factory{
		local.Kind:   func(c source.Config) (source.Source, error) { return orNil(local.New(c, repos)) },
		generic.Kind: func(c source.Config) (source.Source, error) { return orNil(generic.New(c)) },
	}
}

// orNil keeps a failed constructor's nil pointer from becoming a non-nil interface.
func orNil[S source.Source](s S, err error) (source.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ingressRuns lets ingress make runs.
type ingressRuns struct{ runs *run.Service }

type plannedRun struct {
	runs *run.Service
	plan run.Planned
}

func (r ingressRuns) Plan(n ingress.NewRun) ingress.PlannedRun {
	return plannedRun{r.runs, r.runs.Plan(run.New{
		OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow, Event: n.Event, TriggerEvent: n.TriggerEvent,
		Decision: n.Decision, DeliveryRow: n.DeliveryRow, DedupKey: n.DedupKey, Inputs: n.Inputs, Actor: n.Actor, TrustTier: n.TrustTier,
	})}
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
		InitFailure: f.InitFailure, Reason: f.Reason,
	}}
}

// Insert implements ingress.PlannedRun.
func (f failedRun) Insert(_ context.Context, tx *store.Tx) (string, bool, error) {
	return f.runs.InsertFailed(tx, f.run)
}

// ingressSecrets keeps the secrets of sources.
type ingressSecrets struct{ *secret.Service }

// Put implements ingress.Secrets.
func (s ingressSecrets) Put(ctx context.Context, tx *store.Tx, id ingress.SecretID, value string) error {
	return s.Service.Put(ctx, tx, secret.Name{Org: id.OrgID, Scope: id.Scope, Key: id.Key}, value)
}

// Get implements ingress.Secrets.
func (s ingressSecrets) Get(ctx context.Context, id ingress.SecretID) (string, error) {
	value, err := s.Service.Get(ctx, id.OrgID, id.Scope, id.Key)
	if errors.Is(err, secret.ErrNotFound) {
		return "", nil
	}
	return value, err
}

var (
	_ ingress.Runs    = ingressRuns{}
	_ ingress.Secrets = ingressSecrets{}
)
