package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Event is one internal event and what became of it (EVT-30).
type Event struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	State          string          `json:"state"`             // pending, leased, retrying, processed, dlq
	Outcome        string          `json:"outcome,omitempty"` // matched, buffered, no-registration, no-target-repo, trust-blocked, no-trigger-match; empty until processed
	Matched        *int64          `json:"matched,omitempty"` // workflows started
	Emitter        string          `json:"emitter"`           // orchestrator, step, operator
	Actor          string          `json:"actor,omitempty"`   // the person who emitted it
	Source         string          `json:"source,omitempty"`  // name of the source whose it is
	RoutingKey     string          `json:"routingKey,omitempty"`
	Repo           string          `json:"repo,omitempty"`
	RunID          string          `json:"runId,omitempty"` // that emitted it
	JobID          string          `json:"jobId,omitempty"`
	TargetRepos    []string        `json:"targetRepos,omitempty"`
	RegistrationID string          `json:"registrationId,omitempty"` // the only addressee
	ChainDepth     int64           `json:"chainDepth"`
	Attempts       int64           `json:"attempts"`
	Error          string          `json:"error,omitempty"`
	HeldBy         string          `json:"heldBy,omitempty"` // instance, while it is leased
	NextTryAt      *Time           `json:"nextTryAt,omitempty"`
	DeadAt         *Time           `json:"deadAt,omitempty"`
	DeadReason     string          `json:"deadReason,omitempty"` // exhausted_retries, non_retryable
	CreatedAt      Time            `json:"createdAt"`
	ProcessedAt    *Time           `json:"processedAt,omitempty"`
	ExpiresAt      Time            `json:"expiresAt"`
	Payload        json.RawMessage `json:"payload,omitempty"`     // of one event, for who may read it
	Withheld       string          `json:"withheld,omitempty"`    // why the payload is not there
	Runs           []EventRun      `json:"runs,omitempty"`        // of one event: what it started
	Explanation    []string        `json:"explanation,omitempty"` // of one event: what became of it, in sentences
}

// EventRun is a run that an event started.
type EventRun struct {
	RunID          string `json:"runId"`
	RegistrationID string `json:"registrationId"`
	Number         int64  `json:"number"`
	Repo           string `json:"repo"`
	Workflow       string `json:"workflow"`
	Status         string `json:"status"`
	URL            string `json:"url"`
}

