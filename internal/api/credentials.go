package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store/db"
)

func (a *API) secretRoutes() {
	handle(a, get("/secrets", "List the names of secrets; values are never shown").global(), right{"secret.read", "secret.list.read"}, a.listSecrets)
	handle(a, put("/secrets/{key}", "Set a secret").global(), right{"secret.write", "secret.set"},
		func(ctx context.Context, c *caller, in *struct {
			SecretRef
			Body struct {
				Value string `json:"value" minLength:"1" maxLength:"65536"`
			}
		},
		) (stored, error) {
			c.note("scope", in.Scope)
			return stored{true}, a.d.Secrets.Set(ctx, c.Scope.OrgID, in.Scope, in.Key, in.Body.Value)
		})
	handle(a, del("/secrets/{key}", "Delete a secret").global(), right{"secret.delete", "secret.delete"},
		func(ctx context.Context, c *caller, in *SecretRef) (deleted, error) {
			c.note("scope", in.Scope)
			return deleted{true}, a.d.Secrets.Delete(ctx, c.Scope.OrgID, in.Scope, in.Key)
		})
}

// SecretRef names a secret in a path.
type SecretRef struct {
	Key   string `path:"key" maxLength:"200"`
	Scope string `query:"scope" maxLength:"500" doc:"Empty for the organisation, repo/<identifier> for one repository"`
}

type stored struct {
	Set bool `json:"set"`
}

func (a *API) listSecrets(ctx context.Context, c *caller, _ *struct{}) (client.SecretList, error) {
	infos, err := a.d.Secrets.List(ctx, c.Scope.OrgID)
	if err != nil {
		return client.SecretList{}, err
	}
	out := client.SecretList{Secrets: make([]client.SecretKey, len(infos))}
	for i, x := range infos {
		out.Secrets[i] = client.SecretKey{Key: x.Key, Scope: x.Scope, UpdatedAt: client.TimeOf(x.UpdatedAt), Unreadable: !x.Readable}
	}
	return out, nil
}

const agentTokenPath = "/api/v1/agent-tokens"

func (a *API) tokenRoutes() {
	handle(a, get("/whoami", "Say who the token is").sampled(0.01), right{"run.read", "token.whoami.read"},
		func(_ context.Context, c *caller, _ *struct{}) (client.Identity, error) {
			return client.Identity{TokenID: c.TokenID, OrgID: c.Principal.OrgID, Label: c.Label, Role: string(c.Role), RoutingKey: c.Principal.RoutingKey}, nil
		})
	// Who may act here may also do so in the dashboard; the link carries the token's own rights.
	handle(a, post("", "Make a one-time address of the dashboard").at("/api/v1/login-links").created(), right{"run.trigger", "token.login_link"}, a.loginLink)
	handle(a, get("/access-log", "List who did what, newest first").all().global(), right{"access_log.read", "access_log.read"},
		a.listAccess)
	handle(a, get("/access-log/{entry}", "Show an entry of the access log").all().global(), right{"access_log.read", "access_log.entry.read"},
		func(ctx context.Context, c *caller, in *struct {
			Entry string `path:"entry" maxLength:"100"`
		},
		) (client.AccessEntry, error) {
			return a.d.Reads.AccessEntry(ctx, c.Scope, in.Entry)
		})
	handle(a, post("/tokens", "Create an admin token; it is shown once").global().created(), right{"token.manage", "token.create"}, a.createToken)
	handle(a, get("/tokens", "List admin tokens").global(), right{"token.manage", "token.list.read"}, a.listTokens)
	handle(a, del("/tokens/{token}", "Revoke an admin token").global(), right{"token.manage", "token.revoke"},
		func(ctx context.Context, c *caller, in *tokenRef) (revoked, error) {
			return revoked{true}, a.d.Tokens.RevokeToken(ctx, c.Principal, in.Token)
		})
	handle(a, post("", "Create a token for static agents; it is shown once").at(agentTokenPath).global().created(),
		right{"token.manage", "agent_token.create"}, a.createAgentToken)
	handle(a, get("", "List agent tokens").at(agentTokenPath).global(), right{"token.manage", "agent_token.list.read"}, a.listAgentTokens)
	handle(a, del("", "Revoke an agent token").at(agentTokenPath+"/{token}").global(), right{"token.manage", "agent_token.revoke"},
		func(ctx context.Context, c *caller, in *tokenRef) (revoked, error) {
			_, err := a.d.AgentTokens.RevokeAgentToken(ctx, c.Principal, in.Token)
			return revoked{true}, err
		})
}

func (a *API) listAccess(ctx context.Context, c *caller, in *struct {
	Paging
	Action  string `query:"action" maxLength:"200" doc:"Exactly, or a beginning with * at its end"`
	Actor   string `query:"actor" maxLength:"255" doc:"Id or label of the token"`
	Outcome string `query:"outcome" maxLength:"20" doc:"allowed, denied or error"`
	Target  string `query:"target" maxLength:"500"`
	Since   string `query:"since" maxLength:"40"`
	Until   string `query:"until" maxLength:"40"`
},
) (client.AccessLog, error) {
	from, err := since(in.Since)
	if err != nil {
		return client.AccessLog{}, err
	}
	to, err := since(in.Until)
	if err != nil {
		return client.AccessLog{}, err
	}
	return a.d.Reads.AccessLog(ctx, c.Scope, read.AccessFilter{
		Action: in.Action, Actor: in.Actor, Outcome: in.Outcome, Target: in.Target, Since: from, Until: to, Cursor: in.Cursor, Limit: number(in.Limit),
	})
}

