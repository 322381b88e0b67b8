package read

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// AccessFilter narrows the access log. Instants are UTC milliseconds; 0 is open.
type AccessFilter struct {
	Action  string // exactly, or a beginning with * at its end
	Actor   string // id or label of the token
	Outcome string
	Target  string
	Since   int64
	Until   int64
	Cursor  string
	Limit   int
}

// AccessLog is a page of the organisation's access log, newest first.
func (r *Reads) AccessLog(ctx context.Context, s Scope, f AccessFilter) (client.AccessLog, error) {
	from, err := parseCursor(f.Cursor, newest)
	if err != nil {
		return client.AccessLog{}, err
	}
	switch f.Outcome {
	case "", "allowed", "denied", "error":
	default:
		return client.AccessLog{}, fmt.Errorf("%w: outcome is allowed, denied or error", ErrInvalid)
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	p := db.FilteredAccessLogParams{
		OrgID: s.OrgID, BeforeAt: from.at, BeforeID: from.id, Since: f.Since, Until: maxInt64, Action: f.Action, Actor: f.Actor,
		Outcome: f.Outcome, Target: f.Target, MaxRows: int32(limit + 1),
	}
	if f.Until > 0 {
		p.Until = f.Until
	}
	if prefix, cut := strings.CutSuffix(f.Action, "*"); cut {
		p.ActionPrefix = prefix + "%"
	}
	if label, err := json.Marshal(f.Actor); err == nil && !strings.ContainsAny(f.Actor, "%_") {
		p.ActorLabel = `%"label":` + string(label) + "%"
	}
	var rows []db.AccessLog
	err = r.view(ctx, func(q *db.Queries) (err error) {
		rows, err = q.FilteredAccessLog(ctx, p)
		return err
	})
	if err != nil {
		return client.AccessLog{}, fmt.Errorf("read access log: %w", err)
	}
	rows, next := cut(rows, limit, func(x db.AccessLog) position { return position{x.At, x.ID} })
	out := client.AccessLog{Items: make([]client.AccessEntry, len(rows)), NextCursor: next}
	for i, x := range rows {
		out.Items[i] = accessEntry(x)
	}
	return out, nil
}

// AccessEntry is one entry of the organisation's access log.
func (r *Reads) AccessEntry(ctx context.Context, s Scope, id string) (client.AccessEntry, error) {
	var row db.AccessLog
	err := r.view(ctx, func(q *db.Queries) (err error) {
		row, err = q.AccessLogEntry(ctx, s.OrgID, id)
		return err
	})
	if err != nil {
		return client.AccessEntry{}, notFound(err, fmt.Sprintf("entry %q of the access log", id))
	}
	return accessEntry(row), nil
}

func accessEntry(x db.AccessLog) client.AccessEntry {
	e := client.AccessEntry{
		ID: x.ID, At: client.TimeOf(x.At), ActorKind: x.ActorKind, Actor: x.Actor, Action: x.Action,
		Target: x.Target, Source: x.Source, Outcome: x.Outcome, RequestID: x.RequestID, Error: x.Error,
	}
	meta := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(x.Meta), &meta) != nil {
		return e
	}
	_ = json.Unmarshal(meta["label"], &e.Label)
	delete(meta, "label")
	if len(meta) > 0 {
		e.Meta, _ = json.Marshal(meta)
	}
	return e
}
