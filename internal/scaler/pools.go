package scaler

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/scaler/machinepool"
	"github.com/kici-go/kici/internal/store/db"
)

// settlePools makes the reservations of this node in machine pools those of its live agents, and lets placement know what the others of this
// machine use. What cannot be done now is done at the next look (MG-11).
func (n *Node) settlePools(ctx context.Context, rows []db.NodeAgentsRow) {
	if len(n.config.Pools) == 0 && len(n.pools) == 0 && n.settled {
		return
	}
	live := map[string]machinepool.Claim{}
	for _, r := range rows {
		if r.Launch == "" || r.Launch == noLaunch {
			continue // it was never started and has nothing
		}
		c := machinepool.Claim{Ask: ci.Resources{CPUMilli: r.CpuMilli, MemBytes: r.MemBytes}}
		if m := n.scalers[ScalerID{r.Scaler, r.Type}]; m != nil && m.entry != nil {
			c.Pool = m.entry.MachinePool
		}
		live[r.ID] = c
	}
	use, err := n.d.Pools.Settle(ctx, n.config.Pools, live)
	n.unsettled = map[string]bool{}
	for pool := range n.config.Pools {
		_, ok := use[pool]
		n.unsettled[pool] = !ok
	}
	if err != nil {
		n.log.Warn("settle machine pools", "err", err)
		return
	}
	n.settled = true
	if !maps.EqualFunc(use, n.pools, func(a, b machinepool.Use) bool { return a.Others == b.Others }) {
		n.ready = false // placement counts with it
	}
	n.pools = use
}

// reserve takes the room of a launch in its scaler's machine pool. It is repeatable, and what no row stands for is given back at the next
// look.
func (n *Node) reserve(ctx context.Context, j *job) error {
	pool := j.scaler.entry.MachinePool
	if pool == "" {
		return nil
	}
	if n.unsettled[pool] { // each launch would wait for it as long as this look has
		return fmt.Errorf("%w: machine pool %s cannot be used now; the server's log says why", backend.ErrNotReady, pool)
	}
	ask := ci.Resources{CPUMilli: j.row.CpuMilli, MemBytes: j.row.MemBytes}
	err := n.d.Pools.Reserve(ctx, pool, n.config.Pools[pool], j.AgentID, ask)
	switch {
	case errors.Is(err, machinepool.ErrFull):
		return fmt.Errorf("%w: %w", backend.ErrNoCapacity, err)
	case err != nil:
		return fmt.Errorf("%w: machine pool %s: %w", backend.ErrNotReady, pool, err)
	}
	return nil
}
