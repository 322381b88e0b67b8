package read

import (
	"context"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
)

// Sources is every source. Secrets are never part of a source's row.
func (r *Reads) Sources(ctx context.Context, s Scope) (client.SourceList, error) {
	out := client.SourceList{Sources: []client.Source{}}
	err := r.view(ctx, func(q *db.Queries) error {
		rows, err := q.ReadSources(ctx, s.OrgID, s.RoutingKey)
		out.Sources = make([]client.Source, len(rows))
		for i, x := range rows {
			out.Sources[i] = r.source(x, s.OrgID)
		}
		return err
	})
	return out, err
}

// Source is one source, by name, id or routing key.
func (r *Reads) Source(ctx context.Context, s Scope, ref string) (client.Source, error) {
	var rows []db.ReadSourceRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		rows, err = q.ReadSource(ctx, s.OrgID, ref)
		return err
	})
	if err != nil {
		return client.Source{}, err
	}
	if len(rows) == 0 {
		return client.Source{}, fmt.Errorf("source %q %w", ref, ErrNotFound)
	}
	if err := s.check(rows[0].RoutingKey, "this source"); err != nil {
		return client.Source{}, err
	}
	return r.source(db.ReadSourcesRow(rows[0]), s.OrgID), nil
}

// SourceDetail is Source with what was last heard of it, and which secrets it has.
func (r *Reads) SourceDetail(ctx context.Context, s Scope, ref string) (client.Source, error) {
	out, err := r.Source(ctx, s, ref)
	if err != nil {
		return out, err
	}
	heard, err := r.Activities(ctx, s)
	if err != nil {
		return out, err
	}
	a := heard[out.ID]
	if a.Last != nil {
		out.LastDelivery = &client.SourceDelivery{ID: a.Last.ID, Event: a.Last.Event, Status: a.Last.Status, ReceivedAt: a.Last.ReceivedAt}
	}
	if a.NextPoll != nil {
		out.Poll = &client.SourcePoll{LastAt: a.PolledAt, NextAt: a.NextPoll, Failures: a.Failures, Message: a.PollError}
	}
	err = r.view(ctx, func(q *db.Queries) error {
		keys, err := q.SourceSecretKeys(ctx, s.OrgID, ingress.SecretScope(out.ID))
		out.Secrets = make([]client.SourceSecret, len(keys))
		for i, k := range keys {
			out.Secrets[i] = sourceSecret(k)
		}
		return err
	})
	return out, err
}

func sourceSecret(k db.SourceSecretKeysRow) client.SourceSecret {
	out := client.SourceSecret{Key: k.Key, UpdatedAt: client.TimeOf(k.UpdatedAt)}
	if k.Key == source.SecretWebhookOld {
		ends := client.TimeOf(k.UpdatedAt + ingress.OldSecretFor.Milliseconds())
		out.EndsAt = &ends
	}
	return out
}

func (r *Reads) source(x db.ReadSourcesRow, org string) client.Source {
	return client.Source{
		ID: x.ID, Kind: x.Kind, Name: x.Name, RoutingKey: x.RoutingKey, Repo: x.Repo, Enabled: x.Enabled,
		WebhookURL: r.conf.BaseURL() + source.WebhookPath(x.Kind, org, x.Name),
		Config:     rawJSON(x.Config), CreatedAt: client.TimeOf(x.CreatedAt),
	}
}

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	Source, Status, Event string
	Since                 int64
	Cursor                string
	Limit                 int
}

