package event

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// maxBatchRuns is how many runs a batch lists; its total is exact (EVT-29).
const maxBatchRuns = 200

// batchPayload is the payload of __workflows_failed_batch (EVT-9).
type batchPayload struct {
	RegistrationID string     `json:"registrationId"`
	Total          int64      `json:"total"`
	Runs           []batchRun `json:"runs"`
}

type batchRun struct {
	RunID          string `json:"runId"`
	Repo           string `json:"repo"`
	WorkflowName   string `json:"workflowName"`
	FailureClass   string `json:"failureClass,omitempty"`
	SenderUsername string `json:"senderUsername,omitempty"`
}

// startedByFailures reports whether a run's own event is a failure: such a run's failure is not batched, or a workflow that reports
// failures would report its own (EVT-28, XC-48).
func startedByFailures(event []byte) bool {
	var e ci.Event
	if json.Unmarshal(event, &e) != nil {
		return false
	}
	switch e.Type {
	case workflow.TypeFailedBatch:
		return true
	case workflow.TypeWorkflowComplete:
		return statusOf(e.Payload) == string(ci.RunFailed)
	case workflow.TypeLifecycle:
		return e.Name == workflow.LifecycleWorkflowComplete && statusOf(e.Payload) == string(ci.RunFailed)
	}
	return false
}

// addFailures puts the failed run into the open window of each registration (EVT-27), and remembers with the event that it did.
func (s *Service) addFailures(ctx context.Context, tx *store.Tx, e db.KiciEvent, buffers []buffer) error {
	for _, b := range buffers {
		live, err := tx.RegistrationLive(ctx, b.reg.ID)
		if err != nil {
			return err
		}
		if live == 0 {
			continue
		}
		id, err := tx.OpenFailureBatch(ctx, db.OpenFailureBatchParams{
			ID: s.d.Env.NewID(), OrgID: e.OrgID, RegistrationID: b.reg.ID, OpenedAt: tx.Now(), ClosesAt: tx.Now() + b.accumulate.Milliseconds(),
		})
		if err != nil {
			return fmt.Errorf("open failure batch: %w", err)
		}
		if _, err := tx.AddFailure(ctx, db.AddFailureParams{BatchID: id, RunID: e.SourceRunID, EventID: e.ID, AddedAt: tx.Now()}); err != nil {
			return fmt.Errorf("add to failure batch: %w", err)
		}
	}
	return tx.MarkBuffered(ctx, e.ID)
}

// closeBatches turns windows that are over into events, each together with the window's end (EVT-29, XC-47). Windows that somebody else
// has locked are left to them.
func (s *Service) closeBatches(ctx context.Context, term int64) error {
	return s.d.Store.Lead(ctx, term, func(tx *store.Tx) error {
		due, err := tx.DueFailureBatches(ctx, tx.Now(), batchesAtOnce)
		if err != nil {
			return err
		}
		for _, b := range due {
			if err := s.closeBatch(ctx, tx, b); err != nil {
				return fmt.Errorf("close failure batch: %w", err)
			}
		}
		return nil
	})
}

const batchesAtOnce = 20

func (s *Service) closeBatch(ctx context.Context, tx *store.Tx, b db.DueFailureBatchesRow) error {
	total, err := tx.CountFailures(ctx, b.ID)
	if err != nil {
		return err
	}
	rows, err := tx.ListFailures(ctx, b.ID, maxBatchRuns)
	if err != nil {
		return err
	}
	if err := tx.DeleteFailures(ctx, b.ID); err != nil {
		return err
	}
	if _, err := tx.DeleteFailureBatch(ctx, b.ID); err != nil {
		return err
	}
	home, err := tx.RegistrationHome(ctx, b.RegistrationID)
	if errors.Is(err, sql.ErrNoRows) {
		s.log.Info("failure batch dropped: its workflow is not registered any more", "registration_id", b.RegistrationID, "failures", total)
		return nil
	} else if err != nil || total == 0 {
		return err
	}
	body := batchPayload{RegistrationID: b.RegistrationID, Total: total, Runs: []batchRun{}}
	depth := int64(0)
	for _, r := range rows {
		body.Runs = append(body.Runs, batchRun{RunID: r.RunID, Repo: r.Repo, WorkflowName: r.Workflow, FailureClass: r.FailureClass, SenderUsername: r.Actor})
		depth = max(depth, r.ChainDepth)
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = s.EmitTx(tx, Emit{
		OrgID: b.OrgID, Name: FailedBatch, Payload: payload, SourceRepo: home.Repo, SourceRoutingKey: home.RoutingKey,
		RegistrationID: b.RegistrationID, ChainDepth: int(depth) + 1,
	})
	var refused *Refused
	if errors.As(err, &refused) { // the chain ends here, visibly: it was counted and logged
		return nil
	}
	return err
}

// batchTier is the worst tier of a batch's runs, and none when the list was cut (EVT-23).
func batchTier(ctx context.Context, tx *store.Tx, payload string) (ci.TrustTier, error) {
	var p batchPayload
	if err := json.Unmarshal([]byte(payload), &p); err != nil || p.Total != int64(len(p.Runs)) || len(p.Runs) == 0 {
		return "", nil //nolint:nilerr // least privilege
	}
	worst := ci.TierTrusted
	for _, r := range p.Runs {
		tier, err := tx.RunTier(ctx, r.RunID)
		if errors.Is(err, sql.ErrNoRows) {
			tier = string(ci.TierUnknown)
		} else if err != nil {
			return "", err
		}
		switch ci.TrustTier(tier) {
		case ci.TierTrusted:
		case "":
			return "", nil
		default:
			worst = ci.TierUnknown
		}
	}
	return worst, nil
}
