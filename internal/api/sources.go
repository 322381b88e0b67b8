package api

import (
	"context"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ingress"
)

// credentialRoutes change a source: its options, its secrets, and what its forge has of it.
func (a *API) credentialRoutes() {
	handle(a, put("/sources/{source}", "Replace the options of a source"), right{"source.manage", "source.update"}, a.updateSource)
	handle(a, put("/sources/{source}/token", "Give a source on a forge another token"), right{"source.manage", "source.token.set"},
		func(ctx context.Context, c *caller, in *credentialInput) (stored, error) {
			return a.setCredential(ctx, c, in, a.d.Origins.SetToken)
		})
	handle(a, put("/sources/{source}/ssh-key", "Give a source on a forge another private key"), right{"source.manage", "source.ssh_key.set"},
		func(ctx context.Context, c *caller, in *credentialInput) (stored, error) {
			return a.setCredential(ctx, c, in, a.d.Origins.SetSSHKey)
		})
	handle(a, post("/sources/{source}/rotate-secret", "Make a new webhook secret; the old one is accepted for a week"), right{"source.manage", "source.secret.rotate"}, a.rotateSecret)
	handle(a, del("/sources/{source}/old-secret", "End the former webhook secret now"), right{"source.manage", "source.secret.drop"},
		func(ctx context.Context, c *caller, in *SourceRef) (deleted, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return deleted{}, err
			}
			return deleted{true}, a.d.Origins.DropOldSecret(ctx, c.Scope.OrgID, s.ID)
		})
	handle(a, post("/sources/{source}/install-hook", "Create the webhook at the forge, or bring it up to date"), right{"source.manage", "source.hook.install"},
		func(ctx context.Context, c *caller, in *SourceRef) (client.InstalledHook, error) {
			s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
			if err != nil {
				return client.InstalledHook{}, err
			}
			address, err := a.d.Origins.InstallHook(ctx, c.Scope.OrgID, s.ID)
			return client.InstalledHook{WebhookURL: address}, err
		})
	handle(a, post("/sources/{source}/redeliver", "Ask the forge to repeat what it could not deliver"), right{"source.manage", "source.redeliver"}, a.redeliver)
}

type updateSourceInput struct {
	SourceRef
	Body client.SourceUpdate
}

func (a *API) updateSource(ctx context.Context, c *caller, in *updateSourceInput) (client.Source, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return s, err
	}
	row, err := a.d.Sources.Get(ctx, c.Scope.OrgID, s.ID)
	if err != nil {
		return s, err
	}
	repo := row.Repo
	if in.Body.Repo != "" {
		repo = in.Body.Repo
	}
	if err := a.d.Sources.Update(ctx, row, repo, in.Body.Options); err != nil {
		return s, err
	}
	return a.d.Reads.Source(ctx, c.Scope, s.ID)
}

type credentialInput struct {
	SourceRef
	Body struct {
		Value string `json:"value" minLength:"1" maxLength:"32768"`
	}
}

func (a *API) setCredential(ctx context.Context, c *caller, in *credentialInput, set func(ctx context.Context, orgID, ref, value string) error) (stored, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return stored{}, err
	}
	if err := set(ctx, c.Scope.OrgID, s.ID, in.Body.Value); err != nil {
		return stored{}, err
	}
	return stored{true}, nil
}

type rotateInput struct {
	SourceRef
	Body struct {
		Install bool `json:"install,omitempty" doc:"Also tell the forge"`
	}
}

// rotateSecret makes a secret. That the forge could not be told is part of the answer: the secret is made all the same.
func (a *API) rotateSecret(ctx context.Context, c *caller, in *rotateInput) (client.RotatedSecret, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return client.RotatedSecret{}, err
	}
	text, err := a.d.Origins.RotateSecret(ctx, c.Scope.OrgID, s.ID)
	if err != nil {
		return client.RotatedSecret{}, err
	}
	until := a.d.Env.Now().Add(ingress.OldSecretFor)
	out := client.RotatedSecret{Secret: text, WebhookURL: s.WebhookURL, OldUntil: client.TimeOf(until.UnixMilli())}
	if in.Body.Install {
		if _, err := a.d.Origins.InstallHook(ctx, c.Scope.OrgID, s.ID); err != nil {
			out.InstallError = failureOf(err).Message
		}
		out.Installed = out.InstallError == ""
	}
	return out, nil
}

type redeliverInput struct {
	SourceRef
	Body struct {
		Since  time.Time `json:"since"`
		Until  time.Time `json:"until"`
		DryRun bool      `json:"dryRun,omitempty"`
	}
}

func (a *API) redeliver(ctx context.Context, c *caller, in *redeliverInput) (client.Redelivered, error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
	if err != nil {
		return client.Redelivered{}, err
	}
	c.note("dryRun", in.Body.DryRun)
	r, err := a.d.Origins.Redeliver(ctx, ingress.RedeliverRequest{
		OrgID: c.Scope.OrgID, Source: s.ID, Since: in.Body.Since, Until: in.Body.Until, DryRun: in.Body.DryRun,
	})
	out := client.Redelivered{Matched: r.Matched, Known: r.Known, Redelivered: r.Redelivered, More: r.More, Failed: []client.FailedRedelivery{}}
	for _, f := range r.Failed {
		out.Failed = append(out.Failed, client.FailedRedelivery(f))
	}
	return out, err
}

// Bounds of how long a source must have been off.
const (
	defaultOff = 90 * 24 * time.Hour
	leastOff   = 24 * time.Hour
)

type purgeSourcesInput struct {
	Body *struct {
		Confirm bool  `json:"confirm,omitempty" doc:"Really do it"`
		IdleMs  int64 `json:"idleMs,omitempty" minimum:"0" maximum:"315360000000" doc:"For how long the source has been off and nothing has come; 0 is 90 days, a day is the least"`
	}
}

func (a *API) purgeSources(ctx context.Context, c *caller, in *purgeSourcesInput) (client.PurgedSources, error) {
	req := ingress.PurgeRequest{OrgID: c.Scope.OrgID, Idle: defaultOff, DryRun: true}
	if in.Body != nil {
		req.DryRun = !in.Body.Confirm
		if in.Body.IdleMs > 0 {
			req.Idle = time.Duration(in.Body.IdleMs) * time.Millisecond
		}
	}
	if req.Idle < leastOff {
		return client.PurgedSources{}, badRequest("idleMs: a source must have been off for at least %d ms", leastOff.Milliseconds())
	}
	c.note("dryRun", req.DryRun)
	stale, err := a.d.Sources.PurgeStale(ctx, req)
	if err != nil {
		return client.PurgedSources{}, err
	}
	c.note("sources", len(stale))
	out := client.PurgedSources{DryRun: req.DryRun, Sources: make([]client.StaleSource, len(stale))}
	for i, s := range stale {
		out.Sources[i] = client.StaleSource{ID: s.ID, Kind: s.Kind, Name: s.Name, RoutingKey: s.RoutingKey, Repo: s.Repo, UpdatedAt: client.TimeOf(s.UpdatedAt)}
	}
	return out, nil
}
