package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"golang.org/x/sync/errgroup"
)

const (
	pulseEvery = time.Second
	sweepEvery = 10 * time.Second
	stopWithin = 5 * time.Second
)

// Run delivers and watches until ctx ends. It then closes every connection with "going away" and leaves the rows as they
// are, so that the next start finds its agents (DESIGN §9).
func (f *Fleet) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.deliverLoop(ctx) })
	group.Go(func() error { return f.every(ctx, pulseEvery, f.pulse) })
	group.Go(func() error { return f.every(ctx, sweepEvery, f.sweep) })
	group.Go(func() error { return f.every(ctx, f.Settings.BeatEvery, f.flushBeats) })
	err := group.Wait()
	f.stop()
	return err
}

func (f *Fleet) every(ctx context.Context, d time.Duration, fn func(context.Context) error) error {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			f.Log.Error("watch agents", "err", err)
		}
	}
}

func (f *Fleet) stop() {
	f.mu.Lock()
	f.stopping = true
	open := make([]*session, 0, len(f.all))
	for s := range f.all {
		open = append(open, s)
	}
	f.mu.Unlock()
	for _, s := range open {
		s.close(ending{wire.CloseGoingAway, "the server stops", "shutdown"})
	}
	done := make(chan struct{})
	go func() { f.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopWithin):
		for _, s := range open {
			_ = s.conn.CloseNow()
		}
		<-done
	}
}

// pulse sends heartbeats that are due and closes what has been silent for too long (AG-16).
func (f *Fleet) pulse(context.Context) error {
	now := f.Env.NowMs()
	for _, s := range f.sessions() {
		silent := time.Duration(now-s.lastSeen.Load()) * time.Millisecond
		switch {
		case silent >= f.Settings.Dead:
			s.close(ending{wire.CloseHeartbeat, "no heartbeat", "heartbeat"})
		case silent >= f.Settings.Unhealthy:
			if !s.unhealthy.Swap(true) {
				f.Log.Warn("agent is silent", "agent_id", s.agentID, "seconds", int(silent.Seconds()))
			}
		default:
			s.unhealthy.Store(false)
		}
		if now-s.lastBeat.Load() >= f.Settings.Heartbeat.Milliseconds() {
			s.lastBeat.Store(now)
			s.send(wire.TypeHeartbeat, wire.Heartbeat{Timestamp: now})
		}
	}
	return nil
}

// beats are job heartbeats on their way to the store.
type beats struct {
	mu      sync.Mutex
	pending map[jobKey]*session
}

func (b *beats) add(key jobKey, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) < 100_000 {
		b.pending[key] = s
	}
}

func (b *beats) take() map[jobKey]*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.pending
	b.pending = map[jobKey]*session{}
	return out
}

