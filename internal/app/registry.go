package app

import (
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/schedule"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
)

// openRegistry builds what keeps and starts registered workflows.
func (s *Server) openRegistry() {
	s.registrations = registration.New(registration.Deps{Store: s.store, Events: registryEvents{s}, Env: s.env, Log: s.log})
	s.schedules = schedule.New(schedule.Deps{
		Store: s.store, Events: scheduleEvents{s}, Registrations: s.registrations, Env: s.env, Log: s.log, Metrics: s.metrics,
	})
}

// registryEvents is registration's view of events.
type registryEvents struct{ s *Server }

// EmitTx implements registration.Events.
func (r registryEvents) EmitTx(tx *store.Tx, e registration.Event) error {
	_, err := r.s.events.EmitTx(tx, event.Emit{OrgID: e.OrgID, Name: e.Name, Payload: e.Payload, SourceRepo: e.Repo, SourceRoutingKey: e.RoutingKey})
	return err
}

// scheduleEvents is schedule's view of events.
type scheduleEvents struct{ s *Server }

// EmitTx implements schedule.Events.
func (r scheduleEvents) EmitTx(tx *store.Tx, e schedule.Event) (string, error) {
	return r.s.events.EmitTx(tx, event.Emit{
		OrgID: e.OrgID, Name: schedule.EventFire, Payload: e.Payload, SourceRepo: e.Repo, SourceRoutingKey: e.RoutingKey, RegistrationID: e.RegistrationID,
	})
}

// globals is what applies to global workflows now.
func (s *Server) globals(orgID string) ingress.Globals {
	org := s.settings.Org(orgID)
	return ingress.Globals{Enabled: s.settings.Cluster().GlobalWorkflows, Allow: repoRules(org.AllowedRepos), Deny: repoRules(org.DeniedRepos)}
}

// repoRules keeps the difference between no list and an empty one.
func repoRules(list []setting.RepoRule) []ingress.RepoRule {
	if list == nil {
		return nil
	}
	out := make([]ingress.RepoRule, len(list))
	for i, r := range list {
		out[i] = ingress.RepoRule(r)
	}
	return out
}
