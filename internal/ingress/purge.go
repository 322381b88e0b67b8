package ingress

import (
	"context"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// PurgeRequest says which sources are stale: those of the organisation that have been off for Idle, and to which nothing has come
// since (ADM-13).
type PurgeRequest struct {
	OrgID  string
	Idle   time.Duration
	DryRun bool
}

// PurgeStale removes stale sources, each as Delete does, or with DryRun only says which they are.
func (c *Catalog) PurgeStale(ctx context.Context, req PurgeRequest) (stale []db.Source, err error) {
	err = c.d.Store.Write(ctx, func(tx *store.Tx) error {
		var err error
		stale, err = tx.StaleSources(ctx, req.OrgID, tx.Now()-req.Idle.Milliseconds())
		if err != nil || req.DryRun {
			return err
		}
		for _, row := range stale {
			if _, err := c.remove(ctx, tx, row); err != nil {
				return err
			}
		}
		if len(stale) > 0 {
			tx.Notify(store.TopicSources, req.OrgID)
		}
		return nil
	})
	return stale, err
}
