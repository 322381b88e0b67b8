package ingress

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// outcome is what a delivery leads to, before it is written down.
type outcome struct {
	status    string
	err       string // for people
	event     ci.Event
	decisions []decision
	runs      []PlannedRun
	matched   int
	sync      *syncPlan
}

// decision is why a workflow was started or not, as stored with the delivery (WF-11).
type decision struct {
	Repo     string           `json:"repo,omitempty"` // where it is not the delivery's own
	Workflow string           `json:"workflow"`
	Matched  bool             `json:"matched"`
	Trigger  string           `json:"trigger,omitempty"`
	Degraded bool             `json:"degraded,omitempty"`
	Global   bool             `json:"global,omitempty"` // it is of another repository and follows this one
	Reason   string           `json:"reason,omitempty"` // why it was not started, where no check says so
	Checks   []workflow.Check `json:"checks,omitempty"`
}

// finish writes everything down in one transaction: runs, registrations, outcome. It writes nothing when the claim is lost.
func (s *Service) finish(ctx context.Context, d db.Delivery, out outcome) error {
	p := db.FinishDeliveryParams{
		Status: out.status, Matched: int64(out.matched), Error: short(out.err, maxReason), Decisions: encodeDecisions(out.decisions),
		Action: out.event.Action, Repo: out.event.Repo, Ref: out.event.Ref, Sha: out.event.SHA,
		ID: d.ID, ClaimedBy: s.d.InstanceID, Attempt: d.Attempts,
	}
	if p.Repo == "" {
		p.Repo = d.Repo
	}
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		if err := s.applySync(ctx, tx, out.sync); err != nil {
			return err
		}
		p.Now, p.RunID = sql.NullInt64{Int64: tx.Now(), Valid: true}, sql.NullString{}
		for _, run := range out.runs {
			id, _, err := run.Insert(ctx, tx)
			if err != nil {
				return s.failed("create", err)
			}
			if !p.RunID.Valid {
				p.RunID = sql.NullString{String: id, Valid: true}
			}
		}
		if recordedEvent(d, out) {
			head := db.SetSourceHeadParams{SourceID: d.SourceID, Ref: out.event.Ref, Sha: out.event.SHA, SeenAt: d.ReceivedAt}
			if _, err := tx.SetSourceHead(ctx, head); err != nil {
				return err
			}
		}
		if forgotten(d, out, s.limits().KeptBytes) {
			if err := tx.DropDeliveryBody(ctx, d.ID); err != nil {
				return err
			}
		}
		n, err := tx.FinishDelivery(ctx, p)
		if err == nil && n == 0 {
			return errLostClaim
		}
		return err
	})
	if err == nil {
		s.d.Metrics.WebhooksProcessed.WithLabelValues(out.status).Inc()
	}
	return err
}

// forgotten tells whether the body of a delivery that is done is too large to stay (ING-22). One that failed keeps it: it may be
// processed again.
func forgotten(d db.Delivery, out outcome, most int64) bool {
	return d.BodySize > most && out.status != statusFailed
}

// maxDecisions bounds what is stored with a delivery; beyond it the checks of workflows that did not match are left out.
const maxDecisions = 256 << 10

func encodeDecisions(all []decision) string {
	if len(all) == 0 {
		return "[]"
	}
	text, err := json.Marshal(all)
	if err == nil && len(text) > maxDecisions {
		for i := range all {
			all[i].Checks = nil
		}
		text, err = json.Marshal(all)
	}
	if err != nil {
		return "[]"
	}
	return string(text)
}
