package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const admin = "/api/v1/admin"

// RunQuery narrows a list of runs. Zero fields mean "any".
type RunQuery struct {
	Status   []string
	Workflow string
	Repo     string
	Branch   string
	Source   string // name or id
	Actor    string
	Event    string // with or without its action
	Text     string
	Delivery string
	Since    time.Time
	Cursor   string
	Limit    int
}

func (q RunQuery) values() url.Values {
	v := url.Values{}
	for _, s := range q.Status {
		v.Add("status", s)
	}
	set(v, "workflowName", q.Workflow)
	set(v, "repo", q.Repo)
	set(v, "branch", q.Branch)
	set(v, "source", q.Source)
	set(v, "actor", q.Actor)
	set(v, "event", q.Event)
	set(v, "text", q.Text)
	set(v, "deliveryId", q.Delivery)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	page(v, q.Cursor, q.Limit)
	return v
}

func set(v url.Values, key, value string) {
	if value != "" {
		v.Set(key, value)
	}
}

func page(v url.Values, cursor string, limit int) {
	set(v, "cursor", cursor)
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
}

func (c *Client) get(ctx context.Context, path string, q url.Values, out any) error {
	return c.do(ctx, call{method: http.MethodGet, path: path, query: q}, out)
}

func (c *Client) post(ctx context.Context, path string, body, out any) error {
	return c.do(ctx, call{method: http.MethodPost, path: path, body: body}, out)
}

func (c *Client) delete(ctx context.Context, path string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: path}, nil)
}

// Runs is a page of runs, newest first.
func (c *Client) Runs(ctx context.Context, q RunQuery) (out RunList, err error) {
	return out, c.get(ctx, admin+"/runs", q.values(), &out)
}

// Run is one run: an id, the beginning of one, or repo#number.
func (c *Client) Run(ctx context.Context, ref string) (out RunDetail, err error) {
	return out, c.get(ctx, runPath(ref), nil, &out)
}

// Jobs are the jobs of a run.
func (c *Client) Jobs(ctx context.Context, run string, steps bool) (out JobList, err error) {
	return out, c.get(ctx, runPath(run)+"/jobs", url.Values{"includeSteps": {strconv.FormatBool(steps)}}, &out)
}

func runPath(ref string) string { return admin + "/runs/" + url.PathEscape(ref) }

func jobPath(ref string) string { return admin + "/jobs/" + url.PathEscape(ref) }

// Job is one job: an id, the beginning of one, or run/job.
func (c *Client) Job(ctx context.Context, ref string) (out Job, err error) {
	return out, c.get(ctx, jobPath(ref), nil, &out)
}

// Why says why a job is where it is.
func (c *Client) Why(ctx context.Context, ref string) (out Why, err error) {
	return out, c.get(ctx, jobPath(ref)+"/why", nil, &out)
}

// StepLog is a page of a step's log; job may be its name.
func (c *Client) StepLog(ctx context.Context, run, job string, step int, cursor string, limit int) (out LogPage, err error) {
	v := url.Values{}
	page(v, cursor, limit)
	return out, c.get(ctx, runPath(run)+"/jobs/"+url.PathEscape(job)+"/steps/"+strconv.Itoa(step)+"/logs", v, &out)
}

// RawLog is the whole log of a step as text; the caller closes it.
func (c *Client) RawLog(ctx context.Context, run, job string, step int) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{
		method: http.MethodGet, path: runPath(run) + "/jobs/" + url.PathEscape(job) + "/steps/" + strconv.Itoa(step) + "/logs/raw",
	}, "text/plain")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// StartRequest starts a workflow by hand (workflow_dispatch).
type StartRequest struct {
	Source   string         `json:"source"`
	Workflow string         `json:"workflow"`
	Ref      string         `json:"ref,omitempty"`
	Inputs   map[string]any `json:"inputs,omitempty"`
}

// Start starts a workflow. The same key never starts it twice.
func (c *Client) Start(ctx context.Context, r StartRequest, key string) (out NewRun, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: admin + "/runs", body: r, idempotency: key}, &out)
}

