package run

import (
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Names of the lifecycle events (EVT-9).
const (
	eventJob      = "__job_complete"
	eventWorkflow = "__workflow_complete"
)

// maxEventOutputs bounds the outputs in one workflow event; beyond it they are left out, and a reader asks the API.
const maxEventOutputs = 256 << 10

type jobComplete struct {
	WorkflowName string       `json:"workflowName"`
	JobName      string       `json:"jobName"`
	RunID        string       `json:"runId"`
	JobID        string       `json:"jobId"`
	Status       string       `json:"status"`
	Duration     int64        `json:"duration"`
	StepResults  []stepResult `json:"stepResults"`
}

type stepResult struct {
	Name     string `json:"name"`
	Status   string `json:"status"`
	ExitCode *int64 `json:"exitCode,omitempty"`
	Duration int64  `json:"duration"`
}

type workflowComplete struct {
	WorkflowName     string      `json:"workflowName"`
	RunID            string      `json:"runId"`
	Status           string      `json:"status"`
	Conclusion       string      `json:"conclusion"`
	Duration         int64       `json:"duration"`
	JobResults       []jobResult `json:"jobResults"`
	FailureClass     string      `json:"failureClass,omitempty"`
	SourceRepo       string      `json:"sourceRepo"`
	SourceRoutingKey string      `json:"sourceRoutingKey"`
}

type jobResult struct {
	Name    string          `json:"name"`
	Status  string          `json:"status"`
	Outputs json.RawMessage `json:"outputs,omitempty"`
}

// jobEvent writes __job_complete in the transaction that ends the job (EVT-8).
func (l *life) jobEvent(job db.LockJobRow, e ending, startedAt int64, steps []db.StepResultsRow) error {
	body := jobComplete{
		WorkflowName: l.run.Workflow, JobName: job.Name, RunID: l.run.ID, JobID: job.ID, Status: string(e.status), StepResults: []stepResult{},
	}
	if startedAt > 0 {
		body.Duration = max(e.finishedAt-startedAt, 0)
	}
	for _, s := range steps {
		r := stepResult{Name: s.Name, Status: s.Status}
		if s.ExitCode.Valid {
			r.ExitCode = &s.ExitCode.Int64
		}
		if s.StartedAt.Valid && s.FinishedAt.Valid {
			r.Duration = max(s.FinishedAt.Int64-s.StartedAt.Int64, 0)
		}
		body.StepResults = append(body.StepResults, r)
	}
	return l.event(eventJob, job.ID, body)
}

// runEvent writes __workflow_complete in the transaction that ends the run.
func (l *life) runEvent(status ci.RunStatus, jobs []db.RunOutcomesRow) error {
	started := l.run.CreatedAt
	if l.run.StartedAt.Valid {
		started = l.run.StartedAt.Int64
	}
	body := workflowComplete{
		WorkflowName: l.run.Workflow, RunID: l.run.ID, Status: string(status), Conclusion: conclusion(status), Duration: max(l.now-started, 0),
		JobResults: []jobResult{}, FailureClass: l.run.FailureClass, SourceRepo: l.run.Repo, SourceRoutingKey: l.run.RoutingKey,
	}
	room := maxEventOutputs
	for _, j := range jobs {
		r := jobResult{Name: j.Name, Status: j.Status}
		if j.Outputs != "{}" && len(j.Outputs) <= room {
			r.Outputs = json.RawMessage(j.Outputs)
			room -= len(j.Outputs)
		}
		body.JobResults = append(body.JobResults, r)
	}
	return l.event(eventWorkflow, "", body)
}

// conclusion is GitHub's word for a run's end.
func conclusion(s ci.RunStatus) string {
	if s == ci.RunFailed {
		return "failure"
	}
	return string(s)
}

// event writes one lifecycle event at the run's depth + 1, or where the chain is too deep a note that there is none (EVT-5, XC-40).
func (l *life) event(name, jobID string, body any) error {
	if l.run.ChainDepth+1 >= l.s.settings.MaxChainDepth {
		if name != eventWorkflow {
			return nil
		}
		return l.note(ci.NoteChainEnded, "", byKici, fmt.Sprintf(
			"workflows that wait for the end of this run or of its jobs are not started: it is link %d of a chain of runs that start each other, and a chain has at most %d",
			l.run.ChainDepth, l.s.settings.MaxChainDepth-1))
	}
	ended, err := l.tx.InsertLifecycleEvent(l.ctx, db.InsertLifecycleEventParams{
		ID: l.s.env.NewID(), OrgID: l.run.OrgID, EventName: name, Payload: mustJSON(body), SourceRepo: l.run.Repo, SourceRoutingKey: l.run.RoutingKey,
		SourceRunID: l.run.ID, SourceJobID: jobID, ChainDepth: l.run.ChainDepth + 1, CreatedAt: l.now, ExpiresAt: l.now + l.s.limits(l.run.OrgID).EventTTL.Milliseconds(),
		UnheardAt: l.s.listeners.unheardAt(l.run.OrgID, name),
	})
	if err != nil {
		return fmt.Errorf("write lifecycle event: %w", err)
	}
	if ended {
		l.s.listeners.ended(name)
	} else {
		l.tx.Notify(store.TopicEvents, "")
	}
	return nil
}
