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
	Kind          string          `json:"kind" doc:"local, generic, github, gitea or gitlab"`
	Name          string          `json:"name" minLength:"1" maxLength:"63" doc:"1 to 63 of a-z, 0-9, '.', '_' and '-'"`
	Path          string          `json:"path,omitempty" maxLength:"4096" doc:"local: absolute path of the repository on the server's machine"`
	Repo          string          `json:"repo,omitempty" maxLength:"200" doc:"local: identifier shown on runs; the directory's name when empty"`
	DefaultBranch string          `json:"defaultBranch,omitempty" maxLength:"500" doc:"local: asked from the repository when empty"`
	Options       json.RawMessage `json:"options,omitempty" doc:"generic: how requests are verified and read. github, gitea, gitlab: where the repository is and how it is used"`
	RunsSource    string          `json:"runsSource,omitempty" maxLength:"63" doc:"generic: the source whose registered workflows it may start; any when empty"`
	Token         string          `json:"token,omitempty" maxLength:"4096" doc:"github, gitea, gitlab: for the API and for clones by HTTPS"`
	SSHKey        string          `json:"sshKey,omitempty" maxLength:"32768" doc:"github, gitea, gitlab: private key for clones by SSH"`
	Secret        string          `json:"secret,omitempty" maxLength:"4096" doc:"What senders sign with; made when empty and needed"`
}

// AddedSource answers AddSource. Secret is shown once, when the server made it.
type AddedSource struct {
	Source
	Secret   string   `json:"secret,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what keeps it from working, as far as the server knows
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
	OK            bool     `json:"ok"`
	Message       string   `json:"message,omitempty"`  // what is wrong
	Warnings      []string `json:"warnings,omitempty"` // what may keep deliveries or statuses away
	DefaultBranch string   `json:"defaultBranch,omitempty"`
	SHA           string   `json:"sha,omitempty"` // its tip
	Title         string   `json:"title,omitempty"`
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

// SourceUpdate replaces the options of a source.
type SourceUpdate struct {
	Repo    string          `json:"repo,omitempty" maxLength:"200" doc:"local: identifier shown on runs; kept when empty. Sources on a forge take it from the options"`
	Options json.RawMessage `json:"options" doc:"All options of the source, as it shows them under config"`
}

// UpdateSource replaces the options of a source.
func (c *Client) UpdateSource(ctx context.Context, name string, u SourceUpdate) (out Source, err error) {
	return out, c.do(ctx, call{method: http.MethodPut, path: sourcePath(name), body: u}, &out)
}

// SetSourceToken gives a source on a forge another token.
func (c *Client) SetSourceToken(ctx context.Context, name, token string) error {
	return c.do(ctx, call{method: http.MethodPut, path: sourcePath(name) + "/token", body: map[string]string{"value": token}}, nil)
}

// SetSourceSSHKey gives a source on a forge another private key for its clones.
func (c *Client) SetSourceSSHKey(ctx context.Context, name, key string) error {
	return c.do(ctx, call{method: http.MethodPut, path: sourcePath(name) + "/ssh-key", body: map[string]string{"value": key}}, nil)
}

// RotatedSecret answers RotateSourceSecret.
type RotatedSecret struct {
	Secret       string `json:"secret"`
	WebhookURL   string `json:"webhookUrl"`
	OldUntil     Time   `json:"oldUntil"` // the former secret is accepted until then, or until it is dropped
	Installed    bool   `json:"installed"`
	InstallError string `json:"installError,omitempty"` // why the forge does not have it yet
}

// RotateSourceSecret makes a new webhook secret; install also tells the forge.
func (c *Client) RotateSourceSecret(ctx context.Context, name string, install bool) (out RotatedSecret, err error) {
	return out, c.post(ctx, sourcePath(name)+"/rotate-secret", map[string]bool{"install": install}, &out)
}

// DropOldSourceSecret ends the former webhook secret now.
func (c *Client) DropOldSourceSecret(ctx context.Context, name string) error {
	return c.delete(ctx, sourcePath(name)+"/old-secret")
}

// InstalledHook answers InstallSourceHook.
type InstalledHook struct {
	WebhookURL string `json:"webhookUrl"`
}

// InstallSourceHook creates the webhook at the forge, or brings it up to date.
func (c *Client) InstallSourceHook(ctx context.Context, name string) (out InstalledHook, err error) {
	return out, c.post(ctx, sourcePath(name)+"/install-hook", nil, &out)
}

// Redelivery is a window of time whose failed deliveries the forge is asked to repeat.
type Redelivery struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	DryRun bool      `json:"dryRun,omitempty"`
}

// Redelivered answers RedeliverSource.
type Redelivered struct {
	Matched     int                `json:"matched"` // could not be delivered by the forge
	Known       int                `json:"known"`   // of those: here all the same
	Redelivered int                `json:"redelivered"`
	Failed      []FailedRedelivery `json:"failed"`
	More        bool               `json:"more"` // there are more in the window: ask again with a later since
}

// FailedRedelivery is a delivery that the forge did not repeat.
type FailedRedelivery struct {
	GUID  string `json:"guid"`
	Event string `json:"event"`
	Error string `json:"error"`
}

// RedeliverSource asks the forge to repeat what it could not deliver.
func (c *Client) RedeliverSource(ctx context.Context, name string, r Redelivery) (out Redelivered, err error) {
	return out, c.post(ctx, sourcePath(name)+"/redeliver", r, &out)
}
