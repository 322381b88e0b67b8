package client

import (
	"context"
	"net/url"
)

// Registration is the server's copy of one workflow of a repository's default branch.
type Registration struct {
	ID            string   `json:"id"`
	Source        string   `json:"source,omitempty"` // empty when the source was removed
	RoutingKey    string   `json:"routingKey"`
	Repo          string   `json:"repo"`
	Workflow      string   `json:"workflow"`
	File          string   `json:"file,omitempty"`
	Triggers      []string `json:"triggers"` // types, as the lock names them
	SHA           string   `json:"sha"`      // the commit that it runs
	DefaultBranch string   `json:"defaultBranch"`
	Disabled      bool     `json:"disabled"`
	Global        bool     `json:"global"` // a trigger names other repositories
	RegisteredAt  *Time    `json:"registeredAt,omitempty"`
}

// RegistrationDetail is a registration with what starts it.
type RegistrationDetail struct {
	Registration
	On        []RegistrationTrigger `json:"on"`
	Schedules []Schedule            `json:"schedules"`
	Jobs      []WorkflowJob         `json:"jobs"`
	Problem   string                `json:"problem,omitempty"` // why this version cannot use it
}

// RegistrationTrigger is one trigger with its filters in words.
type RegistrationTrigger struct {
	Type    string            `json:"type"`
	Filters map[string]string `json:"filters,omitempty"` // by the lock's name
}

// RegistrationList is a page of registrations, by repository and workflow.
type RegistrationList struct {
	Registrations []Registration `json:"registrations"`
	Total         int64          `json:"total"` // with these filters, on all pages
	NextCursor    string         `json:"nextCursor,omitempty"`
}

// RegistrationQuery narrows a list. Empty fields do not count.
type RegistrationQuery struct {
	Source, Repo, Workflow string
	Trigger                string // a type, such as schedule
	State                  string // enabled or disabled
	Global                 bool
	Cursor                 string
	Limit                  int
}

// Registrations is a page of registrations.
func (c *Client) Registrations(ctx context.Context, q RegistrationQuery) (out RegistrationList, err error) {
	v := url.Values{}
	set(v, "source", q.Source)
	set(v, "repo", q.Repo)
	set(v, "workflow", q.Workflow)
	set(v, "trigger", q.Trigger)
	set(v, "state", q.State)
	if q.Global {
		v.Set("global", "true")
	}
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, admin+"/registrations", v, &out)
}

func registrationPath(ref string) string { return admin + "/registrations/" + url.PathEscape(ref) }

// Registration is one registration, by id, repository#workflow, or a workflow's name that only one has.
func (c *Client) Registration(ctx context.Context, ref string) (out RegistrationDetail, err error) {
	return out, c.get(ctx, registrationPath(ref), nil, &out)
}

// NewRegistration names workflows to register by hand.
type NewRegistration struct {
	Source    string   `json:"source" minLength:"1" maxLength:"300" doc:"Name of the source that has them"`
	Ref       string   `json:"ref,omitempty" maxLength:"1000" doc:"Branch, tag or commit; the default branch when empty"`
	Workflows []string `json:"workflows,omitempty" maxItems:"500" doc:"By name; all that have a trigger when empty"`
}

// Registered answers Register and RefreshRegistrations.
type Registered struct {
	WorkflowCount   int      `json:"workflowCount"`
	RegistryVersion int64    `json:"registryVersion"`
	Repo            string   `json:"repo"`
	SHA             string   `json:"sha"`
	Workflows       []string `json:"workflows"`
}

// Register adds or replaces registrations; those of other workflows stay.
func (c *Client) Register(ctx context.Context, n NewRegistration) (out Registered, err error) {
	return out, c.post(ctx, admin+"/registrations/register-manual", n, &out)
}

// RefreshRegistrations makes the workflows of a source's default branch its registrations.
func (c *Client) RefreshRegistrations(ctx context.Context, source string) (out Registered, err error) {
	return out, c.post(ctx, admin+"/registrations/refresh", map[string]string{"source": source}, &out)
}

// EnableRegistration turns a registration on or off, from the next event on.
func (c *Client) EnableRegistration(ctx context.Context, ref string, on bool) (out Registration, err error) {
	verb := "/disable"
	if on {
		verb = "/enable"
	}
	return out, c.post(ctx, registrationPath(ref)+verb, nil, &out)
}

// DeleteRegistration removes a registration; the next push to the default branch registers it again.
func (c *Client) DeleteRegistration(ctx context.Context, ref string) error {
	return c.delete(ctx, registrationPath(ref))
}

// RunRegistration starts a scheduled workflow as if its first schedule had just come due. A repeat with the same requestID gives the first run.
func (c *Client) RunRegistration(ctx context.Context, ref, requestID string) (out NewRun, err error) {
	return out, c.post(ctx, registrationPath(ref)+"/run", map[string]string{"requestId": requestID}, &out)
}

// Schedule is one cron expression of a registered workflow.
type Schedule struct {
	RegistrationID string `json:"registrationId"`
	Repo           string `json:"repo"`
	Workflow       string `json:"workflow"`
	Expression     string `json:"cronExpression"`
	Timezone       string `json:"timezone"`
	Disabled       bool   `json:"disabled"`
	LastFiredAt    *Time  `json:"lastFiredAt,omitempty"` // the instant that was due; empty until it has fired
	LastEventID    string `json:"lastEventId,omitempty"`
	LastRunID      string `json:"lastRunId,omitempty"` // that the last fire started
	Next           []Time `json:"next"`                // the next three instants; none while it is disabled
	Error          string `json:"error,omitempty"`     // why it cannot fire
}

// ScheduleList is a page of schedules, by repository and workflow.
type ScheduleList struct {
	Schedules  []Schedule `json:"schedules"`
	NextCursor string     `json:"nextCursor,omitempty"`
}

// ScheduleQuery narrows a list. Empty fields do not count.
type ScheduleQuery struct {
	Repo, Workflow string
	Cursor         string
	Limit          int
}

// Schedules is a page of schedules.
func (c *Client) Schedules(ctx context.Context, q ScheduleQuery) (out ScheduleList, err error) {
	v := url.Values{}
	set(v, "repo", q.Repo)
	set(v, "workflow", q.Workflow)
	page(v, q.Cursor, q.Limit)
	return out, c.get(ctx, admin+"/schedules", v, &out)
}
