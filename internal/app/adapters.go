package app

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/dispatch"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/git"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/wire"
)

// The adapters below translate between rooms that do not know each other.

// jobLives is dispatch's view of run. It counts what the leader itself ends.
type jobLives struct {
	*run.Service
	metrics *obs.Metrics
}

// EndJob ends a job that no agent ends.
func (l jobLives) EndJob(tx *store.Tx, e dispatch.JobEnd) (bool, error) {
	applied, err := l.Finish(tx, run.End{
		JobID: e.JobID, Attempt: e.Attempt, Status: e.Status, Error: e.Error, InitFailure: e.InitFailure, FailureClass: e.FailureClass,
		AssignmentReason: e.AssignmentReason, OnlyWaiting: e.OnlyWaiting,
	})
	if applied && err == nil {
		switch e.Status {
		case ci.JobUnroutable:
			l.metrics.Unroutable.Inc()
		case ci.JobStale:
			l.metrics.StaleFound.Inc()
		}
	}
	return applied, err
}

// CancelOverdue cancels a run past its deadline; one that has ended meanwhile is left alone.
func (l jobLives) CancelOverdue(tx *store.Tx, runID, reason string) (bool, error) {
	_, err := l.CancelTx(tx, run.CancelRequest{RunID: runID, By: "kici", Reason: reason})
	if errors.Is(err, run.ErrTerminal) || errors.Is(err, run.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// agentReports is the fleet's view of run.
func agentReports(runs *run.Service) fleet.NewBatch {
	return func(tx *store.Tx, agentID string) fleet.ReportBatch { return runs.Batch(tx, agentID) }
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

// archivesFolder keeps commits while agents get them.
const archivesFolder = "archives"

// archive writes the files of a commit for an agent that has no git.
func (s *Server) archive(ctx context.Context, c fleet.Clone, sha, ref string, w io.Writer) error {
	dir := s.data.File(archivesFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return git.Archive{
		Remote: git.Remote{URL: c.URL, Username: c.Username, Password: c.Password, SSHKey: c.SSHKey, KnownHosts: c.KnownHosts}, SHA: sha, Ref: ref, TempDir: dir,
	}.Write(ctx, w)
}

// agentClones is the fleet's view of ingress.
type agentClones struct{ sources *ingress.Service }

// CloneFor says how an agent gets a source's repository.
func (a agentClones) CloneFor(ctx context.Context, orgID, routingKey string) (fleet.Clone, error) {
	c, err := a.sources.CloneFor(ctx, orgID, routingKey)
	return fleet.Clone(c), err
}
