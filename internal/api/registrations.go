package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
)

// registrations switches and removes registered workflows (registration.Service).
type registrations interface {
	SetDisabled(ctx context.Context, orgID, id string, disabled bool) error
	Delete(ctx context.Context, orgID, id string) error
}

// registrar makes registrations from commits and starts scheduled ones (ingress.Service).
type registrar interface {
	Register(ctx context.Context, r ingress.RegisterRequest) (ingress.Registered, error)
	Refresh(ctx context.Context, orgID, source, by string) (ingress.Registered, error)
	RunSchedule(ctx context.Context, r ingress.RunScheduleRequest) (runID string, err error)
}

// RegistrationRef names a registration in a path.
type RegistrationRef struct {
	Registration string `path:"registration" maxLength:"900" doc:"Id, repository#workflow, or a workflow's name that only one repository has"`
}

func (a *API) registrationRoutes() {
	handle(a, get("/registrations", "List registered workflows"), right{"context.read", "registration.list.read"}, a.listRegistrations)
	handle(a, get("/registrations/{registration}", "Show a registered workflow with its triggers and schedules"), right{"context.read", "registration.read"},
		func(ctx context.Context, c *caller, in *RegistrationRef) (client.RegistrationDetail, error) {
			return a.registration(ctx, c, in.Registration)
		})
	handle(a, post("/registrations/register-manual", "Register workflows of a commit; others stay"), right{"context.update", "registration.register"},
		func(ctx context.Context, c *caller, in *struct{ Body client.NewRegistration }) (client.Registered, error) {
			c.note("source", in.Body.Source)
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Body.Source)
			if err != nil {
				return client.Registered{}, err
			}
			done, err := a.d.Registrar.Register(ctx, ingress.RegisterRequest{
				OrgID: c.Scope.OrgID, Source: s.ID, Ref: in.Body.Ref, Workflows: in.Body.Workflows, By: actor(c),
			})
			return registered(done), err
		})
	handle(a, post("/registrations/refresh", "Make the workflows of a source's default branch its registrations"), right{"context.update", "registration.refresh"},
		func(ctx context.Context, c *caller, in *refreshInput) (client.Registered, error) {
			c.note("source", in.Body.Source)
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Body.Source)
			if err != nil {
				return client.Registered{}, err
			}
			done, err := a.d.Registrar.Refresh(ctx, c.Scope.OrgID, s.ID, actor(c))
			return registered(done), err
		})
	for verb, off := range map[string]bool{"enable": false, "disable": true} {
		handle(a, post("/registrations/{registration}/"+verb, "Turn a registered workflow on or off, from the next event on"),
			right{"context.update", Action("registration." + verb)},
			func(ctx context.Context, c *caller, in *RegistrationRef) (client.Registration, error) {
				d, err := a.registration(ctx, c, in.Registration)
				if err != nil {
					return client.Registration{}, err
				}
				if err := a.d.Registrations.SetDisabled(ctx, c.Scope.OrgID, d.ID, off); err != nil {
					return client.Registration{}, err
				}
				d, err = a.registration(ctx, c, d.ID)
				return d.Registration, err
			})
	}
	handle(a, del("/registrations/{registration}", "Remove a registered workflow and the history of its schedules"), right{"context.delete", "registration.delete"},
		func(ctx context.Context, c *caller, in *RegistrationRef) (deleted, error) {
			d, err := a.registration(ctx, c, in.Registration)
			if err != nil {
				return deleted{}, err
			}
			if err := a.d.Registrations.Delete(ctx, c.Scope.OrgID, d.ID); err != nil {
				return deleted{}, err
			}
			return deleted{true}, nil
		})
	handle(a, post("/registrations/{registration}/run", "Start a scheduled workflow as if it had just come due").created(),
		right{"run.trigger", "run.manual_schedule"}, a.runRegistration)
	handle(a, get("/schedules", "List schedules with their next instants"), right{"context.read", "registration.schedules.read"}, a.listSchedules)
}

func (a *API) registration(ctx context.Context, c *caller, ref string) (client.RegistrationDetail, error) {
	return a.d.Reads.Registration(ctx, c.Scope, ref)
}

type refreshInput struct {
	Body struct {
		Source string `json:"source" minLength:"1" maxLength:"300" doc:"Name of the source"`
	}
}

func registered(r ingress.Registered) client.Registered {
	return client.Registered{WorkflowCount: len(r.Workflows), RegistryVersion: r.Version, Repo: r.Repo, SHA: r.SHA, Workflows: append([]string{}, r.Workflows...)}
}

type registrationsInput struct {
	Paging
	Source   string `query:"source" maxLength:"300" doc:"Name, id or routing key"`
	Repo     string `query:"repo" maxLength:"500"`
	Workflow string `query:"workflow" maxLength:"300"`
	Trigger  string `query:"trigger" maxLength:"60" doc:"Type of a trigger, such as schedule"`
	State    string `query:"state" maxLength:"20" doc:"enabled or disabled"`
	Global   bool   `query:"global" doc:"Only those that follow other repositories"`
}

func (a *API) listRegistrations(ctx context.Context, c *caller, in *registrationsInput) (client.RegistrationList, error) {
	f := read.RegistrationFilter{
		Repo: in.Repo, Workflow: in.Workflow, Trigger: in.Trigger, State: in.State, Global: in.Global, Cursor: in.Cursor, Limit: number(in.Limit),
	}
	if in.Source != "" {
		s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
		if err != nil {
			return client.RegistrationList{}, err
		}
		f.RoutingKey = s.RoutingKey
	}
	return a.d.Reads.Registrations(ctx, c.Scope, f)
}

type runRegistrationInput struct {
	Idempotent
	RegistrationRef
	Body *struct {
		RequestID string `json:"requestId,omitempty" maxLength:"200" doc:"The same as Idempotency-Key"`
	}
}

func (a *API) runRegistration(ctx context.Context, c *caller, in *runRegistrationInput) (rerunAnswer, error) {
	d, err := a.registration(ctx, c, in.Registration)
	if err != nil {
		return rerunAnswer{}, err
	}
	req := ingress.RunScheduleRequest{OrgID: c.Scope.OrgID, RegistrationID: d.ID, By: actor(c), RequestID: in.Key}
	if req.RequestID == "" && in.Body != nil {
		req.RequestID = in.Body.RequestID
	}
	id, err := a.d.Registrar.RunSchedule(ctx, req)
	if err != nil {
		return rerunAnswer{}, err
	}
	return rerunAnswer{a.newRun(ctx, c, id), id}, nil
}

type schedulesInput struct {
	Paging
	Repo     string `query:"repo" maxLength:"500"`
	Workflow string `query:"workflow" maxLength:"300"`
}

func (a *API) listSchedules(ctx context.Context, c *caller, in *schedulesInput) (client.ScheduleList, error) {
	return a.d.Reads.Schedules(ctx, c.Scope, read.ScheduleFilter{Repo: in.Repo, Workflow: in.Workflow, Cursor: in.Cursor, Limit: number(in.Limit)})
}
