package scaler

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store/db"
)

// Bounds of a look at the host.
const (
	listTimeout    = 10 * time.Second
	prepareTimeout = 2 * time.Minute
	prepareRetry   = 30 * time.Second
)

// tick looks once: observe, decide, record, act.
func (n *Node) tick(ctx context.Context) error {
	if err := n.turn.take(ctx); err != nil {
		return err
	}
	defer n.turn.give()
	n.prepare(ctx)
	busy := n.ops.snapshot() // before the rows: what ends in between is seen ended there, too
	rows, err := n.d.Store.Read().NodeAgents(ctx, n.id)
	if err != nil {
		return fmt.Errorf("read agents: %w", err)
	}
	n.lookAtDisks(ctx, rows)
	n.collect()
	n.settlePools(ctx, rows)
	if err := n.publish(ctx, rows); err != nil {
		return err
	}
	draining, err := n.draining(ctx)
	if err != nil {
		return err
	}
	now := n.d.Env.NowMs()
	v := View{
		Now: now, Closed: draining || n.closed, Rows: viewRows(rows),
		Scalers: n.list(ctx), Busy: busy, RetryAt: n.retries(now), Dead: n.dead,
	}
	n.noteDead(&v)
	n.orphans.settle(v)
	plan := Reconcile(v)
	jobs, err := n.record(ctx, plan.Actions, rows)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		n.act(job)
	}
	n.metrics.use(n.order, rows)
	n.metrics.pools(n.warmTargets(), rows)
	n.schedule(v.Now, plan.Next)
	return nil
}

// list asks every backend what there is. A failed listing proves nothing.
func (n *Node) list(ctx context.Context) map[ScalerID]ScalerView {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := make(map[ScalerID]ScalerView, len(n.scalers))
	for id, m := range n.scalers {
		s := ScalerView{Refuses: m.refuses(), MaxSpawns: 1}
		if m.entry != nil {
			s.MaxSpawns = m.entry.MaxConcurrentSpawns
		}
		things, err := m.backend.List(ctx)
		if err != nil {
			n.log.Warn("list agents on the host", "scaler", id.Name, "err", err)
		}
		s.Things, s.Listed = things, err == nil
		out[id] = s
	}
	return out
}

// noteDead remembers since when the thing of a registered agent has been dead.
func (n *Node) noteDead(v *View) {
	running := map[string]bool{}
	for _, s := range v.Scalers {
		for _, t := range s.Things {
			running[t.AgentID] = t.Running
		}
	}
	dead := map[string]int64{}
	for _, r := range v.Rows {
		if r.State == ci.AgentOnline || r.State == ci.AgentDraining {
			if !running[r.ID] && v.Scalers[r.Scaler].Listed {
				dead[r.ID] = v.Now
				if since, ok := n.dead[r.ID]; ok {
					dead[r.ID] = since
				}
			}
		}
	}
	n.dead, v.Dead = dead, dead
}

func viewRows(rows []db.NodeAgentsRow) []Row {
	out := make([]Row, len(rows))
	for i, r := range rows {
		out[i] = Row{
			ID: r.ID, Scaler: ScalerID{r.Scaler, r.Type}, State: ci.AgentState(r.State), Launch: json.RawMessage(r.Launch),
			RegisterBy: r.RegisterBy.Int64, Registered: r.RegisteredAt.Valid, Session: r.SessionID != "", JobsDone: r.JobsDone,
		}
	}
	return out
}

// draining reads whether this instance drains, and heals its published caps.
func (n *Node) draining(ctx context.Context) (bool, error) {
	self, err := n.d.Store.Read().ClusterInstance(ctx, n.id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // not announced yet
	}
	if err != nil {
		return false, fmt.Errorf("read own instance: %w", err)
	}
	c := n.config
	if self.GlobalMaxAgents == c.GlobalMaxAgents && self.GlobalMaxCpuMilli == c.GlobalCap.CPUMilli && self.GlobalMaxMemBytes == c.GlobalCap.MemBytes {
		return self.Draining, nil
	}
	return self.Draining, n.publishCaps(ctx)
}

// prepare prepares hosts that are not prepared yet; a failure makes only that scaler not ready.
func (n *Node) prepare(ctx context.Context) {
	for _, id := range n.order {
		m := n.scalers[id]
		p, ok := m.backend.(backend.Preparer)
		if m.prepared || m.entry == nil || n.d.Env.NowMs() < m.retryAt {
			continue
		}
		was := m.notReady
		m.prepared, m.notReady = true, ""
		if ok {
			pctx, cancel := context.WithTimeout(ctx, prepareTimeout)
			if err := p.Prepare(pctx); err != nil {
				m.prepared, m.notReady = false, err.Error()
				m.retryAt = n.d.Env.NowMs() + prepareRetry.Milliseconds()
				n.log.Error("scaler is not ready", "scaler", id.Name, "err", err)
			}
			cancel()
		}
		if m.notReady != was {
			n.ready = false // publish again
		}
	}
}

// schedule wakes the loop for the next deadline.
func (n *Node) schedule(now, next int64) {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if next > now {
		n.timer = time.AfterFunc(time.Duration(next-now)*time.Millisecond, n.wake.Signal)
	}
}

// forget ends what Run has begun: nothing wakes the loop any more, and new backends are not listened to.
func (n *Node) forget() {
	if n.turn.take(context.Background()) != nil {
		return
	}
	defer n.turn.give()
	n.schedule(0, 0)
	n.watchNew = nil
}

// left counts what EndAll still waits for.
func (n *Node) left(ctx context.Context) (int, error) {
	rows, err := n.d.Store.Read().NodeAgents(ctx, n.id)
	if err != nil {
		return 0, err
	}
	if err := n.turn.take(ctx); err != nil {
		return 0, err
	}
	defer n.turn.give()
	left := len(rows) + len(n.ops.snapshot())
	for _, s := range n.list(ctx) {
		left += len(s.Things)
		if !s.Listed {
			left++
		}
	}
	return left, nil
}

func findRow(rows []db.NodeAgentsRow, id string) *db.NodeAgentsRow {
	i := slices.IndexFunc(rows, func(r db.NodeAgentsRow) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &rows[i]
}
