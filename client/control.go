package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Setting is one key of the cluster's or an organisation's settings, as it holds.
type Setting struct {
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value"`
	Default  json.RawMessage `json:"default"`
	Source   string          `json:"source"` // live, environment, default
	Type     string          `json:"type"`   // number, boolean, text, list, map
	Unit     string          `json:"unit,omitempty"`
	Min      *int64          `json:"min,omitempty"`
	Max      *int64          `json:"max,omitempty"`
	Variable string          `json:"variable"`           // that sets it in the environment
	Restart  bool            `json:"restart,omitempty"`  // counts from the next start
	NoEffect bool            `json:"noEffect,omitempty"` // kept and shown; nothing in this version reads it
	About    string          `json:"about"`
}

// Settings is all settings of a scope.
type Settings struct {
	Scope     string    `json:"scope"` // cluster, or org:<organisation>
	Version   int64     `json:"version"`
	UpdatedAt *Time     `json:"updatedAt,omitempty"`
	UpdatedBy string    `json:"updatedBy,omitempty"`
	Settings  []Setting `json:"settings"`
}

// SettingsChanged answers a change of settings.
type SettingsChanged struct {
	Version  int64           `json:"version"`
	Changed  []SettingChange `json:"changed"`            // empty: everything was so already, and the version did not rise
	Warnings []string        `json:"warnings,omitempty"` // such as keys without effect in this version
}

// SettingChange is one stored value before and after; null is none.
type SettingChange struct {
	Key string          `json:"key"`
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"`
}

// Propagation says which version of the settings each instance has.
type Propagation struct {
	Version   int64               `json:"version"` // stored
	Applied   int64               `json:"applied"` // here
	Instances []PropagationStatus `json:"instances"`
}

// PropagationStatus is one instance's.
type PropagationStatus struct {
	InstanceID string `json:"instanceId"`
	Name       string `json:"name"`
	Applied    int64  `json:"applied"`
	Behind     bool   `json:"behind"`
	Live       bool   `json:"live"`
}

// ClusterName is the name of the cluster.
type ClusterName struct {
	Name              string `json:"name"`
	ReconnectRequired bool   `json:"reconnectRequired,omitempty"` // after a change: running instances have the old one until they start again
}

// ClusterHealth is the state of the cluster.
type ClusterHealth struct {
	Status   string `json:"status"` // healthy, degraded, unhealthy
	Reason   string `json:"reason,omitempty"`
	LeaderID string `json:"leaderId,omitempty"`
	Term     int64  `json:"term,omitempty"`
	Live     int    `json:"live"`
}

// Instance is one orchestrator.
type Instance struct {
	InstanceID      string `json:"instanceId"`
	Name            string `json:"name"`
	Version         string `json:"version"`
	URL             string `json:"url"`
	State           string `json:"state"` // starting, ready, draining, stopped, lost
	Leader          bool   `json:"leader"`
	Draining        bool   `json:"draining"`
	JobsRunning     int64  `json:"jobsRunning"`
	Agents          int64  `json:"agents"`
	SettingsVersion int64  `json:"settingsVersion"`
	RegistryVersion int64  `json:"registryVersion"`
	StartedAt       Time   `json:"startedAt"`
	LastSeenAt      *Time  `json:"lastSeenAt,omitempty"`
}

// InstanceList is every instance.
type InstanceList struct {
	Instances []Instance `json:"instances"`
}

// DrainState is where an instance is with taking no new work.
type DrainState struct {
	InstanceID  string `json:"instanceId"`
	Name        string `json:"name"`
	Draining    bool   `json:"draining"`
	JobsRunning int64  `json:"jobsRunning"`
}

// Org is one organisation.
type Org struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	CreatedAt Time   `json:"createdAt"`
}

// OrgList is the organisations that the token may know of.
type OrgList struct {
	Orgs []Org `json:"organisations"`
}

// NewOrg answers the creation of an organisation: the only time that its first owner's token is shown.
type NewOrg struct {
	Org     Org    `json:"organisation"`
	TokenID string `json:"tokenId,omitempty"`
	Token   string `json:"token"`
}

// ScheduledJob is one periodic job of the server.
type ScheduledJob struct {
	Name       string `json:"name"`
	About      string `json:"about"`
	EveryMs    int64  `json:"everyMs"`
	LastRunAt  *Time  `json:"lastRunAt,omitempty"`
	LastOKAt   *Time  `json:"lastOkAt,omitempty"`
	DurationMs int64  `json:"durationMs"`
	Failures   int64  `json:"consecutiveFailures"`
	LastError  string `json:"lastError,omitempty"`
	InstanceID string `json:"instanceId,omitempty"`
}

// ScheduledJobList is every periodic job.
type ScheduledJobList struct {
	Jobs []ScheduledJob `json:"jobs"`
}

// JobTriggered is the outcome of a periodic job that was run by hand.
type JobTriggered struct {
	Triggered  bool     `json:"triggered"`
	OK         bool     `json:"ok"`
	DurationMs int64    `json:"durationMs"`
	Error      string   `json:"error,omitempty"`
	Report     []string `json:"report,omitempty"`
}

// WithOrg returns a client that acts in another organisation, which only who operates the cluster may.
func (c *Client) WithOrg(org string) *Client {
	d := *c
	d.org = org
	return &d
}

