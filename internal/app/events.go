package app

import (
	"context"

	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
)

// openEvents builds the room of internal events. Their runs are planned by ingress, which knows the sources.
func (s *Server) openEvents() {
	s.events = event.New(event.Deps{
		Store: s.store, InstanceID: s.data.InstanceID(), Leader: s.leader,
		Index: func(ctx context.Context) (event.Index, error) { return s.registrations.View(ctx) },
		Plan: func(ctx context.Context, start event.Start) (event.Planned, error) {
			return s.ingress.PlanRegistered(ctx, registeredStart(start))
		},
		Limits: s.eventLimits, Env: s.env, Log: s.log, Metrics: s.metrics,
	})
}

func registeredStart(e event.Start) ingress.RegisteredStart {
	return ingress.RegisteredStart{
		OrgID: e.OrgID, Registration: e.Registration, Workflow: e.Workflow, Event: e.Event, Decision: e.Decision, DedupKey: e.DedupKey,
		TrustTier: e.TrustTier, ChainDepth: e.ChainDepth, Actor: e.Actor, TriggerEvent: e.TriggerEvent, Inputs: e.Inputs, Branch: e.Branch,
	}
}
