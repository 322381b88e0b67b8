package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
)

// Identity names the cluster: the id for ever, the name for people and for what backends create (CLU-2, CLU-3).
type Identity struct{ ID, Name string }

const (
	metaID   = "cluster_id"
	metaName = "cluster_name"
)

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// EnsureIdentity returns the stored identity; the first start makes it, with the given name or cluster-<6 hex>.
func EnsureIdentity(ctx context.Context, st *store.Store, name string) (Identity, error) {
	if name != "" && !clusterName.MatchString(name) {
		return Identity{}, fmt.Errorf("cluster name %q: use 1 to 63 lower-case letters, digits and inner hyphens", name)
	}
	if name == "" {
		name = "cluster-" + ci.RandomHex(3)
	}
	var id Identity
	err := st.Write(ctx, func(tx *store.Tx) error {
		err := errors.Join(tx.InsertClusterMeta(ctx, metaID, ci.NewID()), tx.InsertClusterMeta(ctx, metaName, name))
		if err != nil {
			return err
		}
		if id.ID, err = tx.ClusterMeta(ctx, metaID); err != nil {
			return err
		}
		id.Name, err = tx.ClusterMeta(ctx, metaName)
		return err
	})
	if err != nil {
		return Identity{}, fmt.Errorf("read cluster identity: %w", err)
	}
	return id, nil
}
