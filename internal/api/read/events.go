package read

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/store/db"
)

// Limits of pages of events (EVT-31, admin.md).
const (
	DefaultEvents = 50
	MaxEvents     = 200
)

// EventFilter narrows a list of events. Since and Before are UTC ms, 0 for none; After is the id of the last event of the page before.
type EventFilter struct {
	Name, Outcome string
	Foreign       bool // only those that kici itself did not emit
	Since, Before int64
	After         string
	Limit         int
}

// Events is a page of events, newest first. Filters look as far as those of Runs.
func (r *Reads) Events(ctx context.Context, s Scope, f EventFilter) (client.EventList, error) {
	out := client.EventList{Events: []client.Event{}}
	limit := clamp(f.Limit, DefaultEvents, MaxEvents)
	err := r.view(ctx, func(q *db.Queries) error {
		from := newest
		if f.Before > 0 {
			from = position{at: f.Before}
		}
		if f.After != "" {
			rows, err := q.ReadEvent(ctx, s.OrgID, f.After)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return fmt.Errorf("%w: after: there is no event %q any more; begin again without it", ErrInvalid, f.After)
			}
			from = older(from, position{rows[0].CreatedAt, rows[0].ID})
		}
		own := ""
		if f.Foreign {
			own = event.EmitterOrchestrator
		}
		look := lookAt{limit: limit, since: f.Since, all: s.RoutingKey+f.Name+f.Outcome+own == "", floor: func(p position, n int32) (position, error) {
			x, err := q.ReadEventsFloor(ctx, db.ReadEventsFloorParams{OrgID: s.OrgID, BeforeAt: p.at, BeforeID: p.id, MaxRows: n})
			return position{x.CreatedAt, x.ID}, err
		}}
		rows, next, err := page(look, from, func(floor position) ([]db.ReadEventsRow, error) {
			return q.ReadEvents(ctx, db.ReadEventsParams{
				OrgID: s.OrgID, BeforeAt: from.at, BeforeID: from.id, FloorAt: floor.at, FloorID: floor.id, RoutingKey: s.RoutingKey,
				Name: f.Name, Outcome: f.Outcome, NotEmitter: own, MaxRows: int32(limit + 1),
			})
		}, func(x db.ReadEventsRow) position { return position{x.CreatedAt, x.ID} })
		if err != nil {
			return err
		}
		for _, x := range rows {
			out.Events = append(out.Events, eventOf(db.ReadEventRow(x)))
		}
		if next != "" { // the id alone: a filter may have ended on an event that it does not show
			p, err := parseCursor(next, newest)
			out.NextCursor = p.id
			return err
		}
		return nil
	})
	if err != nil {
		return client.EventList{}, fmt.Errorf("read events: %w", err)
	}
	return out, nil
}

func older(a, b position) position {
	if b.at < a.at || b.at == a.at && b.id < a.id {
		return b
	}
	return a
}

// DeadLetters is a page of the events that could not be routed, newest first; before is the id of the last one of the page before.
func (r *Reads) DeadLetters(ctx context.Context, s Scope, before string, limit int) (client.EventList, error) {
	out := client.EventList{Events: []client.Event{}}
	limit = clamp(limit, DefaultEvents, MaxEvents)
	err := r.view(ctx, func(q *db.Queries) error {
		from := newest
		if before != "" {
			rows, err := q.ReadEvent(ctx, s.OrgID, before)
			if err != nil {
				return err
			}
			if len(rows) == 0 || !rows[0].DlqAt.Valid {
				return fmt.Errorf("%w: before: %q is no dead letter any more; begin again without it", ErrInvalid, before)
			}
			from = position{rows[0].DlqAt.Int64, rows[0].ID}
		}
		rows, err := q.ReadDeadLetters(ctx, db.ReadDeadLettersParams{OrgID: s.OrgID, BeforeAt: from.at, BeforeID: from.id, RoutingKey: s.RoutingKey, MaxRows: int32(limit + 1)})
		if err != nil {
			return err
		}
		rows, next := cut(rows, limit, func(x db.ReadDeadLettersRow) position { return position{x.DlqAt.Int64, x.ID} })
		for _, x := range rows {
			out.Events = append(out.Events, eventOf(db.ReadEventRow(x)))
		}
		if next != "" {
			out.NextCursor = rows[len(rows)-1].ID
		}
		return nil
	})
	if err != nil {
		return client.EventList{}, fmt.Errorf("read dead letters: %w", err)
	}
	return out, nil
}

// DeadLetterCount is how many dead letters the caller may see.
func (r *Reads) DeadLetterCount(ctx context.Context, s Scope) (out client.DeadLetterCount, err error) {
	err = r.view(ctx, func(q *db.Queries) error {
		out.Count, err = q.ReadDeadLetterCount(ctx, s.OrgID, s.RoutingKey)
		return err
	})
	return out, err
}

