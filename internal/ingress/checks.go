package ingress

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/kici-go/kici/internal/source"
)

// reports tells whether the source behind a routing key can show commit statuses, so that its runs say what they become.
func (c *Catalog) reports(ctx context.Context, orgID, routingKey string) bool {
	src, err := c.sourceFor(ctx, orgID, routingKey)
	_, ok := src.(source.Reporter)
	return err == nil && ok
}

// Reporter returns who shows the statuses of a source's commits and which (check.Sources): "jobs", "workflows" or "off". A nil one
// shows none: the source is gone, or of a kind that has no place for them.
func (c *Catalog) Reporter(ctx context.Context, orgID, routingKey string) (r source.Reporter, show string, err error) {
	e, err := c.byRoutingKey(ctx, orgID, routingKey)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && e.row.DeletedAt.Valid:
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	var options struct {
		Statuses string `json:"statuses"`
	}
	_ = json.Unmarshal([]byte(e.row.Config), &options) // an adapter that cannot read it says so in e.err
	r, _ = e.source.(source.Reporter)
	return r, options.Statuses, e.err
}
