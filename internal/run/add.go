package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// AddJobs asks for jobs to be added to the run of a job, by a step of it that runs.
type AddJobs struct {
	AgentID   string // who has the job
	JobID     string // whose step adds them
	Attempt   int
	RequestID string // of the step, 1 to 200 bytes: a repeat finds what the first made
	Jobs      []lock.Job
}

// ErrAdd is wrapped by every refusal of AddJobs; the text says which job is wrong and why.
var ErrAdd = errors.New("the jobs are not added")

const maxRequestID = 200

// AddJobs adds jobs to a run that goes on and returns their names. They may need jobs of the run and each other, by the names that
// stand in the workflow, and have matrices, conditions and concurrency groups as any other. Jobs that were there before cannot
// come to need them. All of them are added, or none: with ErrAdd. ErrNoJob says that there is no such job.
func (s *Service) AddJobs(ctx context.Context, req AddJobs) (names []string, err error) {
	err = s.st.Write(ctx, func(tx *store.Tx) error {
		var err error
		names, err = s.AddJobsTx(tx, req)
		return err
	})
	return names, err
}

// AddJobsTx is AddJobs in the caller's transaction.
func (s *Service) AddJobsTx(tx *store.Tx, req AddJobs) ([]string, error) {
	if req.RequestID == "" || len(req.RequestID) > maxRequestID {
		return nil, fmt.Errorf("%w: the request id must have 1 to %d bytes", ErrAdd, maxRequestID)
	}
	l, job, found, err := s.openJob(context.Background(), tx, req.JobID)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNoJob
	case req.AgentID == "" || !job.AgentID.Valid || !holds(job, int64(req.Attempt), req.AgentID):
		return nil, fmt.Errorf("%w: this agent does not have the job (any more)", ErrAdd)
	}
	if names, err := l.added(job.ID, req.RequestID); err != nil || names != nil {
		return names, err
	}
	if st := ci.JobStatus(job.Status); st != ci.JobRunning && st != ci.JobRecovering || l.run.Status == string(ci.RunCancelling) {
		return nil, fmt.Errorf("%w: the job is %s and its run %s; only a running job can add jobs", ErrAdd, job.Status, l.run.Status)
	}
	p, next, err := l.planAddition(req.Jobs)
	if err != nil {
		return nil, err
	}
	if err := l.insertJobs(Planned{Plan: p}, next); err != nil {
		return nil, fmt.Errorf("insert jobs: %w", err)
	}
	names, text := p.Names()
	err = tx.InsertJobAddition(l.ctx, db.InsertJobAdditionParams{RunID: l.run.ID, ByJobID: job.ID, RequestID: req.RequestID, Jobs: text, At: l.now})
	if err != nil {
		return nil, fmt.Errorf("note addition: %w", err)
	}
	if err := l.note(ci.NoteJobsAdded, job.ID, req.AgentID, fmt.Sprintf("added %d: %s", len(names), strings.Join(names, ", "))); err != nil {
		return nil, err
	}
	for _, j := range p.Jobs { // those that need nothing, or only jobs that have ended, go on at once
		if err := l.decide(j.ID, j.Def.Name); err != nil {
			return nil, err
		}
	}
	return names, l.settle()
}

// added is what an earlier request of this id has added, nil for nothing.
func (l *life) added(jobID, requestID string) (names []string, err error) {
	text, err := l.tx.JobAddition(l.ctx, jobID, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for an earlier request: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		return nil, fmt.Errorf("decode earlier request: %w", err)
	}
	return names, nil
}

// planAddition plans the jobs; next is the place in the run of the first of them.
func (l *life) planAddition(jobs []lock.Job) (p plan.Plan, next int, err error) {
	rows, err := l.tx.RunJobNames(l.ctx, l.run.ID)
	if err != nil {
		return p, 0, fmt.Errorf("read jobs: %w", err)
	}
	have := make([]plan.Existing, len(rows))
	for i, r := range rows {
		have[i] = plan.Existing{Index: int(r.Idx), Name: r.Name, Base: r.BaseName}
		next = max(next, int(r.Idx)+1)
	}
	def, err := l.definition()
	if err != nil {
		return p, 0, err
	}
	w := def.workflow
	w.Jobs = jobs
	p, err = plan.Add(plan.Facts{
		Server: l.s.settings.ServerURL, Run: exprRun(l.run), Event: def.event, Inputs: def.inputs, Workflow: &w,
	}, have, l.s.env.NewID)
	if err != nil {
		return p, 0, fmt.Errorf("%w: %w", ErrAdd, err)
	}
	return p, next, nil
}