// Event is one event with what it started and sentences on what became of it. Its payload is only there with payload, and without what
// is secret in it (EVT-32, EVT-33).
func (r *Reads) Event(ctx context.Context, s Scope, id string, payload bool) (out client.Event, err error) {
	err = r.view(ctx, func(q *db.Queries) error {
		rows, err := q.ReadEvent(ctx, s.OrgID, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("event %q %w", id, ErrNotFound)
		}
		if err := s.check(rows[0].SourceRoutingKey, "this event"); err != nil {
			return err
		}
		out = eventOf(rows[0])
		runs, err := q.ReadEventRuns(ctx, id)
		if err != nil {
			return err
		}
		out.Runs = []client.EventRun{}
		hidden := 0
		for _, x := range runs {
			if s.check(x.RoutingKey, "this run") != nil {
				hidden++
				continue
			}
			out.Runs = append(out.Runs, client.EventRun{
				RunID: x.RunID, RegistrationID: x.RegistrationID, Number: x.Number, Repo: x.Repo, Workflow: x.Workflow, Status: x.Status, URL: r.RunURL(x.RunID),
			})
		}
		out.Explanation = explainEvent(out, rows[0].Buffered, hidden)
		if !payload {
			out.Withheld = "the payload is only shown with the permission event_log.read_payload"
			return nil
		}
		text, err := q.ReadEventPayload(ctx, id)
		out.Payload = event.Redact(out.Name, json.RawMessage(text))
		return err
	})
	return out, err
}

func eventOf(x db.ReadEventRow) client.Event {
	e := client.Event{
		ID: x.ID, Name: x.EventName, Outcome: x.MatchOutcome.String, Emitter: x.Emitter, Actor: x.Actor, Source: x.SourceName.String,
		RoutingKey: x.SourceRoutingKey, Repo: x.SourceRepo, RunID: x.SourceRunID, JobID: x.SourceJobID, RegistrationID: x.RegistrationID,
		ChainDepth: x.ChainDepth, Attempts: x.Attempts, Error: x.LastError, DeadAt: timePtr(x.DlqAt), DeadReason: x.DlqReason,
		CreatedAt: client.TimeOf(x.CreatedAt), ProcessedAt: timePtr(x.ProcessedAt), ExpiresAt: client.TimeOf(x.ExpiresAt),
	}
	e.State = event.State(db.KiciEvent{DlqAt: x.DlqAt, Processed: x.Processed, ClaimedAt: x.ClaimedAt, NextRetryAt: x.NextRetryAt})
	switch e.State {
	case event.StateLeased:
		e.HeldBy = x.ClaimedBy
	case event.StateRetrying:
		e.NextTryAt = timePtr(x.NextRetryAt)
	}
	if x.MatchedCount.Valid {
		e.Matched = &x.MatchedCount.Int64
	}
	_ = json.Unmarshal([]byte(x.TargetRepos), &e.TargetRepos) // a list that cannot be read is shown as none; nothing is delivered by it
	return e
}

// Trusts is every trust row that the caller may see, those of routingKey alone where that is given.
func (r *Reads) Trusts(ctx context.Context, s Scope, routingKey string) (client.TrustList, error) {
	out := client.TrustList{Trust: []client.Trust{}}
	if s.RoutingKey != "" {
		if routingKey != "" && routingKey != s.RoutingKey {
			return out, fmt.Errorf("routing key %q %w", routingKey, ErrForbidden)
		}
		routingKey = s.RoutingKey
	}
	err := r.view(ctx, func(q *db.Queries) error {
		rows, err := q.TrustOfOrg(ctx, s.OrgID, routingKey)
		for _, x := range rows {
			out.Trust = append(out.Trust, TrustOf(x))
		}
		return err
	})
	return out, err
}

// TrustOf is a trust row as people see it.
func TrustOf(x db.CrossRepoTrust) client.Trust {
	t := client.Trust{
		ID: x.ID, SourceRoutingKey: x.SourceRoutingKey, SourceRepo: x.SourceRepo, TargetRoutingKey: x.TargetRoutingKey, TargetRepo: x.TargetRepo,
		Enabled: x.Enabled, CreatedAt: client.TimeOf(x.CreatedAt), CreatedBy: x.CreatedBy,
	}
	if x.EventNames.Valid {
		names := []string{}
		if json.Unmarshal([]byte(x.EventNames.String), &names) != nil || names == nil {
			names = []string{} // one that cannot be read lets nothing pass
		}
		t.EventNames = &names
	}
	return t
}
