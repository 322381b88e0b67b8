package read

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// RunFilter narrows a list of runs. Zero fields mean "any".
type RunFilter struct {
	Statuses   []string // stored run statuses
	Workflow   string
	Repo       string
	Branch     string
	RoutingKey string // of a source within the scope
	Actor      string
	Event      string // as stored, or without its action: "pr" is also "pr:opened"
	DeliveryID string
	Text       string // found in title, workflow, repository, branch, actor, commit or "#482"
	Since      int64  // UTC ms, created at or after
	Cursor     string
	Limit      int
}

// filters reports whether some runs of the list are left out.
func (f RunFilter) filters() bool {
	return len(f.Statuses) > 0 || f.Workflow+f.Repo+f.Branch+f.RoutingKey+f.Actor+f.Event+f.DeliveryID+f.Text != ""
}

// Runs is a page of runs, newest first. With filters, a page that looked at the last 10,000 runs ends, full or not, with a cursor
// to go on.
func (r *Reads) Runs(ctx context.Context, s Scope, f RunFilter) (client.RunList, error) {
	params, err := runParams(s, f)
	if err != nil {
		return client.RunList{}, err
	}
	limit := int(params.MaxRows) - 1
	var rows []db.ReadRunsRow
	next := ""
	err = r.view(ctx, func(q *db.Queries) error {
		look := lookAt{limit: limit, since: f.Since, all: !f.filters() && s.RoutingKey == "", floor: func(p position, n int32) (position, error) {
			x, err := q.ReadRunsFloor(ctx, db.ReadRunsFloorParams{OrgID: s.OrgID, BeforeAt: p.at, BeforeID: p.id, MaxRows: n})
			return position{x.CreatedAt, x.ID}, err
		}}
		rows, next, err = page(look, position{params.BeforeAt, params.BeforeID}, func(floor position) ([]db.ReadRunsRow, error) {
			params.FloorAt, params.FloorID = floor.at, floor.id
			return q.ReadRuns(ctx, params)
		}, func(x db.ReadRunsRow) position { return position{x.CreatedAt, x.ID} })
		return err
	})
	if err != nil {
		return client.RunList{}, fmt.Errorf("read runs: %w", err)
	}
	out := client.RunList{Runs: make([]client.Run, len(rows)), NextCursor: next}
	now := r.now()
	for i, x := range rows {
		out.Runs[i] = r.run(db.ReadRunRow(x), now)
	}
	return out, nil
}

func runParams(s Scope, f RunFilter) (db.ReadRunsParams, error) {
	from, err := parseCursor(f.Cursor, newest)
	if err != nil {
		return db.ReadRunsParams{}, err
	}
	statuses := ""
	for _, st := range f.Statuses {
		if !validRunStatus(st) {
			return db.ReadRunsParams{}, fmt.Errorf("%w: unknown status %q; the statuses are %s", ErrInvalid, st, joinStatuses())
		}
		statuses += "," + st
	}
	if statuses != "" {
		statuses += ","
	}
	return db.ReadRunsParams{
		OrgID: s.OrgID, RoutingKey: cmp.Or(s.RoutingKey, f.RoutingKey), BeforeAt: from.at, BeforeID: from.id,
		Statuses: statuses, Workflow: f.Workflow, Repo: f.Repo, Branch: f.Branch, Actor: f.Actor, Event: f.Event,
		EventPrefix: eventPrefix(f.Event), DeliveryID: f.DeliveryID,
		Pattern: likePattern(f.Text), MaxRows: int32(clamp(f.Limit, DefaultLimit, MaxLimit) + 1),
	}, nil
}

func validRunStatus(s string) bool {
	for _, v := range ci.RunStatuses {
		if string(v) == s {
			return true
		}
	}
	return false
}

func joinStatuses() string {
	words := make([]string, len(ci.RunStatuses))
	for i, v := range ci.RunStatuses {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}

// eventPrefix finds an event with any action. An event that names its action has no other.
func eventPrefix(event string) string {
	if event == "" || strings.Contains(event, ":") {
		return ""
	}
	return escape.Replace(event) + ":%"
}

var escape = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// likePattern makes text a LIKE pattern that finds it anywhere, with '!' as the escape character.
func likePattern(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return ""
	}
	return "%" + escape.Replace(text) + "%"
}

func (r *Reads) run(x db.ReadRunRow, now int64) client.Run {
	d := ci.RunStatus(x.Status).Display()
	out := client.Run{
		ID: x.ID, Number: x.Number, Repo: x.Repo, Workflow: x.Workflow, Status: x.Status,
		Display: client.Status{Status: x.Status, Word: d.Word, Class: d.Class},
		Title:   x.Title, Ref: x.Ref, Branch: x.Branch, SHA: x.Sha, Actor: x.Actor, TriggerEvent: x.TriggerEvent,
		DeliveryID: x.DeliveryID, ParentRunID: x.ParentRunID.String, CreatedAt: client.TimeOf(x.CreatedAt),
		StartedAt: timePtr(x.StartedAt), FinishedAt: timePtr(x.FinishedAt), DurationMs: span(x.StartedAt, x.FinishedAt, now),
		FailureReason: x.FailureReason, FailureClass: x.FailureClass, InitFailure: x.InitFailure,
		CancelledBy: x.CancelledBy, URL: r.RunURL(x.ID),
	}
	started := x.StartedAt
	if !started.Valid {
		started = x.FinishedAt
	}
	out.QueuedMs = span(sql.NullInt64{Int64: x.CreatedAt, Valid: true}, started, now)
	_ = json.Unmarshal([]byte(x.Warnings), &out.Warnings)
	return out
}
