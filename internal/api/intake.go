package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
)

// sources manages the origins of deliveries (ingress.Service).
type sources interface {
	AddLocal(ctx context.Context, l ingress.LocalSource) (ingress.Added, error)
	AddGeneric(ctx context.Context, g ingress.GenericSource) (ingress.Added, error)
	AddForge(ctx context.Context, f ingress.ForgeSource) (ingress.Added, error)
	Get(ctx context.Context, orgID, ref string) (db.Source, error)
	Update(ctx context.Context, read db.Source, repo string, options json.RawMessage) error
	Enable(ctx context.Context, orgID, name string, on bool) error
	Delete(ctx context.Context, orgID, name string) error
	PurgeStale(ctx context.Context, req ingress.PurgeRequest) ([]db.Source, error)
}

// origins looks at one origin (ingress.Service).
type origins interface {
	Check(ctx context.Context, orgID, name string) (ingress.Checked, error)
	RevealSecret(ctx context.Context, orgID, name string) (string, error)
	RotateSecret(ctx context.Context, orgID, name string) (string, error)
	DropOldSecret(ctx context.Context, orgID, name string) error
	SetToken(ctx context.Context, orgID, name, token string) error
	SetSSHKey(ctx context.Context, orgID, name, key string) error
	InstallHook(ctx context.Context, orgID, name string) (address string, err error)
	Redeliver(ctx context.Context, r ingress.RedeliverRequest) (ingress.Redelivered, error)
}

// starter begins work that no delivery asked for (ingress.Service).
type starter interface {
	Start(ctx context.Context, r ingress.StartRequest) (runID string, err error)
	Trigger(ctx context.Context, r ingress.TriggerRequest) (deliveryID string, err error)
	Workflows(ctx context.Context, orgID, source, ref string) (ingress.RefWorkflows, error)
	Replay(ctx context.Context, orgID, id string) error
}

// SourceRef names a source in a path.
type SourceRef struct {
	Source string `path:"source" maxLength:"300" doc:"Name, id or routing key"`
}

func (a *API) sourceRoutes() {
	handle(a, get("/sources", "List sources"), right{"context.read", "source.list.read"},
		func(ctx context.Context, c *caller, _ *struct{}) (client.SourceList, error) {
			return a.d.Reads.Sources(ctx, c.Scope)
		})
	handle(a, get("/sources/{source}", "Show a source"), right{"context.read", "source.read"},
		func(ctx context.Context, c *caller, in *SourceRef) (client.Source, error) {
			return a.d.Reads.SourceDetail(ctx, c.Scope, in.Source)
		})
	handle(a, post("/sources", "Add a source").global().created(), right{"source.manage", "source.create"}, a.addSource)
	handle(a, post("/sources/purge-stale", "Remove sources that have been off for a long time; without confirm only list them").global(),
		right{"maintenance", "source.purge_stale"}, a.purgeSources)
	handle(a, del("/sources/{source}", "Remove a source; its runs stay"), right{"source.manage", "source.delete"},
		func(ctx context.Context, c *caller, in *SourceRef) (deleted, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return deleted{}, err
			}
			return deleted{true}, a.d.Sources.Delete(ctx, c.Scope.OrgID, s.Name)
		})
	for verb, on := range map[string]bool{"enable": true, "disable": false} {
		handle(a, post("/sources/{source}/"+verb, "Turn a source on or off"), right{"source.manage", Action("source." + verb)},
			func(ctx context.Context, c *caller, in *SourceRef) (client.Source, error) {
				s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
				if err != nil {
					return s, err
				}
				if err := a.d.Sources.Enable(ctx, c.Scope.OrgID, s.Name, on); err != nil {
					return s, err
				}
				return a.d.Reads.Source(ctx, c.Scope, s.ID)
			})
	}
	handle(a, post("/sources/{source}/check", "Reach the source"), right{"source.manage", "source.check"},
		func(ctx context.Context, c *caller, in *SourceRef) (client.SourceCheck, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return client.SourceCheck{}, err
			}
			return a.check(ctx, c, s.Name)
		})
	handle(a, get("/sources/{source}/webhook-secret", "Show what senders of a source sign with").all(), right{"secret.reveal", "source.secret.reveal"}, a.revealSecret)
	handle(a, get("/sources/{source}/workflows", "Show the workflows of a branch, tag or commit, with their inputs").sampled(0.05),
		right{"context.read", "source.workflows.read"}, a.workflows)
	a.credentialRoutes()
	handle(a, post("/sources/{source}/trigger", "Treat a ref as just pushed"), right{"run.trigger", "source.trigger"}, a.trigger)
}