// flushBeats writes them, only for jobs that the sender holds (STL-9), and tells an agent that works on a job which is not its
// own any more.
func (f *Fleet) flushBeats(ctx context.Context) error {
	pending := f.beats.take()
	if len(pending) == 0 {
		return nil
	}
	var lost []jobKey
	err := f.Store.Write(ctx, func(tx *store.Tx) error {
		lost = lost[:0]
		for key, s := range pending {
			beat := db.FleetBeatParams{ID: key.id, Attempt: int64(key.attempt), Agent: s.agentID}
			beat.Now.Int64, beat.Now.Valid = tx.Now(), true
			n, err := tx.FleetBeat(ctx, beat)
			if err != nil {
				return fmt.Errorf("note job heartbeat: %w", err)
			}
			if n > 0 {
				continue
			}
			if owner, _, err := ownerOf(ctx, tx, s.agentID, key); err != nil {
				return err
			} else if owner != ownerMine && owner != ownerEnded {
				lost = append(lost, key)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range lost {
		pending[key].send(wire.TypeReportAck, wire.ReportAck{JobID: key.id, Attempt: key.attempt, Gone: true})
	}
	return nil
}

// Adopt clears the sessions that an earlier process of this coordinator left behind. Called once before it is ready: the
// grace of their agents counts from here (D17).
func (f *Fleet) Adopt(ctx context.Context) error {
	f.readyAt.Store(f.Env.NowMs())
	return f.orphans(ctx, true)
}

// orphans takes the links of agents whose coordinator is dead, or, with past, an earlier process of this one.
func (f *Fleet) orphans(ctx context.Context, past bool) error {
	for {
		var rows []db.FleetOrphansRow
		err := f.Store.Write(ctx, func(tx *store.Tx) (err error) {
			rows, err = tx.FleetOrphans(ctx, f.InstanceID, past, tx.Now()-ci.InstanceTimeout.Milliseconds())
			if err != nil {
				return fmt.Errorf("read orphaned sessions: %w", err)
			}
			for _, row := range rows {
				if _, err := f.loseLink(ctx, tx, row.ID, row.SessionID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		f.Log.Info("waiting for agents of an ended server", "agents", len(rows))
	}
}

// reconcileLinks compares the sessions here with what the rows say of them. Where another server has taken an agent's link, because this
// one was away for so long that it was held for dead, the agent still sits here and waits: it is told to connect again. A row whose
// session has ended unnoticed, because the store was away, loses its link at the second look.
func (f *Fleet) reconcileLinks(ctx context.Context) error {
	sessions := f.sessions() // before the rows: each of them has been written by now
	rows, err := f.Store.Read().FleetLinks(ctx, f.InstanceID)
	if err != nil {
		return fmt.Errorf("read links: %w", err)
	}
	byRow := make(map[string]string, len(rows))
	missed := map[string]string{}
	for _, row := range rows {
		byRow[row.ID] = row.SessionID
		if s := f.session(row.ID); s == nil || s.id != row.SessionID {
			missed[row.ID] = row.SessionID
		}
	}
	for _, s := range sessions {
		if _, here := byRow[s.agentID]; here { // with another session it is about to be superseded
			continue
		}
		if err := f.closeTaken(ctx, s); err != nil {
			return err
		}
	}
	for id, session := range missed {
		if f.missed[id] != session {
			continue
		}
		err := f.Store.Write(ctx, func(tx *store.Tx) error {
			_, err := f.loseLink(ctx, tx, id, session)
			return err
		})
		if err != nil {
			return err
		}
	}
	f.missed = missed
	return nil
}

// closeTaken closes a session whose agent is not this server's any more, so that the agent connects again, unless it has done so elsewhere.
func (f *Fleet) closeTaken(ctx context.Context, s *session) error {
	row, err := f.Store.Read().FleetAgent(ctx, s.agentID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read agent: %w", err)
	}
	switch {
	case row.SessionID == s.id: // written since
	case row.SessionID != "":
		s.close(ending{wire.CloseSuperseded, "the agent has connected to another server", "superseded"})
	default:
		s.close(ending{wire.CloseHeartbeat, "this server was held for dead; connect again", "lost"})
	}
	return nil
}

// sweep ends agents that nobody waits for any more.
func (f *Fleet) sweep(ctx context.Context) error {
	if err := f.reconcileLinks(ctx); err != nil {
		return err
	}
	if err := f.orphans(ctx, false); err != nil {
		return err
	}
	if err := f.revoked(ctx); err != nil {
		return err
	}
	now := f.Env.NowMs()
	if grace := f.Settings.Grace.Milliseconds(); now >= f.readyAt.Load()+grace {
		rows, err := f.Store.Read().FleetAbsent(ctx, now-grace)
		if err != nil {
			return fmt.Errorf("read absent agents: %w", err)
		}
		for _, row := range rows {
			reason := ci.GoneLost
			if row.JobsDone > 0 {
				reason = ci.GoneJobComplete
			}
			if row.Type == typeStatic {
				reason = ci.GoneDisconnected
			}
			if err := f.endAgent(ctx, endedAgent{row.ID, row.NodeID, row.Type, reason}); err != nil {
				return err
			}
		}
	}
	rows, err := f.Store.Read().FleetLingering(ctx, now-f.Settings.Linger.Milliseconds())
	if err != nil {
		return fmt.Errorf("read lingering agents: %w", err)
	}
	for _, row := range rows {
		if err := f.endAgent(ctx, endedAgent{row.ID, row.NodeID, "", ci.GoneJobComplete}); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) endAgent(ctx context.Context, a endedAgent) error {
	return f.Store.Write(ctx, func(tx *store.Tx) error { return endAgent(ctx, tx, a) })
}

type endedAgent struct{ id, nodeID, kind, reason string }

// endAgent gives the compute of a managed agent to its node to remove; a static one has none.
func endAgent(ctx context.Context, tx *store.Tx, a endedAgent) error {
	state := ci.AgentEnding
	if a.kind == typeStatic {
		state = ci.AgentGone
	}
	n, err := tx.FleetEndAgent(ctx, db.FleetEndAgentParams{ID: a.id, State: string(state), Now: tx.Now(), Reason: a.reason})
	if err != nil {
		return fmt.Errorf("end agent: %w", err)
	}
	if n > 0 {
		tx.Notify(store.TopicAgents, a.nodeID)
		tx.Notify(store.TopicQueue, "")
	}
	return nil
}
