package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
)

// Identity names the cluster: the id for ever, the name for people and for what backends create (CLU-2, CLU-3).
type Identity struct{ ID, Name string }

const (
	metaID   = "cluster_id"
	metaName = "cluster_name"
)

var clusterName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// EnsureIdentity returns the stored identity; the first start makes it, with the given name or cluster-<6 hex>.
func EnsureIdentity(ctx context.Context, st *store.Store, name string) (Identity, error) {
	if name != "" && !clusterName().MatchString(name) {
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

// Sentinel is the object by which a storage says whose it is.
const Sentinel = ".kici-cluster-id"

// ErrForeign says that a storage belongs to another cluster.
var ErrForeign = errors.New("the stored files belong to another cluster")

type objects interface {
	Get(key string) (*os.File, error)
	Put(ctx context.Context, key string, r io.Reader) (int64, error)
}

// ClaimStorage checks that a storage is this cluster's; one that nobody has claimed becomes its (CLU-2).
func ClaimStorage(ctx context.Context, o objects, id Identity) error {
	f, err := o.Get(Sentinel)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = o.Put(ctx, Sentinel, strings.NewReader(id.ID+"\n"))
		return err
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", Sentinel, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return fmt.Errorf("read %s: %w", Sentinel, err)
	}
	if owner := strings.TrimSpace(string(text)); owner != id.ID {
		return fmt.Errorf("%w: %s, and the database is that of cluster %s (%s)", ErrForeign, owner, id.ID, id.Name)
	}
	return nil
}
