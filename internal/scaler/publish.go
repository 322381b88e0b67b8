package scaler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// publish writes the scalers of this node as rows for placement (D16) when they are not there yet, and takes up or drops
// retiring ones: names that only live agents remember.
func (n *Node) publish(ctx context.Context, rows []db.NodeAgentsRow) error {
	adopted, err := n.adoptRetiring(ctx, rows)
	if err != nil {
		return err
	}
	if dropped := n.dropRetired(ctx, rows); adopted || dropped {
		n.ready = false
	}
	if n.ready {
		return nil
	}
	puts := make([]db.NodePutScalerParams, 0, len(n.order))
	names := map[string]bool{}
	for _, id := range n.order {
		m := n.scalers[id]
		if names[id.Name] {
			continue // a retiring type under a configured name
		}
		names[id.Name] = true
		put, err := n.row(m)
		if err != nil {
			return err
		}
		puts = append(puts, put)
	}
	err = n.d.Store.Write(ctx, func(tx *store.Tx) error {
		for _, p := range puts {
			p.Now = tx.Now()
			if err := tx.NodePutScaler(ctx, p); err != nil {
				return err
			}
		}
		old, err := tx.NodeScalers(ctx, n.id)
		if err != nil {
			return err
		}
		for _, s := range old {
			if !names[s.Name] {
				if _, err := tx.NodeDeleteScaler(ctx, n.id, s.Name); err != nil {
					return err
				}
			}
		}
		if err := n.setCaps(ctx, tx); err != nil {
			return err
		}
		tx.Notify(store.TopicScalers, n.id)
		tx.Notify(store.TopicQueue, "")
		return nil
	})
	if err != nil {
		return fmt.Errorf("publish scalers: %w", err)
	}
	n.ready = true
	return nil
}

func (n *Node) row(m *managed) (db.NodePutScalerParams, error) {
	p := db.NodePutScalerParams{
		NodeID: n.id, Name: m.id.Name, Type: m.id.Type, Position: int64(m.position), Retiring: m.entry == nil,
		Ready: m.notReady == "" && m.full == "", NotReady: cmp.Or(m.notReady, m.full),
	}
	can := m.backend.Capabilities()
	spec := placement.ScalerSpec{LabelSets: m.offers, MaxConcurrentSpawns: 1, Protections: can.Protections, JobImages: can.JobImages}
	if e := m.entry; e != nil {
		spec.MaxConcurrentSpawns = e.MaxConcurrentSpawns
		if e.WarmPool.Enabled {
			spec.Warm = placement.WarmPool{Size: e.WarmPool.Size, IdleMs: e.WarmPool.IdleSeconds * 1000}
		}
		if e.MachinePool != "" {
			spec.Pool = placement.MachinePool{Name: e.MachinePool, Cap: n.config.Pools[e.MachinePool], Others: n.pools[e.MachinePool].Others}
		}
		p.MaxAgents, p.CapCpuMilli, p.CapMemBytes = e.MaxAgents, e.Cap.CPUMilli, e.Cap.MemBytes
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return p, fmt.Errorf("encode scaler %s: %w", m.id.Name, err)
	}
	p.Spec = string(text)
	return p, nil
}

func (n *Node) publishCaps(ctx context.Context) error {
	err := n.d.Store.Write(ctx, func(tx *store.Tx) error {
		tx.Notify(store.TopicQueue, "")
		return n.setCaps(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("publish caps: %w", err)
	}
	return nil
}

// setCaps changes nothing while this instance has not announced itself; the next tick tries again.
func (n *Node) setCaps(ctx context.Context, tx *store.Tx) error {
	c := n.config
	_, err := tx.SetInstanceCaps(ctx, db.SetInstanceCapsParams{
		MaxAgents: c.GlobalMaxAgents, MaxCpuMilli: c.GlobalCap.CPUMilli, MaxMemBytes: c.GlobalCap.MemBytes, InstanceID: n.id,
	})
	return err
}

// adoptRetiring makes a backend for every scaler that the configuration no longer names and that still has agents (MG-47), or that was
// retiring when the process before this one ended.
func (n *Node) adoptRetiring(ctx context.Context, rows []db.NodeAgentsRow) (changed bool, err error) {
	var ids []ScalerID
	for _, r := range rows {
		ids = append(ids, ScalerID{r.Scaler, r.Type})
	}
	if !n.adopted {
		old, err := n.d.Store.Read().NodeScalers(ctx, n.id)
		if err != nil {
			return false, fmt.Errorf("read scalers: %w", err)
		}
		for _, s := range old {
			ids = append(ids, ScalerID{s.Name, s.Type})
		}
		n.adopted = true
	}
	for _, id := range ids {
		changed = n.scalers[id] == nil && n.retire(id) || changed
	}
	return changed, nil
}

// retire makes a backend that only ends and lists.
func (n *Node) retire(id ScalerID) bool {
	kind, ok := n.kind(id.Type)
	if !ok {
		n.log.Error("a scaler of a backend that this version does not have", "scaler", id.Name, "type", id.Type)
		return false
	}
	b, err := kind.New(backend.Entry{Name: id.Name, Retiring: true}, n.d.Host)
	if err != nil {
		n.log.Error("take up a removed scaler", "scaler", id.Name, "err", err)
		return false
	}
	n.log.Info("scaler is retiring", "scaler", id.Name, "type", id.Type)
	n.add(&managed{id: id, backend: b, position: len(n.order)})
	return true
}

// dropRetired forgets retiring scalers that have had no agent for a while: a launch that was given up may still come to something.
func (n *Node) dropRetired(ctx context.Context, rows []db.NodeAgentsRow) (changed bool) {
	used := map[ScalerID]bool{}
	for _, r := range rows {
		used[ScalerID{r.Scaler, r.Type}] = true
	}
	kept := n.order[:0]
	for _, id := range n.order {
		m := n.scalers[id]
		now := n.d.Env.NowMs()
		switch {
		case m.entry != nil || used[id]:
			m.quiet = 0
		case m.quiet == 0:
			m.quiet = now
		}
		if m.quiet == 0 || now < m.quiet+n.d.Settings.RetireGrace.Milliseconds() {
			kept = append(kept, id)
			continue
		}
		n.log.Info("scaler has retired", "scaler", id.Name)
		n.sweep(ctx, m)
		n.release(m)
		delete(n.scalers, id)
		changed = true
	}
	n.order = kept
	return changed
}

// sweep removes what a scaler that has retired has left beside its agents.
func (n *Node) sweep(ctx context.Context, m *managed) {
	s, ok := m.backend.(backend.Sweeper)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := s.Sweep(ctx); err != nil {
		n.log.Warn("sweep after a scaler", "scaler", m.id.Name, "err", err)
	}
}
