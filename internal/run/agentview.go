package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
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
	row, err := s.jobAndItsRun(ctx, jobID)
	if err != nil {
		return wire.Contexts{}, err
	}
	f, err := s.agentFacts(ctx, jobID, row)
	if err != nil {
		return wire.Contexts{}, err
	}
	c := f.Contexts()
	return wire.Contexts{
		Kici: json.RawMessage(mustJSON(c["kici"])), Matrix: f.Matrix, Needs: json.RawMessage(mustJSON(f.Needs)),
		Inputs: json.RawMessage(mustJSON(c["inputs"])),
	}, nil
}

// RegistryLogin returns what a job gives for the registry of its image, nothing when it gives nothing. The organisation's secrets are
// there only for runs that are trusted (XC-118).
func (s *Service) RegistryLogin(ctx context.Context, jobID string, secrets func(ctx context.Context, orgID string) (map[string]string, error)) (username, password string, err error) {
	row, err := s.jobAndItsRun(ctx, jobID)
	if err != nil {
		return "", "", err
	}
	f, err := s.agentFacts(ctx, jobID, row)
	if err != nil || f.Job.Container == nil || f.Job.Container.Credentials == nil {
		return "", "", err
	}
	var values map[string]string
	if ci.TrustTier(row.TrustTier) == ci.TierTrusted {
		if values, err = secrets(ctx, row.OrgID); err != nil {
			return "", "", fmt.Errorf("read secrets: %w", err)
		}
	}
	return f.Login(values)
}

func (s *Service) jobAndItsRun(ctx context.Context, jobID string) (db.JobAndItsRunRow, error) {
	row, err := s.st.Read().JobAndItsRun(ctx, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return row, ErrNoJob
	}
	if err != nil {
		return row, fmt.Errorf("read job: %w", err)
	}
	return row, nil
}

// agentFacts reads without a transaction: what a job that was ready needs has ended, and does not change any more.
func (s *Service) agentFacts(ctx context.Context, jobID string, row db.JobAndItsRunRow) (plan.Facts, error) {
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
		var err error
		if needs, err = s.st.Read().NeedsOfJob(ctx, jobID); err != nil {
			return plan.Facts{}, fmt.Errorf("read needs: %w", err)
		}
	}
	f.Needs = plan.NeedsContext(needsOf(needs))
	return f, nil
}
