package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// NewSource describes a source to add.
type NewSource struct {
	Kind          string          `json:"kind" doc:"local or generic"`
	Name          string          `json:"name" minLength:"1" maxLength:"63" doc:"1 to 63 of a-z, 0-9, '.', '_' and '-'"`
	Path          string          `json:"path,omitempty" maxLength:"4096" doc:"local: absolute path of the repository on the server's machine"`
	Repo          string          `json:"repo,omitempty" maxLength:"200" doc:"local: identifier shown on runs; the directory's name when empty"`
	DefaultBranch string          `json:"defaultBranch,omitempty" maxLength:"500" doc:"local: asked from the repository when empty"`
	Options       json.RawMessage `json:"options,omitempty" doc:"generic: how requests are verified and read"`
	RunsSource    string          `json:"runsSource,omitempty" maxLength:"63" doc:"generic: the source whose registered workflows it may start; any when empty"`
	Secret        string          `json:"secret,omitempty" maxLength:"4096" doc:"What senders sign with; made when empty and needed"`
}

// AddedSource answers AddSource. Secret is shown once, when the server made it.
type AddedSource struct {
	Source
	Secret string `json:"secret,omitempty"`
}

// Sources is every source.
func (c *Client) Sources(ctx context.Context) (out SourceList, err error) {
	return out, c.get(ctx, admin+"/sources", nil, &out)
}

// Source is one source, by name or id.
func (c *Client) Source(ctx context.Context, name string) (out Source, err error) {
	return out, c.get(ctx, sourcePath(name), nil, &out)
}

func sourcePath(name string) string { return admin + "/sources/" + url.PathEscape(name) }

// AddSource adds a source.
func (c *Client) AddSource(ctx context.Context, s NewSource) (out AddedSource, err error) {
	return out, c.post(ctx, admin+"/sources", s, &out)
}

// RemoveSource removes a source. Its runs stay.
func (c *Client) RemoveSource(ctx context.Context, name string) error {
	return c.delete(ctx, sourcePath(name))
}

// EnableSource turns a source on or off.
func (c *Client) EnableSource(ctx context.Context, name string, on bool) (out Source, err error) {
	verb := "/disable"
	if on {
		verb = "/enable"
	}
	return out, c.post(ctx, sourcePath(name)+verb, nil, &out)
}

// SourceCheck answers CheckSource.
type SourceCheck struct {
	OK            bool   `json:"ok"`
	Message       string `json:"message,omitempty"` // what is wrong
	DefaultBranch string `json:"defaultBranch,omitempty"`
	SHA           string `json:"sha,omitempty"` // its tip
	Title         string `json:"title,omitempty"`
}

// CheckSource asks the server to reach the source.
func (c *Client) CheckSource(ctx context.Context, name string) (out SourceCheck, err error) {
	return out, c.post(ctx, sourcePath(name)+"/check", nil, &out)
}

// SourceSecret is what senders of a source sign with.
func (c *Client) SourceSecret(ctx context.Context, name string) (string, error) {
	var out struct {
		Secret string `json:"secret"`
	}
	err := c.get(ctx, sourcePath(name)+"/webhook-secret", nil, &out)
	return out.Secret, err
}

// Triggered answers TriggerSource.
type Triggered struct {
	DeliveryID string `json:"deliveryId"`
}

// TriggerSource makes the server treat ref as just pushed.
func (c *Client) TriggerSource(ctx context.Context, name, ref string) (out Triggered, err error) {
	return out, c.post(ctx, sourcePath(name)+"/trigger", map[string]string{"ref": ref}, &out)
}

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

// AccessLog is a page of the access log, newest first.
func (c *Client) AccessLog(ctx context.Context, cursor string, limit int) (out AccessLog, err error) {
	v := url.Values{}
	page(v, cursor, limit)
	return out, c.get(ctx, admin+"/access-log", v, &out)
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
