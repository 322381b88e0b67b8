package read

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store/db"
)

// CheckRunFilter narrows a list of commit statuses.
type CheckRunFilter struct {
	Run     string // as RunID takes it; "" is the newest of all runs
	Failing bool   // only those that could not be posted
	Limit   int
}

// CheckRuns lists commit statuses, those of the newest runs first.
func (r *Reads) CheckRuns(ctx context.Context, s Scope, f CheckRunFilter) (client.CheckRunList, error) {
	var rows []db.ReadCheckRunsRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		rows, err = f.rows(ctx, q, s)
		return err
	})
	if err != nil {
		return client.CheckRunList{}, fmt.Errorf("read commit statuses: %w", err)
	}
	out := client.CheckRunList{CheckRuns: make([]client.CheckRun, len(rows))}
	for i, x := range rows {
		out.CheckRuns[i] = client.CheckRun{
			RunID: x.RunID, RunNumber: x.Number, Repo: x.Repo, Workflow: x.Workflow, JobID: x.JobID, Context: x.Context, SHA: x.Sha,
			State: x.State, Wanted: x.Wanted, Description: x.Description, Attempts: x.Attempts, Reason: x.Reason, Error: x.LastError,
			CreatedAt: client.TimeOf(x.CreatedAt), PostedAt: timePtr(x.PostedAt), FailingSince: timePtr(x.FailingSince), GaveUpAt: timePtr(x.GaveUpAt),
		}
	}
	return out, nil
}

func (f CheckRunFilter) rows(ctx context.Context, q *db.Queries, s Scope) (out []db.ReadCheckRunsRow, err error) {
	limit := int32(clamp(f.Limit, MaxLimit, MaxLimit))
	switch {
	case f.Run != "":
		id, err := visibleRun(ctx, q, s, f.Run)
		if err != nil {
			return nil, err
		}
		rows, err := q.ReadCheckRunsOfRun(ctx, id, limit)
		for _, x := range rows {
			if !f.Failing || x.FailingSince.Valid {
				out = append(out, db.ReadCheckRunsRow(x))
			}
		}
		return out, err
	case f.Failing:
		rows, err := q.ReadFailingCheckRuns(ctx, s.OrgID, s.RoutingKey, limit)
		for _, x := range rows {
			out = append(out, db.ReadCheckRunsRow(x))
		}
		return out, err
	}
	return q.ReadCheckRuns(ctx, s.OrgID, s.RoutingKey, limit)
}

// visibleRun is the id of a run that the caller may see.
func visibleRun(ctx context.Context, q *db.Queries, s Scope, ref string) (string, error) {
	id, err := runID(ctx, q, s, ref)
	if err != nil {
		return "", err
	}
	row, err := q.ReadRun(ctx, id, s.OrgID)
	if err != nil {
		return "", notFound(err, fmt.Sprintf("run %q", ref))
	}
	return id, s.check(row.RoutingKey, "this run")
}

// readChecks sums up the commit statuses of a run; nil for one that shows none.
func readChecks(ctx context.Context, q *db.Queries, runID string) (*client.Checks, error) {
	run, err := q.ReadChecksOfRun(ctx, runID)
	if err != nil || run.ChecksChanged == 0 {
		return nil, err
	}
	rows, err := q.CommitStatuses(ctx, runID)
	if err != nil {
		return nil, err
	}
	out := &client.Checks{Pending: run.ChecksChanged > run.ChecksDone}
	for _, x := range rows {
		switch {
		case !x.FailingSince.Valid:
			out.Posted++
			continue
		case x.GaveUpAt.Valid:
			out.Failed++
		default:
			out.Waiting++
		}
		if out.Error == "" {
			out.Reason, out.Error = x.Reason, x.LastError
		}
	}
	names, err := q.ReadSourceName(ctx, run.RoutingKey)
	if len(names) > 0 {
		out.Source = names[0]
	}
	return out, err
}
