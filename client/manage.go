package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// DeliveryQuery narrows a list of deliveries.
type DeliveryQuery struct {
	Source, Status, Event string
	Since                 time.Time
	Cursor                string
	Limit                 int
}

// Deliveries is a page of deliveries, newest first.
func (c *Client) Deliveries(ctx context.Context, q DeliveryQuery) (out DeliveryList, err error) {
	v := url.Values{}
	set(v, "source", q.Source)
	set(v, "status", q.Status)
	set(v, "event", q.Event)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, admin+"/deliveries", v, &out)
}

// Delivery is one delivery with its decisions; payload asks for what was sent.
func (c *Client) Delivery(ctx context.Context, id string, payload bool) (out Delivery, err error) {
	path := admin + "/deliveries/" + url.PathEscape(id)
	if payload {
		path += "/payload"
	}
	return out, c.get(ctx, path, nil, &out)
}

// Secrets are the names of the organisation's secrets.
func (c *Client) Secrets(ctx context.Context) (out SecretList, err error) {
	return out, c.get(ctx, admin+"/secrets", nil, &out)
}

// SetSecret stores a secret. scope is "" for the organisation, repo/<identifier> for one repository.
func (c *Client) SetSecret(ctx context.Context, scope, key, value string) error {
	v := url.Values{}
	set(v, "scope", scope)
	return c.do(ctx, call{method: http.MethodPut, path: admin + "/secrets/" + url.PathEscape(key), query: v, body: map[string]string{"value": value}}, nil)
}

// DeleteSecret removes a secret.
func (c *Client) DeleteSecret(ctx context.Context, scope, key string) error {
	v := url.Values{}
	set(v, "scope", scope)
	return c.do(ctx, call{method: http.MethodDelete, path: admin + "/secrets/" + url.PathEscape(key), query: v}, nil)
}

// NewToken describes an admin token to create.
type NewToken struct {
	Label      string     `json:"label"`
	Role       string     `json:"role"`
	RoutingKey string     `json:"routingKey,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	Subject    string     `json:"subject,omitempty"` // whom it stands for
}

// CreateToken creates an admin token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (out Created, err error) {
	return out, c.post(ctx, admin+"/tokens", t, &out)
}

// Tokens are the admin tokens.
func (c *Client) Tokens(ctx context.Context) (out TokenList, err error) {
	return out, c.get(ctx, admin+"/tokens", nil, &out)
}

// RevokeToken revokes an admin token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.delete(ctx, admin+"/tokens/"+url.PathEscape(id))
}

// NewAgentToken describes a static agent's token.
type NewAgentToken struct {
	Labels          []string `json:"labels,omitempty"`
	MandatoryLabels []string `json:"mandatoryLabels,omitempty"`
}

const agentTokens = "/api/v1/agent-tokens"

// CreateAgentToken creates a token for static agents.
func (c *Client) CreateAgentToken(ctx context.Context, t NewAgentToken) (out Created, err error) {
	return out, c.post(ctx, agentTokens, t, &out)
}

// AgentTokens are the tokens of agents; kind is static, ephemeral or "" for both.
func (c *Client) AgentTokens(ctx context.Context, kind string) (out TokenList, err error) {
	v := url.Values{}
	set(v, "type", kind)
	return out, c.get(ctx, agentTokens, v, &out)
}

// RevokeAgentToken revokes an agent token.
func (c *Client) RevokeAgentToken(ctx context.Context, id string) error {
	return c.delete(ctx, agentTokens+"/"+url.PathEscape(id))
}
