package read

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// AccessLog is a page of the organisation's access log, newest first.
func (r *Reads) AccessLog(ctx context.Context, s Scope, cursor string, limit int) (client.AccessLog, error) {
	from, err := parseCursor(cursor, newest)
	if err != nil {
		return client.AccessLog{}, err
	}
	limit = clamp(limit, DefaultLimit, MaxLimit)
	var rows []db.AccessLog
	err = r.view(ctx, func(q *db.Queries) (err error) {
		rows, err = q.AccessLog(ctx, db.AccessLogParams{OrgID: s.OrgID, BeforeAt: from.at, BeforeID: from.id, MaxRows: int32(limit + 1)})
		return err
	})
	if err != nil {
		return client.AccessLog{}, fmt.Errorf("read access log: %w", err)
	}
	rows, next := cut(rows, limit, func(x db.AccessLog) position { return position{x.At, x.ID} })
	out := client.AccessLog{Items: make([]client.AccessEntry, len(rows)), NextCursor: next}
	for i, x := range rows {
		var meta struct {
			Label string `json:"label"`
		}
		_ = json.Unmarshal([]byte(x.Meta), &meta)
		out.Items[i] = client.AccessEntry{
			ID: x.ID, At: client.TimeOf(x.At), ActorKind: x.ActorKind, Actor: x.Actor, Label: meta.Label, Action: x.Action,
			Target: x.Target, Source: x.Source, Outcome: x.Outcome, RequestID: x.RequestID, Error: x.Error,
		}
	}
	return out, nil
}