type deleted struct {
	Deleted bool `json:"deleted"`
}

type newSourceInput struct{ Body client.NewSource }

func (a *API) addSource(ctx context.Context, c *caller, in *newSourceInput) (client.AddedSource, error) {
	b := in.Body
	c.note("name", b.Name)
	c.note("kind", b.Kind)
	var added ingress.Added
	var err error
	switch b.Kind {
	case ingress.KindLocal:
		added, err = a.d.Sources.AddLocal(ctx, ingress.LocalSource{
			OrgID: c.Scope.OrgID, Name: b.Name, Path: b.Path, Repo: b.Repo, DefaultBranch: b.DefaultBranch, Secret: b.Secret,
		})
	case ingress.KindGeneric:
		added, err = a.d.Sources.AddGeneric(ctx, ingress.GenericSource{
			OrgID: c.Scope.OrgID, Name: b.Name, Options: b.Options, RunsSource: b.RunsSource, Secret: b.Secret,
		})
	case source.KindGitHub, source.KindGitea, source.KindGitLab:
		added, err = a.d.Sources.AddForge(ctx, ingress.ForgeSource{
			OrgID: c.Scope.OrgID, Name: b.Name, Kind: b.Kind, Options: b.Options, Token: b.Token, SSHKey: b.SSHKey, Secret: b.Secret,
		})
	default:
		return client.AddedSource{}, badRequest("kind is local, generic, github, gitea or gitlab, not %q", b.Kind)
	}
	if err != nil {
		return client.AddedSource{}, err
	}
	c.note("id", added.Source.ID)
	s, err := a.d.Reads.Source(ctx, c.Scope, added.Source.ID)
	return client.AddedSource{Source: s, Secret: added.Secret, Warnings: added.Warnings}, err
}

// check reaches the source. What goes wrong there is the answer, not an error of the request.
func (a *API) check(ctx context.Context, c *caller, name string) (client.SourceCheck, error) {
	found, err := a.d.Origins.Check(ctx, c.Scope.OrgID, name)
	if errors.Is(err, ingress.ErrNotFound) || ctx.Err() != nil {
		return client.SourceCheck{}, err
	}
	if err != nil {
		return client.SourceCheck{Message: err.Error(), Warnings: found.Warnings}, nil //nolint:nilerr // what is wrong there is the answer
	}
	return client.SourceCheck{
		OK: true, Warnings: found.Warnings, DefaultBranch: found.DefaultBranch, SHA: found.Commit.SHA, Title: found.Commit.Title,
	}, nil
}

type webhookSecret struct {
	Secret string `json:"secret"`
}

func (a *API) revealSecret(ctx context.Context, c *caller, in *SourceRef) (webhookSecret, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return webhookSecret{}, err
	}
	text, err := a.d.Origins.RevealSecret(ctx, c.Scope.OrgID, s.Name)
	return webhookSecret{text}, err
}

type triggerInput struct {
	SourceRef
	Body struct {
		Ref string `json:"ref,omitempty" maxLength:"1000" doc:"Branch, tag or full ref; the default branch when empty"`
	}
}

func (a *API) trigger(ctx context.Context, c *caller, in *triggerInput) (client.Triggered, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return client.Triggered{}, err
	}
	c.note("ref", in.Body.Ref)
	id, err := a.d.Start.Trigger(ctx, ingress.TriggerRequest{OrgID: c.Scope.OrgID, Source: s.Name, Ref: in.Body.Ref, By: actor(c)})
	return client.Triggered{DeliveryID: id}, err
}

type workflowsInput struct {
	SourceRef
	Ref string `query:"ref" maxLength:"1000" doc:"Branch, tag or commit; the default branch when empty"`
}

func (a *API) workflows(ctx context.Context, c *caller, in *workflowsInput) (client.Workflows, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return client.Workflows{}, err
	}
	found, err := a.d.Start.Workflows(ctx, c.Scope.OrgID, s.Name, in.Ref)
	if err != nil {
		return client.Workflows{}, err
	}
	return read.Workflows(found), nil
}

// actor is who is shown as having done something.
func actor(c *caller) string {
	if c.Label != "" {
		return c.Label
	}
	return c.TokenID
}
