package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// ErrNoJob says that there is no such job.
var ErrNoJob = errors.New("no such job")

// AgentContexts returns the values behind ${{ }} that an agent needs for a job. What only the agent knows (workspace,
// runner, steps) it adds itself.
func (s *Service) AgentContexts(ctx context.Context, jobID string) (wire.Contexts, error) {
	var out wire.Contexts
	err := s.st.Snapshot(ctx, func(tx *store.Tx) error {
		f, err := s.agentFacts(ctx, tx, jobID)
		if err != nil {
			return err
		}
		c := f.contexts()
		out = wire.Contexts{
			Kici: json.RawMessage(mustJSON(c["kici"])), Matrix: f.matrix, Needs: json.RawMessage(mustJSON(f.needs)),
			Inputs: json.RawMessage(mustJSON(c["inputs"])),
		}
		return nil
	})
	return out, err
}

func (s *Service) agentFacts(ctx context.Context, tx *store.Tx, jobID string) (facts, error) {
	row, err := tx.JobAndItsRun(ctx, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return facts{}, ErrNoJob
	}
	if err != nil {
		return facts{}, fmt.Errorf("read job: %w", err)
	}
	f := facts{server: s.settings.ServerURL, matrix: json.RawMessage(row.Matrix), job: &lock.Job{}}
	f.run.ID, f.run.Number, f.run.Repo, f.run.Workflow = row.ID, row.Number, row.Repo, row.Workflow
	f.run.Actor, f.run.RunAttempt = row.Actor, row.RunAttempt
	for text, into := range map[string]any{row.Event: &f.event, row.Inputs: &f.inputs, row.LockJob: f.job} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return facts{}, fmt.Errorf("decode job: %w", err)
		}
	}
	var needs []db.NeedsOfJobRow
	if len(f.job.Needs) > 0 {
		if needs, err = tx.NeedsOfJob(ctx, jobID); err != nil {
			return facts{}, fmt.Errorf("read needs: %w", err)
		}
	}
	f.needs = needsContext(needs)
	return f, nil
}
