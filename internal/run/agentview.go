package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// ErrNoJob says that there is no such job.
var ErrNoJob = errors.New("no such job")

// AgentContexts returns the values behind ${{ }} that an agent needs for a job. What only the agent knows (workspace,
// runner, steps) it adds itself.
func (s *Service) AgentContexts(ctx context.Context, jobID string) (wire.Contexts, error) {
	f, err := s.agentFacts(ctx, s.st.Read(), jobID)
	if err != nil {
		return wire.Contexts{}, err
	}
	c := f.Contexts()
	return wire.Contexts{
		Kici: json.RawMessage(mustJSON(c["kici"])), Matrix: f.Matrix, Needs: json.RawMessage(mustJSON(f.Needs)),
		Inputs: json.RawMessage(mustJSON(c["inputs"])),
	}, nil
}

// agentFacts reads without a transaction: what a job with an agent needs has ended, and does not change any more.
func (s *Service) agentFacts(ctx context.Context, q *db.Queries, jobID string) (plan.Facts, error) {
	row, err := q.JobAndItsRun(ctx, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return plan.Facts{}, ErrNoJob
	}
	if err != nil {
		return plan.Facts{}, fmt.Errorf("read job: %w", err)
	}
	f := plan.Facts{
		Server: s.settings.ServerURL, Matrix: json.RawMessage(row.Matrix), Job: &lock.Job{},
		Run: plan.Run{ID: row.ID, Number: row.Number, Repo: row.Repo, Workflow: row.Workflow, Actor: row.Actor, Attempt: row.RunAttempt},
	}
	for text, into := range map[string]any{row.Event: &f.Event, row.Inputs: &f.Inputs, row.LockJob: f.Job} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return plan.Facts{}, fmt.Errorf("decode job: %w", err)
		}
	}
	var needs []db.NeedsOfJobRow
	if len(f.Job.Needs) > 0 {
		if needs, err = q.NeedsOfJob(ctx, jobID); err != nil {
			return plan.Facts{}, fmt.Errorf("read needs: %w", err)
		}
	}
	f.Needs = plan.NeedsContext(needsOf(needs))
	return f, nil
}
