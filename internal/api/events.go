package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/store/db"
)

// events emits and mends internal events (event.Service).
type events interface {
	EmitFromOperator(ctx context.Context, f event.FromOperator) (id string, err error)
	RetryDead(ctx context.Context, orgID, id string) error
	DiscardDead(ctx context.Context, orgID, id string) error
	AddTrust(ctx context.Context, t event.Trust) (row db.CrossRepoTrust, created bool, err error)
	TrustRow(ctx context.Context, orgID, id string) (db.CrossRepoTrust, error)
	RemoveTrust(ctx context.Context, orgID, id string) error
}

// EventRef names an event in a path.
type EventRef struct {
	Event string `path:"event" maxLength:"100" doc:"Id of the event"`
}

func (a *API) eventRoutes() {
	handle(a, get("/events", "List internal events, newest first").sampled(0.05), right{"event_dlq.read", "event.list.read"}, a.listEvents)
	handle(a, get("/events/{event}", "Show an internal event and what became of it; its payload needs event_log.read_payload and is untrusted").all(),
		right{"event_dlq.read", "event.read"},
		func(ctx context.Context, c *caller, in *EventRef) (client.Event, error) {
			return a.d.Reads.Event(ctx, c.Scope, in.Event, c.Can(access.EventLogReadPayload))
		})
	handle(a, post("/events/emit", "Emit an internal event").created(), right{"context.create", "event.emit"}, a.emitEvent)
	handle(a, get("/event-dlq", "List the internal events that could not be routed, newest first").sampled(0.05), right{"event_dlq.read", "event_dlq.list.read"},
		func(ctx context.Context, c *caller, in *deadInput) (client.EventList, error) {
			return a.d.Reads.DeadLetters(ctx, c.Scope, in.Before, number(in.Limit))
		})
	handle(a, get("/event-dlq/count", "Count the internal events that could not be routed").sampled(0.05), right{"event_dlq.read", "event_dlq.count.read"},
		func(ctx context.Context, c *caller, _ *struct{}) (client.DeadLetterCount, error) {
			return a.d.Reads.DeadLetterCount(ctx, c.Scope)
		})
	handle(a, post("/event-dlq/{event}/retry", "Route a dead letter again; what it has started is not started twice"), right{"event_dlq.manage", "event_dlq.retry"}, a.retryDead)
	handle(a, del("/event-dlq/{event}", "Discard a dead letter"), right{"event_dlq.manage", "event_dlq.discard"}, a.discardDead)
	handle(a, get("/trust", "List which repositories' events may start whose workflows"), right{"context.read", "trust.list.read"},
		func(ctx context.Context, c *caller, in *trustInput) (client.TrustList, error) {
			return a.d.Reads.Trusts(ctx, c.Scope, in.RoutingKey)
		})
	handle(a, post("/trust", "Let events of a repository start workflows of another one").created(), right{"context.create", "trust.create"}, a.addTrust)
	handle(a, del("/trust/{trust}", "Take such a trust back"), right{"context.delete", "trust.delete"}, a.removeTrust)
}

type eventsInput struct {
	Name    string `query:"name" maxLength:"200"`
	Outcome string `query:"outcome" maxLength:"40"`
	Since   string `query:"since" maxLength:"40" doc:"Not older than this instant"`
	Before  string `query:"before" maxLength:"40" doc:"Older than this instant"`
	After   string `query:"after" maxLength:"100" doc:"nextCursor of the page before: the id of its last event"`
	Limit   string `query:"limit" maxLength:"20" doc:"At most this many; 50 by default, 200 is the most"`
}

func (a *API) listEvents(ctx context.Context, c *caller, in *eventsInput) (client.EventList, error) {
	from, err := since(in.Since)
	if err != nil {
		return client.EventList{}, err
	}
	before, err := since(in.Before)
	if err != nil {
		return client.EventList{}, badRequest("before: %q is not a time like 2026-01-31T12:00:00Z", in.Before)
	}
	if in.Outcome != "" && !slices.Contains(event.Outcomes, in.Outcome) {
		return client.EventList{}, badRequest("outcome: %q is not one of %s", in.Outcome, strings.Join(event.Outcomes, ", "))
	}
	return a.d.Reads.Events(ctx, c.Scope, read.EventFilter{Name: in.Name, Outcome: in.Outcome, Since: from, Before: before, After: in.After, Limit: number(in.Limit)})
}

type deadInput struct {
	Before string `query:"before" maxLength:"100" doc:"nextCursor of the page before: the id of its last event"`
	Limit  string `query:"limit" maxLength:"20" doc:"At most this many; 50 by default, 200 is the most"`
}

type emitInput struct {
	Idempotent
	Body client.NewEvent
}