// Cancel cancels a run; force skips the grace.
func (c *Client) Cancel(ctx context.Context, run string, force bool, reason string) (out CancelResult, err error) {
	body := map[string]any{"force": force, "reason": reason}
	return out, c.do(ctx, call{method: http.MethodPost, path: runPath(run) + "/cancel", body: body}, &out)
}

// Rerun runs a run again, or only its failed jobs. The same key never does it twice.
func (c *Client) Rerun(ctx context.Context, run string, failedOnly bool, key string) (out NewRun, err error) {
	body := map[string]any{"requestId": key, "failedOnly": failedOnly}
	return out, c.do(ctx, call{method: http.MethodPost, path: runPath(run) + "/rerun", body: body, idempotency: key}, &out)
}

// Agents is a page of agents; all includes those that are gone.
func (c *Client) Agents(ctx context.Context, all bool, scaler, cursor string, limit int) (out AgentList, err error) {
	v := url.Values{}
	if all {
		v.Set("all", "true")
	}
	set(v, "scaler", scaler)
	page(v, cursor, limit)
	return out, c.get(ctx, admin+"/agents", v, &out)
}

// Agent is one agent.
func (c *Client) Agent(ctx context.Context, id string) (out Agent, err error) {
	return out, c.get(ctx, admin+"/agents/"+url.PathEscape(id), nil, &out)
}

// Scalers is every scaler.
func (c *Client) Scalers(ctx context.Context) (out ScalerList, err error) {
	return out, c.get(ctx, admin+"/scalers", nil, &out)
}

// Queue is a page of waiting jobs, oldest first.
func (c *Client) Queue(ctx context.Context, cursor string, limit int) (out Queue, err error) {
	v := url.Values{}
	page(v, cursor, limit)
	return out, c.get(ctx, admin+"/queue", v, &out)
}

// ClearQueue cancels what waits; without confirm it only counts.
func (c *Client) ClearQueue(ctx context.Context, confirm bool) (out ClearedQueue, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: admin + "/queue/clear", body: map[string]any{"confirm": confirm}}, &out)
}

// PurgeSources removes sources that have been off for idleMs milliseconds (0 is 90 days); without confirm it only lists them.
func (c *Client) PurgeSources(ctx context.Context, idleMs int64, confirm bool) (out PurgedSources, err error) {
	body := map[string]any{"confirm": confirm, "idleMs": idleMs}
	return out, c.do(ctx, call{method: http.MethodPost, path: admin + "/sources/purge-stale", body: body}, &out)
}

// PurgeStale ends runs of which nothing has moved for idleMs milliseconds (0 is a day); without confirm it only lists them.
func (c *Client) PurgeStale(ctx context.Context, idleMs int64, confirm bool) (out PurgedRuns, err error) {
	body := map[string]any{"confirm": confirm, "idleMs": idleMs}
	return out, c.do(ctx, call{method: http.MethodPost, path: admin + "/execution/purge-stale", body: body}, &out)
}

// Capabilities says what runs there.
func (c *Client) Capabilities(ctx context.Context) (out Capabilities, err error) {
	return out, c.get(ctx, "/api/v1/capabilities", nil, &out)
}

// WhoAmI says who the token is.
func (c *Client) WhoAmI(ctx context.Context) (out Identity, err error) {
	return out, c.get(ctx, admin+"/whoami", nil, &out)
}

// LoginLink makes a one-time address of the dashboard.
func (c *Client) LoginLink(ctx context.Context) (out LoginLink, err error) {
	return out, c.post(ctx, "/api/v1/login-links", nil, &out)
}

// Diagnosis is what a server finds when it examines itself (OBS-5). Status is healthy, degraded or unhealthy.
type Diagnosis struct {
	Status string           `json:"status"`
	Checks []DiagnosisCheck `json:"checks"`
}

// DiagnosisCheck is one of its checks. Status is pass, warn, fail, or skip for what could not be asked.
type DiagnosisCheck struct {
	Name       string         `json:"name"`
	Status     string         `json:"status"`
	Message    string         `json:"message"`
	Cure       string         `json:"cure,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
	DurationMs int64          `json:"durationMs"`
}

// Diagnose lets the server examine itself.
func (c *Client) Diagnose(ctx context.Context) (out Diagnosis, err error) {
	return out, c.get(ctx, admin+"/diagnose", nil, &out)
}