// ClusterSettings are the settings of the cluster.
func (c *Client) ClusterSettings(ctx context.Context) (out Settings, err error) {
	return out, c.get(ctx, admin+"/cluster-settings", nil, &out)
}

// SetClusterSettings changes settings of the cluster; a null clears.
func (c *Client) SetClusterSettings(ctx context.Context, set map[string]json.RawMessage) (out SettingsChanged, err error) {
	return out, c.do(ctx, call{method: http.MethodPatch, path: admin + "/cluster-settings", body: set}, &out)
}

// OrgSettings are the settings of the organisation.
func (c *Client) OrgSettings(ctx context.Context) (out Settings, err error) {
	return out, c.get(ctx, admin+"/org-settings", nil, &out)
}

// SetOrgSettings changes settings of the organisation; a null clears.
func (c *Client) SetOrgSettings(ctx context.Context, set map[string]json.RawMessage) (out SettingsChanged, err error) {
	return out, c.do(ctx, call{method: http.MethodPatch, path: admin + "/org-settings", body: set}, &out)
}

// SettingsPropagation says which version each instance has.
func (c *Client) SettingsPropagation(ctx context.Context) (out Propagation, err error) {
	return out, c.get(ctx, admin+"/cluster-settings/propagation", nil, &out)
}

// ClusterName is the name of the cluster.
func (c *Client) ClusterName(ctx context.Context) (out ClusterName, err error) {
	return out, c.get(ctx, admin+"/cluster-name", nil, &out)
}

// SetClusterName renames the cluster.
func (c *Client) SetClusterName(ctx context.Context, name string) (out ClusterName, err error) {
	return out, c.do(ctx, call{method: http.MethodPut, path: admin + "/cluster-name", body: map[string]string{"name": name}}, &out)
}

// ClusterHealth is the state of the cluster.
func (c *Client) ClusterHealth(ctx context.Context) (out ClusterHealth, err error) {
	return out, c.get(ctx, "/cluster/health", nil, &out)
}

// Instances are the orchestrators of the cluster.
func (c *Client) Instances(ctx context.Context) (out InstanceList, err error) {
	return out, c.get(ctx, "/cluster/peers", nil, &out)
}

// Drain makes an instance take no new work; target "" is the one that answers.
func (c *Client) Drain(ctx context.Context, target string) (DrainState, error) {
	return c.drain(ctx, "drain", target)
}

// Resume makes an instance take work again.
func (c *Client) Resume(ctx context.Context, target string) (DrainState, error) {
	return c.drain(ctx, "resume", target)
}

func (c *Client) drain(ctx context.Context, action, target string) (out DrainState, err error) {
	body := map[string]string{"action": action}
	if target != "" {
		body["target"] = target
	}
	return out, c.post(ctx, admin+"/orchestrator/drain", body, &out)
}

// DrainState says where an instance is with draining.
func (c *Client) DrainState(ctx context.Context, target string) (out DrainState, err error) {
	v := url.Values{}
	set(v, "target", target)
	return out, c.get(ctx, admin+"/orchestrator/drain", v, &out)
}

// CreateOrg makes an organisation and its first owner's token.
func (c *Client) CreateOrg(ctx context.Context, id, name string) (out NewOrg, err error) {
	return out, c.post(ctx, admin+"/orgs", map[string]string{"id": id, "name": name}, &out)
}

// Orgs are the organisations that the token may know of.
func (c *Client) Orgs(ctx context.Context) (out OrgList, err error) {
	return out, c.get(ctx, admin+"/orgs", nil, &out)
}

// Org is one organisation.
func (c *Client) Org(ctx context.Context, id string) (out Org, err error) {
	return out, c.get(ctx, admin+"/orgs/"+url.PathEscape(id), nil, &out)
}

// ScheduledJobs are the periodic jobs of the server.
func (c *Client) ScheduledJobs(ctx context.Context) (out ScheduledJobList, err error) {
	return out, c.get(ctx, admin+"/scheduled-jobs", nil, &out)
}

// TriggerScheduledJob runs one now and waits for it.
func (c *Client) TriggerScheduledJob(ctx context.Context, name string) (out JobTriggered, err error) {
	return out, c.post(ctx, admin+"/scheduled-jobs/"+url.PathEscape(name)+"/trigger", nil, &out)
}

// AccessQuery narrows the access log.
type AccessQuery struct {
	Action  string // exact, or a prefix with * at its end
	Actor   string // id or label of the token
	Outcome string // allowed, denied, error
	Target  string
	Since   time.Time
	Until   time.Time
	Cursor  string
	Limit   int
}

// AccessLog is a page of the access log, newest first.
func (c *Client) AccessLog(ctx context.Context, q AccessQuery) (out AccessLog, err error) {
	v := url.Values{}
	set(v, "action", q.Action)
	set(v, "actor", q.Actor)
	set(v, "outcome", q.Outcome)
	set(v, "target", q.Target)
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, admin+"/access-log", v, &out)
}

// AccessEntry is one entry of the access log.
func (c *Client) AccessEntry(ctx context.Context, id string) (out AccessEntry, err error) {
	return out, c.get(ctx, admin+"/access-log/"+url.PathEscape(id), nil, &out)
}
