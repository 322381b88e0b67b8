package secret

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

const orphansABatch = 500

// CleanOrphans removes the secrets of sources that are gone. Deleting a source deletes them too; this finds what a fault has
// left. It is a duty of the leader.
func (s *Service) CleanOrphans(ctx context.Context, term int64) (report []string, err error) {
	var total int64
	for {
		var found []db.OrphanSourceSecretsRow
		err := s.st.Lead(ctx, term, func(tx *store.Tx) (err error) {
			if found, err = tx.OrphanSourceSecrets(ctx, orphansABatch); err != nil {
				return err
			}
			for _, o := range found {
				if _, err := tx.DeleteOrphanSecret(ctx, o.OrgID, o.Scope, o.Key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("delete orphaned secrets: %w", err)
		}
		total += int64(len(found))
		if len(found) < orphansABatch {
			break
		}
	}
	if total > 0 {
		report = append(report, fmt.Sprintf("deleted %d secrets of sources that are gone", total))
	}
	return report, nil
}