type tokenRef struct {
	Token string `path:"token" maxLength:"100" doc:"Id of the token"`
}

type revoked struct {
	Revoked bool `json:"revoked"`
}

func (a *API) loginLink(ctx context.Context, c *caller, _ *struct{}) (client.LoginLink, error) {
	secret, err := a.d.Tokens.CreateLoginLink(ctx, c.TokenID)
	if err != nil {
		return client.LoginLink{}, err
	}
	return client.LoginLink{
		URL:       a.d.BaseURL() + "/login/link/" + secret,
		ExpiresAt: client.TimeOf(a.d.Env.NowMs() + access.LinkLife.Milliseconds()),
	}, nil
}

type newTokenInput struct {
	Body struct {
		Label      string     `json:"label" minLength:"1" maxLength:"255"`
		Role       string     `json:"role" enum:"owner,admin,auditor"`
		RoutingKey string     `json:"routingKey,omitempty" maxLength:"300" doc:"Limits the token to one source"`
		ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
		Subject    string     `json:"subject,omitempty" maxLength:"255" doc:"Whom it stands for; nothing is decided by it"`
	}
}

func (a *API) createToken(ctx context.Context, c *caller, in *newTokenInput) (client.Created, error) {
	n := access.NewToken{Label: in.Body.Label, Role: access.Role(in.Body.Role), RoutingKey: in.Body.RoutingKey, Subject: in.Body.Subject}
	if in.Body.ExpiresAt != nil {
		n.ExpiresAt = in.Body.ExpiresAt.UnixMilli()
	}
	c.note("label", n.Label)
	c.note("role", n.Role)
	token, row, err := a.d.Tokens.CreateToken(ctx, c.Principal, n)
	c.note("id", row.ID)
	return client.Created{ID: row.ID, Token: token, Label: row.Label, Role: row.Role}, err
}

func (a *API) listTokens(ctx context.Context, c *caller, _ *struct{}) (client.TokenList, error) {
	rows, err := a.d.Tokens.ListTokens(ctx, c.Scope.OrgID)
	out := client.TokenList{Tokens: make([]client.Token, len(rows))}
	for i, x := range rows {
		out.Tokens[i] = client.Token{
			ID: x.ID, Type: "admin", Label: x.Label, Role: x.Role, RoutingKey: x.RoutingKey.String, Subject: x.Subject, CreatedAt: client.TimeOf(x.CreatedAt),
			ExpiresAt: instant(x.ExpiresAt.Int64), RevokedAt: instant(x.RevokedAt.Int64), LastUsedAt: instant(x.LastUsedAt.Int64),
		}
	}
	return out, err
}

func instant(ms int64) *client.Time {
	if ms == 0 {
		return nil
	}
	t := client.TimeOf(ms)
	return &t
}

type newAgentTokenInput struct {
	Body struct {
		Labels          []string `json:"labels,omitempty" maxItems:"100" doc:"What its agents may register with; empty does not limit"`
		MandatoryLabels []string `json:"mandatoryLabels,omitempty" maxItems:"100" doc:"What a job must name to run on them"`
	}
}

func (a *API) createAgentToken(ctx context.Context, c *caller, in *newAgentTokenInput) (createdAgentToken, error) {
	token, row, err := a.d.AgentTokens.CreateAgentToken(ctx, c.Principal, in.Body.Labels, in.Body.MandatoryLabels)
	if err != nil {
		return createdAgentToken{}, err
	}
	c.note("id", row.ID)
	c.note("labels", labelsOf(row))
	return createdAgentToken{
		Created:   client.Created{ID: row.ID, Token: token, Prefix: row.Prefix, Labels: labelsOf(row), Type: row.Type},
		CreatedAt: client.TimeOf(row.CreatedAt),
	}, nil
}

type createdAgentToken struct {
	client.Created
	CreatedAt client.Time `json:"createdAt"`
}

func labelsOf(row db.AgentToken) []string {
	labels := []string{}
	_ = json.Unmarshal([]byte(row.Labels), &labels)
	return labels
}

func (a *API) listAgentTokens(ctx context.Context, c *caller, in *struct {
	Type string `query:"type" maxLength:"20" doc:"static or ephemeral; both when empty"`
},
) (client.TokenList, error) {
	rows, err := a.d.AgentTokens.ListAgentTokens(ctx, c.Scope.OrgID, in.Type)
	out := client.TokenList{Tokens: make([]client.Token, len(rows))}
	for i, x := range rows {
		out.Tokens[i] = client.Token{
			ID: x.ID, Type: x.Type, Prefix: x.Prefix, Labels: labelsOf(x), AgentID: x.AgentID, CreatedAt: client.TimeOf(x.CreatedAt),
			ExpiresAt: instant(x.ExpiresAt.Int64), RevokedAt: instant(x.RevokedAt.Int64), LastUsedAt: instant(x.LastSeenAt.Int64),
		}
	}
	return out, err
}
