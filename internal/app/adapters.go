package app

import (
	"context"
	"errors"
	"io"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// The adapters below translate between rooms that do not know each other.

// agentReports is the fleet's view of run.
type agentReports struct{ *run.Service }

// Finish takes an agent's final report.
func (a agentReports) Finish(tx *store.Tx, e fleet.JobEnd) (bool, error) {
	r := e.Report
	return a.Service.Finish(tx, run.End{
		JobID: r.JobID, Attempt: r.Attempt, AgentID: e.AgentID, Status: ci.JobStatus(r.Status), Error: r.Error,
		InitFailure: r.InitFailure, KillMethod: r.KillMethod, Outputs: r.Outputs, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Seq: r.Seq,
	})
}

// agentLogs is the fleet's view of logs.
type agentLogs struct{ store *logs.Store }

func jobOf(at fleet.LogPosition) logs.Job {
	return logs.Job{RunID: at.RunID, JobID: at.JobID, Attempt: at.Attempt}
}

// Append stores a piece of a step's log.
func (a agentLogs) Append(ctx context.Context, at fleet.LogPosition, r io.Reader) (wire.LogAck, error) {
	ack, err := a.store.Append(ctx, jobOf(at), at.Step, at.Offset, r)
	switch {
	case errors.Is(err, logs.ErrOffset):
		err = fleet.ErrLogOffset
	case errors.Is(err, logs.ErrUnavailable):
		err = fleet.ErrLogUnavailable
	case errors.Is(err, logs.ErrLine), errors.Is(err, logs.ErrName):
		err = fleet.ErrLogInvalid
	}
	return ack, err
}

// Finish closes a job's files.
func (a agentLogs) Finish(at fleet.LogPosition) { a.store.Finish(jobOf(at)) }

// Bytes is how much is stored of a job.
func (a agentLogs) Bytes(at fleet.LogPosition) int64 { return a.store.Bytes(jobOf(at)) }

// agentClones is the fleet's view of ingress.
type agentClones struct{ sources *ingress.Service }

// CloneFor says how an agent gets a source's repository.
func (a agentClones) CloneFor(ctx context.Context, orgID, routingKey string) (fleet.Clone, error) {
	c, err := a.sources.CloneFor(ctx, orgID, routingKey)
	return fleet.Clone{URL: c.URL, Username: c.Username, Password: c.Password}, err
}
