package read

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// QueueFilter says which page of the queue.
type QueueFilter struct {
	Cursor string
	Limit  int
}

// Queue is a page of the jobs that wait for an agent, oldest first, each with its reasons.
func (r *Reads) Queue(ctx context.Context, s Scope, f QueueFilter) (client.Queue, error) {
	from, err := parseCursor(f.Cursor, position{-1, ""})
	if err != nil {
		return client.Queue{}, err
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	var rows []db.ReadQueueRow
	var total db.ReadQueueTotalsRow
	reasons := map[string]shapeReasons{}
	err = r.view(ctx, func(q *db.Queries) (err error) {
		if total, err = queueTotals(ctx, q, s); err != nil {
			return err
		}
		rows, err = q.ReadQueue(ctx, db.ReadQueueParams{
			OrgID: s.OrgID, RoutingKey: s.RoutingKey, AfterAt: from.at, AfterID: from.id, MaxRows: int32(limit + 1),
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		return readShapes(ctx, q, rows, reasons)
	})
	if err != nil {
		return client.Queue{}, fmt.Errorf("read queue: %w", err)
	}
	rows, next := cut(rows, limit, func(x db.ReadQueueRow) position { return position{x.QueuedAt.Int64, x.ID} })
	now := r.now()
	out := client.Queue{Waiting: total.Waiting, Items: make([]client.QueueItem, len(rows)), NextCursor: next}
	if total.Waiting > 0 {
		t := client.TimeOf(total.Oldest)
		out.OldestAt, out.OldestMs = &t, max(now-total.Oldest, 0)
	}
	for i, x := range rows {
		out.Items[i] = r.queueItem(x, reasons[x.Shape], now)
	}
	return out, nil
}

func queueTotals(ctx context.Context, q *db.Queries, s Scope) (db.ReadQueueTotalsRow, error) {
	if s.RoutingKey == "" {
		return q.ReadQueueTotals(ctx, s.OrgID)
	}
	t, err := q.ReadQueueTotalsOfKey(ctx, s.OrgID, s.RoutingKey)
	return db.ReadQueueTotalsRow(t), err
}

// readShapes reads the reasons of the shapes on the page: one query for all, or one each when there are only a few.
func readShapes(ctx context.Context, q *db.Queries, rows []db.ReadQueueRow, into map[string]shapeReasons) error {
	for _, x := range rows {
		into[x.Shape] = shapeReasons{}
	}
	if len(into) > 8 {
		all, err := q.ReadAllShapeReasons(ctx)
		for _, x := range all {
			if _, ok := into[x.Shape]; ok {
				into[x.Shape] = parseReasons(x.Reasons, x.UpdatedAt)
			}
		}
		return err
	}
	for shape := range into {
		x, err := q.ReadShapeReasons(ctx, shape)
		switch {
		case err == nil:
			into[shape] = parseReasons(x.Reasons, x.UpdatedAt)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

func (r *Reads) queueItem(x db.ReadQueueRow, reasons shapeReasons, now int64) client.QueueItem {
	it := client.QueueItem{
		JobID: x.ID, JobName: first(x.DisplayName, x.Name), RunID: x.RunID, RunNumber: x.Number, RunTitle: x.Title, Repo: x.Repo,
		Workflow: x.Workflow, Labels: stringList(x.Labels), Exclude: stringList(x.ExcludeLabels), CPUMilli: x.CpuMilli,
		MemBytes: x.MemBytes, QueuedAt: client.TimeOf(x.QueuedAt.Int64), WaitMs: max(now-x.QueuedAt.Int64, 0),
		ExpiresAt: timePtr(x.QueueDeadlineAt), Requeues: x.DispatchAttempts, URL: r.RunURL(x.RunID),
	}
	it.Why, it.Reasons = queuedWhy(queuedFacts{
		assigned: x.AgentID.String, boundID: x.BoundID.String, boundState: x.BoundState.String, boundDetail: x.BoundDetail.String, boundScaler: x.BoundScaler.String,
		boundNode: x.BoundNode.String, launchError: x.ProvisioningError, requeues: x.DispatchAttempts, reasons: reasons,
	})
	return it
}
