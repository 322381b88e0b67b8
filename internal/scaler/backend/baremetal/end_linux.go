package baremetal

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kici-go/kici/internal/cgroup"
)

// endLeft ends what the agent itself has started and not ended.
func (b *Backend) endLeft(ctx context.Context, id string, r record) (found bool, err error) {
	if r.Boot != b.boot {
		return false, nil // another boot: nothing of it can run
	}
	b.loosen(ctx, r)
	if m := b.managers[r.Manager]; m != nil && r.Unit != "" {
		found, err = m.stopUnit(ctx, r.Unit)
		stray := b.cgroups != "" && filepath.Dir(r.Cgroup) == b.cgroups // a leaf outside of the unit
		if err == nil && !stray || err != nil && !errors.Is(err, errNoManager) {
			return found, err
		}
	}
	var left bool
	if r.Cgroup != "" {
		left, err = endLeaf(ctx, r.Cgroup)
	} else {
		left, err = sweep(ctx, id)
	}
	found = found || left
	if err != nil {
		return found, err
	}
	folders, err := removeFolders(ctx, r)
	return found || folders, err
}

// loosen takes an agent's limits away, which would only slow its end, and lets it make no process any more.
func (b *Backend) loosen(ctx context.Context, r record) {
	if m := b.managers[r.Manager]; m != nil && r.Unit != "" {
		m.loosenUnit(ctx, r.Unit)
		return
	}
	if b.enforces() != nil || len(r.Folders) > 0 {
		cgroup.Place{Unified: r.Cgroup, Legacy: r.Folders}.Loosen()
	}
}