// EventList is a page of events, newest first. NextCursor is the id of the page's last event.
type EventList struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"nextCursor,omitempty"`
}

// EventQuery narrows a list of events. After is a page's NextCursor.
type EventQuery struct {
	Name, Outcome string
	Since, Before time.Time
	After         string
	Limit         int
}

// Events is a page of events, newest first.
func (c *Client) Events(ctx context.Context, q EventQuery) (out EventList, err error) {
	v := url.Values{}
	set(v, "name", q.Name)
	set(v, "outcome", q.Outcome)
	instant(v, "since", q.Since)
	instant(v, "before", q.Before)
	set(v, "after", q.After)
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return out, c.get(ctx, admin+"/events", v, &out)
}

func instant(v url.Values, key string, t time.Time) {
	if !t.IsZero() {
		v.Set(key, t.UTC().Format(time.RFC3339Nano))
	}
}

// Event is one event with what it started, and with its payload for who may read that.
func (c *Client) Event(ctx context.Context, id string) (out Event, err error) {
	return out, c.get(ctx, admin+"/events/"+url.PathEscape(id), nil, &out)
}

// NewEvent is an event to emit by hand.
type NewEvent struct {
	Name        string          `json:"name" minLength:"1" maxLength:"200" doc:"Names that begin with __ or kici. belong to kici itself"`
	Payload     json.RawMessage `json:"payload,omitempty" doc:"A JSON object of at most 64 KiB"`
	TargetRepos []string        `json:"targetRepos,omitempty" maxItems:"50" doc:"Only workflows of these repositories; any when empty"`
	Source      string          `json:"source,omitempty" maxLength:"300" doc:"Emit it as this source's: its name, id or routing key. Empty is the organisation's own, which reaches every source"`
}

// EmittedEvent answers EmitEvent.
type EmittedEvent struct {
	EventID string `json:"eventId"`
}

// EmitEvent emits an event. The same key never emits it twice.
func (c *Client) EmitEvent(ctx context.Context, e NewEvent, key string) (out EmittedEvent, err error) {
	return out, c.do(ctx, call{method: http.MethodPost, path: admin + "/events/emit", body: e, idempotency: key}, &out)
}

// DeadLetters is a page of the events that could not be routed, newest first. before is a page's NextCursor.
func (c *Client) DeadLetters(ctx context.Context, before string, limit int) (out EventList, err error) {
	v := url.Values{}
	set(v, "before", before)
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return out, c.get(ctx, admin+"/event-dlq", v, &out)
}

// DeadLetterCount is how many dead letters there are.
type DeadLetterCount struct {
	Count int64 `json:"count"`
}

// CountDeadLetters counts the dead letters.
func (c *Client) CountDeadLetters(ctx context.Context) (out DeadLetterCount, err error) {
	return out, c.get(ctx, admin+"/event-dlq/count", nil, &out)
}

// RetryDeadLetter routes a dead letter again. What it has started already is not started twice.
func (c *Client) RetryDeadLetter(ctx context.Context, id string) (out Event, err error) {
	return out, c.post(ctx, admin+"/event-dlq/"+url.PathEscape(id)+"/retry", nil, &out)
}

// DiscardDeadLetter deletes a dead letter.
func (c *Client) DiscardDeadLetter(ctx context.Context, id string) error {
	return c.delete(ctx, admin+"/event-dlq/"+url.PathEscape(id))
}

// Trust lets events of one repository start workflows of another one whose source is another.
type Trust struct {
	ID               string    `json:"id"`
	SourceRoutingKey string    `json:"sourceRoutingKey"`
	SourceRepo       string    `json:"sourceRepo"`
	TargetRoutingKey string    `json:"targetRoutingKey"`
	TargetRepo       string    `json:"targetRepo"`
	EventNames       *[]string `json:"eventNames"` // patterns of names; null is every name
	Enabled          bool      `json:"enabled"`
	CreatedAt        Time      `json:"createdAt"`
	CreatedBy        string    `json:"createdBy"`
}

// TrustList is every trust row.
type TrustList struct {
	Trust []Trust `json:"trust"`
}

// NewTrust is a trust row to make. Sources are named by name, id or routing key; an empty repository is the source's own.
type NewTrust struct {
	SourceRoutingKey string    `json:"sourceRoutingKey" minLength:"1" maxLength:"300" doc:"Whose events: the source's name, id or routing key"`
	SourceRepo       string    `json:"sourceRepo,omitempty" maxLength:"300" doc:"Its repository; the source's own when empty"`
	TargetRoutingKey string    `json:"targetRoutingKey" minLength:"1" maxLength:"300" doc:"Whose workflows"`
	TargetRepo       string    `json:"targetRepo,omitempty" maxLength:"300"`
	EventNames       *[]string `json:"eventNames,omitempty" maxItems:"50" doc:"Patterns of names such as deploy.*; every name when absent, none when empty"`
}

// Trusts is every trust row, or those of a routing key.
func (c *Client) Trusts(ctx context.Context, routingKey string) (out TrustList, err error) {
	v := url.Values{}
	set(v, "routingKey", routingKey)
	return out, c.get(ctx, admin+"/trust", v, &out)
}

// AddTrust makes a trust row, or sets the names of the one that is there for the same repositories.
func (c *Client) AddTrust(ctx context.Context, t NewTrust) (out Trust, err error) {
	return out, c.post(ctx, admin+"/trust", t, &out)
}

// RemoveTrust deletes a trust row.
func (c *Client) RemoveTrust(ctx context.Context, id string) error {
	return c.delete(ctx, admin+"/trust/"+url.PathEscape(id))
}