// Deliveries is a page of deliveries, newest first. Filters look as far as those of Runs.
func (r *Reads) Deliveries(ctx context.Context, s Scope, f DeliveryFilter) (client.DeliveryList, error) {
	from, err := parseCursor(f.Cursor, newest)
	if err != nil {
		return client.DeliveryList{}, err
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	var rows []db.ReadDeliveriesRow
	next := ""
	err = r.view(ctx, func(q *db.Queries) (err error) {
		look := lookAt{limit: limit, since: f.Since, all: s.RoutingKey+f.Source+f.Status+f.Event == "", floor: func(p position, n int32) (position, error) {
			x, err := q.ReadDeliveriesFloor(ctx, db.ReadDeliveriesFloorParams{OrgID: s.OrgID, BeforeAt: p.at, BeforeID: p.id, MaxRows: n})
			return position{x.ReceivedAt, x.ID}, err
		}}
		rows, next, err = page(look, from, func(floor position) ([]db.ReadDeliveriesRow, error) {
			return q.ReadDeliveries(ctx, db.ReadDeliveriesParams{
				OrgID: s.OrgID, RoutingKey: s.RoutingKey, BeforeAt: from.at, BeforeID: from.id, FloorAt: floor.at, FloorID: floor.id,
				Source: f.Source, Status: f.Status, Event: f.Event, MaxRows: int32(limit + 1),
			})
		}, func(x db.ReadDeliveriesRow) position { return position{x.ReceivedAt, x.ID} })
		return err
	})
	if err != nil {
		return client.DeliveryList{}, fmt.Errorf("read deliveries: %w", err)
	}
	out := client.DeliveryList{Deliveries: make([]client.Delivery, len(rows)), NextCursor: next}
	for i, x := range rows {
		out.Deliveries[i] = deliveryOf(x)
	}
	return out, nil
}

// Delivery is one delivery with the decision for every workflow, and with what was sent when payload is true. ref is its id
// or the sender's.
func (r *Reads) Delivery(ctx context.Context, s Scope, ref string, payload bool) (client.Delivery, error) {
	var out client.Delivery
	err := r.view(ctx, func(q *db.Queries) error {
		rows, err := q.ReadDelivery(ctx, s.OrgID, ref)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("delivery %q %w", ref, ErrNotFound)
		}
		if err := s.check(rows[0].RoutingKey, "this delivery"); err != nil {
			return err
		}
		out = deliveryOf(db.ReadDeliveriesRow(rows[0]))
		extra, err := q.ReadDeliveryExtra(ctx, out.ID)
		if err != nil {
			return err
		}
		out.Decisions = rawJSON(extra.Decisions)
		if !payload {
			return nil
		}
		out.Headers = rawJSON(extra.Headers)
		body, err := q.ReadDeliveryBody(ctx, out.ID)
		if err != nil {
			return err
		}
		if body.BodyEncoding == "omitted" { // ING-22
			out.Omitted = "size_exceeded"
			return nil
		}
		text, err := decodeBody(body.Body, body.BodyEncoding)
		out.Payload = &text
		return err
	})
	return out, err
}

// maxPayload bounds what a stored body may grow to; the webhook endpoint admits less.
const maxPayload = 64 << 20

func decodeBody(body []byte, encoding string) (string, error) {
	switch encoding {
	case "":
		return string(body), nil
	case "zstd":
		d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPayload), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return "", err
		}
		defer d.Close()
		out, err := d.DecodeAll(body, nil)
		if err != nil {
			return "", fmt.Errorf("decode stored body: %w", err)
		}
		return string(out), nil
	}
	return "", errors.New("decode stored body: unknown encoding " + encoding)
}

func deliveryOf(x db.ReadDeliveriesRow) client.Delivery {
	d := client.Delivery{
		ID: x.ID, DeliveryID: x.DeliveryID, Source: x.SourceName.String, Event: x.Event, Action: x.Action, Repo: x.Repo,
		Ref: x.Ref, SHA: x.Sha, Status: x.Status, Duplicates: x.Duplicates, Attempts: x.Attempts, Matched: x.Matched,
		RunID: x.RunID.String, Error: x.Error, Size: x.BodySize, ReceivedAt: client.TimeOf(x.ReceivedAt),
		FinishedAt: timePtr(x.FinishedAt),
	}
	if !x.FinishedAt.Valid && x.Status == "received" && x.Error != "" {
		next := client.TimeOf(x.NextAttemptAt)
		d.NextTryAt = &next
	}
	if !x.SourceName.Valid {
		d.Source = x.Kind // manual starts have no source
	}
	return d
}
