package api

import (
	"context"

	"github.com/kici-go/kici/client"
)

// Intake starts workflows by hand and manages the sources that deliveries come from (ingress.Service).
type Intake interface {
	StartRun(ctx context.Context, r Start) (runID string, err error)
	AddSource(ctx context.Context, orgID string, s client.NewSource) (AddedSource, error)
	RemoveSource(ctx context.Context, orgID, id string) error
	EnableSource(ctx context.Context, orgID, id string, on bool) error
	CheckSource(ctx context.Context, orgID, id string) (client.SourceCheck, error)
	TriggerSource(ctx context.Context, t Trigger) (deliveryID string, err error)
}

// Start asks for a run of a workflow by hand. SourceID is the id of the source.
type Start struct {
	OrgID, SourceID, Workflow, Ref string
	Inputs                         map[string]any
	By, RequestID                  string
}

// Trigger asks that ref is treated as just pushed.
type Trigger struct{ OrgID, SourceID, Ref, By string }

// AddedSource is a new source. Secret is what the server made for it, to be shown once; Note says what to do next.
type AddedSource struct{ ID, Secret, Note string }

// sourceRef names a source in a path.
type sourceRef struct {
	Source string `path:"source" maxLength:"300" doc:"Name, id or routing key"`
}

func (a *API) sourceRoutes() {
	handle(a, get("/sources", "List sources"), right{"context.read", "source.list.read"},
		func(ctx context.Context, c *caller, _ *struct{}) (client.SourceList, error) {
			return a.d.Reads.Sources(ctx, c.Scope)
		})
	handle(a, get("/sources/{source}", "Show a source"), right{"context.read", "source.read"},
		func(ctx context.Context, c *caller, in *sourceRef) (client.Source, error) {
			return a.d.Reads.Source(ctx, c.Scope, in.Source)
		})
	handle(a, post("/sources", "Add a source").global().created(), right{"source.manage", "source.create"}, a.addSource)
	handle(a, del("/sources/{source}", "Remove a source; its runs stay"), right{"source.manage", "source.delete"},
		func(ctx context.Context, c *caller, in *sourceRef) (deleted, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return deleted{}, err
			}
			return deleted{true}, a.d.Intake.RemoveSource(ctx, c.Scope.OrgID, s.ID)
		})
	for verb, on := range map[string]bool{"enable": true, "disable": false} {
		handle(a, post("/sources/{source}/"+verb, "Turn a source on or off"), right{"source.manage", Action("source." + verb)},
			func(ctx context.Context, c *caller, in *sourceRef) (client.Source, error) {
				s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
				if err != nil {
					return s, err
				}
				if err := a.d.Intake.EnableSource(ctx, c.Scope.OrgID, s.ID, on); err != nil {
					return s, err
				}
				return a.d.Reads.Source(ctx, c.Scope, s.ID)
			})
	}
	handle(a, post("/sources/{source}/check", "Reach the source"), right{"source.manage", "source.check"},
		func(ctx context.Context, c *caller, in *sourceRef) (client.SourceCheck, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return client.SourceCheck{}, err
			}
			return a.d.Intake.CheckSource(ctx, c.Scope.OrgID, s.ID)
		})
	handle(a, post("/sources/{source}/trigger", "Treat a ref as just pushed"), right{"run.trigger", "source.trigger"}, a.trigger)
}

type deleted struct {
	Deleted bool `json:"deleted"`
}

type newSourceInput struct{ Body client.NewSource }

func (a *API) addSource(ctx context.Context, c *caller, in *newSourceInput) (client.AddedSource, error) {
	added, err := a.d.Intake.AddSource(ctx, c.Scope.OrgID, in.Body)
	if err != nil {
		return client.AddedSource{}, err
	}
	s, err := a.d.Reads.Source(ctx, c.Scope, added.ID)
	return client.AddedSource{Source: s, Secret: added.Secret, Note: added.Note}, err
}

type triggerInput struct {
	sourceRef
	Body struct {
		Ref string `json:"ref,omitempty" maxLength:"1000" doc:"Branch, tag or full ref; the default branch when empty"`
	}
}

func (a *API) trigger(ctx context.Context, c *caller, in *triggerInput) (client.Triggered, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return client.Triggered{}, err
	}
	id, err := a.d.Intake.TriggerSource(ctx, Trigger{OrgID: c.Scope.OrgID, SourceID: s.ID, Ref: in.Body.Ref, By: actor(c)})
	return client.Triggered{DeliveryID: id}, err
}

// actor is who is shown as having done something.
func actor(c *caller) string {
	if c.Label != "" {
		return c.Label
	}
	return c.TokenID
}
