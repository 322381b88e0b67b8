package read

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// Overview is what somebody who opens the list of runs wants to know first.
type Overview struct {
	Running, Waiting int64 // runs; beyond 10,000 open ones together, at least so many
	LastFailure      *client.Time
	LastFailedRun    string // its id
}

// Overview counts the runs that have not ended, and finds the last that failed.
func (r *Reads) Overview(ctx context.Context, s Scope) (Overview, error) {
	var out Overview
	err := r.view(ctx, func(q *db.Queries) error {
		open, err := q.ReadOpenRuns(ctx, s.OrgID, s.RoutingKey)
		if err != nil {
			return err
		}
		for _, x := range open {
			switch ci.RunStatus(x.Status) {
			case ci.RunRunning, ci.RunCancelling:
				out.Running += x.Runs
			default:
				out.Waiting += x.Runs
			}
		}
		failed, err := q.ReadLastFailure(ctx, s.OrgID, s.RoutingKey)
		if err == nil && len(failed) > 0 {
			out.LastFailure, out.LastFailedRun = timePtr(failed[0].FinishedAt), failed[0].ID
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("read overview: %w", err)
	}
	return out, nil
}

// RunsOfDelivery are the runs that a delivery has started, at most 100.
func (r *Reads) RunsOfDelivery(ctx context.Context, s Scope, d client.Delivery) ([]client.Run, error) {
	if d.RunID == "" {
		return nil, nil
	}
	var rows []db.ReadRunsOfDeliveryRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		rows, err = q.ReadRunsOfDelivery(ctx, db.ReadRunsOfDeliveryParams{
			FirstRun: d.RunID, OrgID: s.OrgID, DeliveryID: d.ID, RoutingKey: s.RoutingKey,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs of delivery: %w", err)
	}
	out, now := make([]client.Run, len(rows)), r.now()
	for i, x := range rows {
		out[i] = r.run(db.ReadRunRow(x), now)
	}
	return out, nil
}

// Activity is what a source was last heard of.
type Activity struct {
	Last      *client.Delivery // newest among the last deliveries of the organisation
	PolledAt  *client.Time     // when kici last looked there by itself
	PollError string           // why that fails now
	Failures  int64            // in a row
	NextPoll  *client.Time
}

// recentDeliveries is how many deliveries of an organisation Activities looks at.
const recentDeliveries = 5000

// Activities is what was last heard of each source, by its id.
func (r *Reads) Activities(ctx context.Context, s Scope) (map[string]Activity, error) {
	out := map[string]Activity{}
	err := r.view(ctx, func(q *db.Queries) error {
		polls, err := q.ReadSourcePolls(ctx, s.OrgID)
		if err != nil {
			return err
		}
		for _, p := range polls {
			a := Activity{PollError: p.LastError, Failures: p.Failures}
			next := client.TimeOf(p.NextAt)
			a.NextPoll = &next
			if p.PolledAt > 0 {
				at := client.TimeOf(p.PolledAt)
				a.PolledAt = &at
			}
			out[p.SourceID] = a
		}
		last, err := q.ReadLastDeliveries(ctx, s.OrgID, recentDeliveries)
		for _, d := range last {
			a := out[d.SourceID]
			a.Last = &client.Delivery{
				ID: d.ID, Event: d.Event, Status: d.Status, Error: d.Error, Matched: d.Matched, ReceivedAt: client.TimeOf(d.ReceivedAt),
			}
			out[d.SourceID] = a
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read activity of sources: %w", err)
	}
	return out, nil
}