// emitEvent emits as a source's where one is named, and must for a token that sees only one.
func (a *API) emitEvent(ctx context.Context, c *caller, in *emitInput) (client.EmittedEvent, error) {
	f := event.FromOperator{
		OrgID: c.Scope.OrgID, Name: in.Body.Name, Payload: in.Body.Payload, TargetRepos: in.Body.TargetRepos, Actor: actor(c), RequestID: in.Key,
		RoutingKey: c.Scope.RoutingKey,
	}
	c.note("event", in.Body.Name)
	ref := in.Body.Source
	if ref == "" {
		ref = c.Scope.RoutingKey
	}
	if ref != "" {
		s, err := a.d.Reads.Source(ctx, c.Scope, ref)
		if err != nil {
			return client.EmittedEvent{}, err
		}
		f.RoutingKey, f.Repo = s.RoutingKey, s.Repo
	}
	id, err := a.d.Events.EmitFromOperator(ctx, f)
	c.note("id", id)
	return client.EmittedEvent{EventID: id}, eventFailure(err)
}

// eventFailure turns what the room refuses into an answer.
func eventFailure(err error) error {
	var refused *event.Refused
	var invalid *event.Invalid
	switch {
	case errors.As(err, &refused):
		status := http.StatusBadRequest
		if refused.Code == event.CodeRate {
			status = http.StatusTooManyRequests
		}
		f := &failure{Message: refused.Message, status: status}
		if refused.RetryAfterMs > 0 {
			f.Details = []string{fmt.Sprintf("retryAfterMs: %d", refused.RetryAfterMs)}
		}
		return f
	case errors.As(err, &invalid):
		return badRequest("%s", invalid.Error())
	case errors.Is(err, event.ErrNotFound):
		return &failure{Message: err.Error(), status: http.StatusNotFound}
	}
	return err
}

// retryDead answers with the event as it is now.
func (a *API) retryDead(ctx context.Context, c *caller, in *EventRef) (client.Event, error) {
	if _, err := a.d.Reads.Event(ctx, c.Scope, in.Event, false); err != nil {
		return client.Event{}, err
	}
	if err := a.d.Events.RetryDead(ctx, c.Scope.OrgID, in.Event); err != nil {
		return client.Event{}, eventFailure(err)
	}
	return a.d.Reads.Event(ctx, c.Scope, in.Event, false)
}

func (a *API) discardDead(ctx context.Context, c *caller, in *EventRef) (deleted, error) {
	if _, err := a.d.Reads.Event(ctx, c.Scope, in.Event, false); err != nil {
		return deleted{}, err
	}
	return deleted{true}, eventFailure(a.d.Events.DiscardDead(ctx, c.Scope.OrgID, in.Event))
}

type trustInput struct {
	RoutingKey string `query:"routingKey" maxLength:"300" doc:"Only those from or to this source"`
}

type newTrustInput struct{ Body client.NewTrust }

// addTrust needs a token that sees both sources: whoever gives the target's workflows away must be its, too (admin.md).
func (a *API) addTrust(ctx context.Context, c *caller, in *newTrustInput) (client.Trust, error) {
	b := in.Body
	t := event.Trust{OrgID: c.Scope.OrgID, Events: b.EventNames, By: actor(c)}
	var err error
	if t.SourceRoutingKey, t.SourceRepo, err = a.side(ctx, c, b.SourceRoutingKey, b.SourceRepo, "sourceRepo"); err != nil {
		return client.Trust{}, err
	}
	if t.TargetRoutingKey, t.TargetRepo, err = a.side(ctx, c, b.TargetRoutingKey, b.TargetRepo, "targetRepo"); err != nil {
		return client.Trust{}, err
	}
	c.note("source", t.SourceRepo)
	c.note("target", t.TargetRepo)
	row, _, err := a.d.Events.AddTrust(ctx, t)
	if err != nil {
		return client.Trust{}, eventFailure(err)
	}
	c.note("id", row.ID)
	return read.TrustOf(row), nil
}

// side is one side of a trust: a source, and a repository of it.
func (a *API) side(ctx context.Context, c *caller, ref, repo, field string) (routingKey, repository string, err error) {
	s, err := a.d.Reads.Source(ctx, c.Scope, ref)
	if err != nil {
		return "", "", err
	}
	if repo == "" {
		repo = s.Repo
	}
	if repo == "" {
		return "", "", badRequest("%s: source %s has no repository of its own; name one", field, s.Name)
	}
	return s.RoutingKey, repo, nil
}

// TrustRef names a trust in a path.
type TrustRef struct {
	Trust string `path:"trust" maxLength:"100" doc:"Id of the trust"`
}

func (a *API) removeTrust(ctx context.Context, c *caller, in *TrustRef) (deleted, error) {
	row, err := a.d.Events.TrustRow(ctx, c.Scope.OrgID, in.Trust)
	if err != nil {
		return deleted{}, eventFailure(err)
	}
	if !c.Sees(row.SourceRoutingKey) || !c.Sees(row.TargetRoutingKey) {
		return deleted{}, &failure{Message: "this trust belongs to another routing key", status: http.StatusForbidden}
	}
	return deleted{true}, eventFailure(a.d.Events.RemoveTrust(ctx, c.Scope.OrgID, in.Trust))
}
