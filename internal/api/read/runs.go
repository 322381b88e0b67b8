package read

import (
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
	DeliveryID string
	Text       string // found in title, workflow, repository, branch, actor, commit or "#482"
	Since      int64  // UTC ms, created at or after
	Cursor     string
	Limit      int
}

// Runs is a page of runs, newest first.
func (r *Reads) Runs(ctx context.Context, s Scope, f RunFilter) (client.RunList, error) {
	params, err := runParams(s, f)
	if err != nil {
		return client.RunList{}, err
	}
	limit := int(params.MaxRows) - 1
	var rows []db.ReadRunsRow
	err = r.view(ctx, func(q *db.Queries) error {
		rows, err = q.ReadRuns(ctx, params)
		return err
	})
	if err != nil {
		return client.RunList{}, fmt.Errorf("read runs: %w", err)
	}
	rows, next := cut(rows, limit, func(x db.ReadRunsRow) position { return position{x.CreatedAt, x.ID} })
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
		OrgID: s.OrgID, RoutingKey: s.RoutingKey, BeforeAt: from.at, BeforeID: from.id, Since: f.Since,
		Statuses: statuses, Workflow: f.Workflow, Repo: f.Repo, Branch: f.Branch, DeliveryID: f.DeliveryID,
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

// likePattern makes text a LIKE pattern that finds it anywhere, with '!' as the escape character.
func likePattern(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return ""
	}
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text) + "%"
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
