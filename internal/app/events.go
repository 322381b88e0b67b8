package app

import (
	"context"

	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/run"
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

// listeners tells the runs which of their events nobody waits for.
func (s *Server) listeners() run.Listeners {
	return run.Listeners{
		UnheardAt: func(orgID, name string) int64 {
			if index, ok := s.registrations.Loaded(); ok && !event.Heard(index, orgID, name) {
				return index.Version()
			}
			return -1
		},
		Ended: s.events.Unheard,
	}
}

func registeredStart(e event.Start) ingress.RegisteredStart {
	return ingress.RegisteredStart{
		OrgID: e.OrgID, Registration: e.Registration, Workflow: e.Workflow, Event: e.Event, Decision: e.Decision, DedupKey: e.DedupKey,
		TrustTier: e.TrustTier, ChainDepth: e.ChainDepth, Actor: e.Actor, TriggerEvent: e.TriggerEvent, Inputs: e.Inputs, Branch: e.Branch,
	}
}
