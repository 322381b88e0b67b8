package dispatch

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// placer is the placement loop of one term. Only its own goroutine touches it.
type placer struct {
	d       *Dispatcher
	term    int64
	cache   *cache
	reasons map[string]string // by shape, as stored; nil until read

	counted   map[string]db.DispatchShapesRow // nil to count at the next pass
	countedAt int64
	prunedAt  int64 // of the history of reasons
}

func (d *Dispatcher) placer(term int64) *placer { return &placer{d: d, term: term, cache: newCache()} }

// tick is one pass: read, decide, write.
func (p *placer) tick(ctx context.Context) error {
	v, err := p.read(ctx)
	if err != nil {
		return err
	}
	decisions := placement.Decide(v.snapshot)
	if err := p.move(ctx, v.snapshot, decisions); err != nil {
		return fmt.Errorf("write decisions: %w", err)
	}
	if err := p.explain(ctx, v, decisions.Reasons); err != nil {
		return fmt.Errorf("write reasons: %w", err)
	}
	if err := p.expire(ctx, v); err != nil {
		return fmt.Errorf("end waiting jobs: %w", err)
	}
	return nil
}

func (p *placer) lead(ctx context.Context, fn func(*store.Tx) error) error {
	return p.d.Store.Lead(ctx, p.term, fn)
}

// move writes assignments, launches and withdrawals, a bounded number in each transaction so that other writers get their
// turn. Assignments come first: somebody waits for them.
func (p *placer) move(ctx context.Context, s placement.Snapshot, out placement.Decisions) error {
	var moves []func(*store.Tx) error
	for _, a := range out.Assign {
		moves = append(moves, func(tx *store.Tx) error { return p.assign(ctx, tx, a) })
	}
	for _, w := range out.Withdraw {
		moves = append(moves, func(tx *store.Tx) error { return withdraw(ctx, tx, w, nodeOf(s, w.AgentID)) })
	}
	for _, l := range out.Launch {
		moves = append(moves, func(tx *store.Tx) error { return p.launch(ctx, tx, s, l) })
	}
	for len(moves) > 0 {
		n := min(max(p.d.Settings.MovesPerWrite, 1), len(moves))
		batch := moves[:n]
		moves = moves[n:]
		err := p.lead(ctx, func(tx *store.Tx) error {
			for _, m := range batch {
				if err := m(tx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// assign hands a job to an agent, if the job still waits in a run that goes on, and the agent is still free (QUE-6, CAN-6).
func (p *placer) assign(ctx context.Context, tx *store.Tx, a placement.Assign) error {
	attempt, err := tx.DispatchAssign(ctx, sql.NullString{String: a.AgentID, Valid: true}, a.JobID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // either has changed: the next pass sees it
	}
	if err != nil {
		return fmt.Errorf("assign job: %w", err)
	}
	now := tx.Now()
	err = tx.DispatchInsertAssignment(ctx, db.DispatchInsertAssignmentParams{
		JobID: a.JobID, Attempt: attempt, RunID: a.RunID, AgentID: a.AgentID, CreatedAt: now, AckBy: now + p.d.limits().ackTimeout(a.OrgID).Milliseconds(),
	})
	if err != nil {
		return fmt.Errorf("insert assignment: %w", err)
	}
	if _, err := tx.DispatchBind(ctx, sql.NullString{String: a.JobID, Valid: true}, a.AgentID); err != nil {
		return fmt.Errorf("bind agent: %w", err)
	}
	tx.Notify(store.TopicAssignments, a.AgentID)
	tx.Notify(store.TopicRuns, a.RunID)
	return nil
}

// launch records an agent before it is a thing (idea 1): the node sees the row and makes it true.
func (p *placer) launch(ctx context.Context, tx *store.Tx, s placement.Snapshot, l placement.Launch) error {
	now := tx.Now()
	var wants int64
	var err error
	if l.JobID == "" {
		wants, err = tx.DispatchMayWarm(ctx, l.NodeID, l.Scaler, now)
	} else {
		wants, err = tx.DispatchWantsAgent(ctx, db.DispatchWantsAgentParams{JobID: l.JobID, NodeID: l.NodeID, Scaler: l.Scaler, Now: now})
	}
	if err != nil {
		return fmt.Errorf("look at what an agent is for: %w", err)
	}
	if wants == 0 {
		return nil
	}
	room, err := tx.DispatchHasRoom(ctx, l.NodeID, l.Scaler)
	if err != nil {
		return fmt.Errorf("look at the caps of a scaler: %w", err)
	}
	if room == 0 {
		return nil // the next pass counts with what it is now
	}
	set, ok := labelSet(s, l)
	if !ok {
		return fmt.Errorf("launch on scaler %s of %s: it has no label set %d", l.Scaler, l.NodeID, l.LabelSet)
	}
	err = tx.DispatchLaunch(ctx, db.DispatchLaunchParams{
		ID: p.agentID(l.Type), OrgID: l.OrgID, NodeID: l.NodeID, Scaler: l.Scaler, Type: l.Type,
		Labels: encode(set.AgentLabels), MandatoryLabels: encode(set.Gate), LabelSet: ci.LabelKey(set.Declared),
		CpuMilli: l.Claim.Requests.CPUMilli, MemBytes: l.Claim.Requests.MemBytes,
		CpuLimitMilli: l.Claim.Limits.CPUMilli, MemLimitBytes: l.Claim.Limits.MemBytes,
		BoundJobID: sql.NullString{String: l.JobID, Valid: l.JobID != ""}, Image: l.Image, Now: now,
		RegisterBy: sql.NullInt64{Int64: now + p.d.Settings.SpawnTimeout.Milliseconds(), Valid: true},
	})
	if err != nil {
		return fmt.Errorf("insert agent: %w", err)
	}
	tx.Notify(store.TopicAgents, l.NodeID)
	if l.RunID != "" {
		tx.Notify(store.TopicRuns, l.RunID)
	}
	return nil
}

// agentID is scaler-<type>-<8 hex> (SC-24), from the random end of an id, so that simulation supplies it.
func (p *placer) agentID(backend string) string {
	id := p.d.Env.NewID()
	return "scaler-" + backend + "-" + id[max(len(id)-8, 0):]
}

func labelSet(s placement.Snapshot, l placement.Launch) (placement.LabelSet, bool) {
	for _, sc := range s.Scalers {
		if sc.NodeID == l.NodeID && sc.Name == l.Scaler && l.LabelSet >= 0 && l.LabelSet < len(sc.LabelSets) {
			return sc.LabelSets[l.LabelSet], true
		}
	}
	return placement.LabelSet{}, false
}

func nodeOf(s placement.Snapshot, agentID string) string {
	for _, a := range s.Agents {
		if a.ID == agentID {
			return a.NodeID
		}
	}
	return ""
}

// withdraw ends an agent that nobody needs, unless it has got work since.
func withdraw(ctx context.Context, tx *store.Tx, w placement.Withdraw, node string) error {
	rows, err := tx.DispatchWithdraw(ctx, tx.Now(), w.Reason, w.AgentID)
	if err != nil {
		return fmt.Errorf("withdraw agent: %w", err)
	}
	if rows > 0 {
		tx.Notify(store.TopicAgents, node)
		tx.Notify(store.TopicAssignments, w.AgentID)
	}
	return nil
}

func encode(list []string) string {
	if list == nil {
		list = []string{}
	}
	b, _ := json.Marshal(list) // strings always encode
	return string(b)
}
