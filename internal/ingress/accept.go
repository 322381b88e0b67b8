package ingress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Accepted is the answer to a delivery: it, or the one that it repeats, is durable.
type Accepted struct {
	ID         string // deliveries.id
	DeliveryID string // the sender's, with the routing key before it
	Duplicate  bool
	RunID      string // of the delivery that this one repeats, when it has one
	receivedAt int64
	retried    bool // the earlier one had failed and is processed again
}

// accept stores a delivery and returns when it is durable (ING-9, ING-14). The unique insert decides which of several equal
// deliveries is the first (ING-15). If a worker is free the row is born claimed, so that it need not be found again.
func (s *Service) accept(ctx context.Context, row db.Source, r source.Received, again repeats) (Accepted, error) {
	d, err := s.delivery(row, r)
	if err != nil {
		return Accepted{}, err
	}
	stored, encoding := s.codec.pack(r.Body)
	p := db.InsertDeliveryParams{
		ID: d.ID, OrgID: d.OrgID, DeliveryID: d.DeliveryID, SourceID: d.SourceID, RoutingKey: d.RoutingKey, Kind: d.Kind,
		Event: d.Event, Repo: d.Repo, Status: statusReceived, BodyEncoding: encoding, BodySize: d.BodySize,
		BodySha256: bodyDigest(r.Body), Headers: d.Headers, Decisions: "[]", Body: stored,
	}
	taken := s.queue.reserve()
	if taken {
		p.ClaimedBy, p.Attempts, p.Status = s.d.InstanceID, 1, statusProcessing
	}
	out, err := s.insert(ctx, p, again)
	switch {
	case err != nil || out.Duplicate || out.retried:
		if taken {
			s.queue.cancel()
		}
	case taken:
		d.Attempts = 1
		d.ReceivedAt = out.receivedAt
		s.enqueue(d)
	}
	return out, err
}

// The statuses of a delivery (ING-23).
const (
	statusReceived   = "received"
	statusProcessing = "processing"
	statusProcessed  = "processed"
	statusSkipped    = "skipped"
	statusMissing    = "lockfile_missing"
	statusCorrupt    = "lockfile_corrupt"
	statusFailed     = "failed"
)

// delivery is the row as the pipeline wants it: with the body as it was received.
func (s *Service) delivery(row db.Source, r source.Received) (db.Delivery, error) {
	d := db.Delivery{
		ID: s.d.Env.NewID(), OrgID: row.OrgID, SourceID: row.ID, RoutingKey: row.RoutingKey, Kind: row.Kind, Event: r.Event,
		Repo: row.Repo, Body: r.Body, BodySize: int64(len(r.Body)), ClaimedBy: s.d.InstanceID,
	}
	id := r.ID
	if id == "" {
		id = d.ID
	}
	d.DeliveryID = row.RoutingKey + ":" + id
	headers, err := json.Marshal(r.Headers)
	d.Headers = string(headers)
	return d, err
}

func bodyDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func (s *Service) insert(ctx context.Context, p db.InsertDeliveryParams, again repeats) (Accepted, error) {
	var out Accepted
	err := s.d.Store.Write(ctx, func(tx *store.Tx) error {
		out = Accepted{ID: p.ID, DeliveryID: p.DeliveryID, receivedAt: tx.Now()}
		p.ReceivedAt = tx.Now()
		if p.ClaimedBy != "" {
			p.ClaimedUntil = tx.Now() + s.limits().Claim.Milliseconds()
		} else {
			tx.Notify(store.TopicDeliveries, "")
		}
		n, err := tx.InsertDelivery(ctx, p)
		if err != nil || n == 1 {
			return err
		}
		return s.insertAgain(ctx, tx, p, again, &out)
	})
	if err != nil {
		return Accepted{}, fmt.Errorf("store delivery: %w", err)
	}
	if out.Duplicate {
		s.d.Metrics.DedupHits.Inc()
	} else {
		s.admission.accepted(p.OrgID)
		s.d.Metrics.IngestAdmitted.Inc()
		s.d.Metrics.WebhooksReceived.WithLabelValues(p.Kind, eventLabel(p.Event)).Inc()
	}
	return out, nil
}

// insertAgain is insert for an id that is known.
func (s *Service) insertAgain(ctx context.Context, tx *store.Tx, p db.InsertDeliveryParams, again repeats, out *Accepted) error {
	first, err := tx.CountDuplicateDelivery(ctx, p.OrgID, p.DeliveryID)
	if err != nil {
		return err
	}
	out.ID, out.RunID = first.ID, first.RunID.String
	if again.retries && first.Status == statusFailed {
		out.retried = true
		tx.Notify(store.TopicDeliveries, "")
		_, err := tx.ReplayDelivery(ctx, tx.Now(), p.OrgID, first.ID)
		return err
	}
	limit := tx.Now() - again.withinMs
	if again.forever || first.ReceivedAt > limit {
		out.Duplicate = true
		return nil
	}
	if _, err := tx.RetireDeliveryKey(ctx, p.OrgID, p.DeliveryID, limit); err != nil {
		return err
	}
	out.ID, out.RunID = p.ID, ""
	n, err := tx.InsertDelivery(ctx, p)
	if err == nil && n == 0 {
		return fmt.Errorf("delivery %s: %w", p.DeliveryID, ErrTryAgain)
	}
	return err
}

// eventLabel keeps the metric's label bounded: senders of generic sources choose their own event names.
func eventLabel(event string) string {
	if event == "push" || event == "pull_request" || event == "default" || event == "workflow_dispatch" {
		return event
	}
	return "other"
}
