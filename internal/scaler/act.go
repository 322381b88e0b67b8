package scaler

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// operations is the work in progress. Each agent has at most one.
type operations struct {
	mu   sync.Mutex
	live map[string]operation
	idle sync.WaitGroup

	ended func() // called after each, when it is no longer in live
}

type operation struct {
	op     Op
	cancel context.CancelFunc
}

func newOperations(ended func()) *operations {
	return &operations{live: map[string]operation{}, ended: ended}
}

func (o *operations) snapshot() map[string]Op {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]Op, len(o.live))
	for id, op := range o.live {
		out[id] = op.op
	}
	return out
}

// run does fn in a goroutine of its own; the agent is busy until it returns.
func (o *operations) run(id string, op Op, timeout time.Duration, fn func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	o.mu.Lock()
	o.live[id] = operation{op, cancel}
	o.mu.Unlock()
	o.idle.Go(func() {
		defer cancel()
		fn(ctx)
		o.mu.Lock()
		delete(o.live, id)
		o.mu.Unlock()
		o.ended()
	})
}

func (o *operations) cancel(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.live[id]; ok {
		op.cancel()
	}
}

// drain waits for work in progress, cancels what takes longer than grace, and leaves what ignores even that. It reports whether
// all of it has ended.
func (o *operations) drain(grace time.Duration) bool {
	idle := make(chan struct{})
	go func() {
		o.idle.Wait()
		close(idle)
	}()
	for _, wait := range []time.Duration{grace, cancelPatience} {
		timer := time.NewTimer(wait)
		select {
		case <-idle:
			timer.Stop()
			return true
		case <-timer.C:
			o.cancelAll()
		}
	}
	return false
}

// cancelPatience is for a Delete that has to fall back to SIGKILL.
const cancelPatience = 10 * time.Second

func (o *operations) cancelAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for op := range maps.Values(o.live) {
		op.cancel()
	}
}

// recordTimeout bounds the write that follows a piece of work; it must not be lost to the work's own deadline.
const recordTimeout = 30 * time.Second

// act does what was recorded.
func (n *Node) act(j job) {
	switch j.Kind {
	case ActStart:
		if j.planErr == nil {
			n.log.Info("start agent", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "job_id", j.spec.JobID)
			if j.spec.Warm {
				n.metrics.warmSpawns.WithLabelValues(j.Scaler.Name).Inc()
			}
			n.ops.run(j.AgentID, OpCreate, n.limits(j.row.OrgID).SpawnTimeout, func(ctx context.Context) { n.create(ctx, j) })
			return
		}
		n.noteFailure(j, j.planErr.Error())
	case ActDelete:
		if j.row == nil {
			n.orphans.found(j.AgentID, j.Holds)
		}
		n.ops.run(j.AgentID, OpDelete, n.d.Settings.DeleteTimeout, func(ctx context.Context) { n.delete(ctx, j) })
		return
	case ActCancel:
		n.ops.cancel(j.AgentID)
		return
	case ActFail:
		n.noteFailure(j, j.Error)
	case ActEnd:
		n.log.Info("agent has ended", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "reason", j.Reason, "err", j.Error)
	case ActClose, ActBooted:
		return
	}
	n.wake.Signal() // the row is ending now: delete next
}

func (n *Node) noteFailure(j job, text string) {
	n.metrics.failure(j.Scaler.Type, j.row.BoundJobID.Valid)
	n.log.Warn("agent failed before it registered", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "err", text)
}

// create starts one agent and records what became of it.
func (n *Node) create(ctx context.Context, j job) {
	tell, stop := n.narrate(ctx, j)
	j.spec.Progress = tell
	inst, err := n.callCreate(ctx, j)
	stop()
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err == nil {
		if err := n.recordCreated(rctx, j, inst.Launch); err != nil {
			n.log.Error("record a started agent", "agent_id", j.AgentID, "err", err) // the loop finds it by List
		}
		return
	}
	if errors.Is(err, context.Canceled) {
		return // its row has ended, or this process stops: the loop goes on from what it finds
	}
	f := failureOf(j, err)
	f.was = "starting"
	recorded := false
	werr := n.d.Store.Write(rctx, func(tx *store.Tx) (err error) {
		recorded, err = n.recordFailure(rctx, tx, f)
		return err
	})
	if werr != nil {
		n.log.Error("record a failed launch", "agent_id", j.AgentID, "err", werr)
	}
	if recorded {
		n.noteFailure(j, f.text)
	}
}

// callCreate returns at the deadline even if the backend lingers, so that its permit is free (MG-14). What still comes of the
// launch afterwards is ended.
func (n *Node) callCreate(ctx context.Context, j job) (backend.Instance, error) {
	type result struct {
		inst backend.Instance
		err  error
	}
	done := make(chan result, 1)
	abandoned := make(chan struct{})
	go func() {
		inst, err := j.scaler.backend.Create(ctx, j.spec)
		done <- result{inst, err}
		select {
		case <-abandoned:
			if err == nil {
				n.endLate(j, inst)
			}
		default:
		}
	}()
	select {
	case r := <-done:
		return r.inst, r.err
	case <-ctx.Done():
	}
	close(abandoned)
	select {
	case r := <-done: // it ended in the same moment
		if r.err == nil {
			n.endLate(j, r.inst)
		}
	default:
	}
	return backend.Instance{}, ctx.Err()
}

// endLate ends an agent whose launch came back after it was given up.
func (n *Node) endLate(j job, inst backend.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), n.d.Settings.DeleteTimeout)
	defer cancel()
	err := j.scaler.backend.Delete(ctx, backend.Ref{AgentID: j.AgentID, Launch: inst.Launch, Reason: "late"})
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		n.log.Warn("end an agent that started too late", "agent_id", j.AgentID, "err", err) // the loop finds it by List
	}
	n.wake.Signal()
}

// delete ends one agent and closes its row when nothing is left of it.
func (n *Node) delete(ctx context.Context, j job) {
	ref := backend.Ref{AgentID: j.AgentID, Launch: j.Launch, Reason: j.Reason}
	if j.row != nil {
		ref.Reason = j.row.GoneReason
	}
	refused := ""
	if a, ok := j.scaler.backend.(backend.Auditor); ok && j.row != nil {
		refused = a.Refusals(ctx, j.AgentID)
	}
	err := j.scaler.backend.Delete(ctx, ref)
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		n.deleteFailed(rctx, j, err)
		return
	}
	if j.row == nil {
		n.orphans.gone(j.AgentID)
		n.log.Warn("ended an agent without a row", "agent_id", j.AgentID, "scaler", j.Scaler.Name)
		return
	}
	gone := int64(0)
	werr := n.d.Store.Write(rctx, func(tx *store.Tx) error {
		var err error
		if gone, err = tx.NodeAgentGone(rctx, tx.Now(), j.AgentID); err != nil || gone == 0 {
			return err
		}
		n.notifyChange(tx)
		if err := n.noteRefused(rctx, tx, j, refused); err != nil {
			return err
		}
		return tx.NodeDeleteAgentTokens(rctx, j.AgentID)
	})
	if werr != nil {
		n.log.Error("close an ended agent", "agent_id", j.AgentID, "err", werr) // the next look repeats Delete
		return
	}
	if gone > 0 {
		if j.row.GoneReason == ci.GoneIdle || j.row.GoneReason == ci.GoneMadeRoom {
			n.metrics.warmReaped.WithLabelValues(j.Scaler.Name).Inc()
		}
		n.log.Info("agent is gone", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "reason", j.row.GoneReason)
	}
}

// noteRefused tells the job of an agent what its network policy refused.
func (n *Node) noteRefused(ctx context.Context, tx *store.Tx, j job, refused string) error {
	if refused == "" {
		return nil
	}
	n.log.Info("an agent was refused connections by its network policy", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "refused", refused)
	_, err := tx.NodeNoteJob(ctx, db.NodeNoteJobParams{
		ID: n.d.Env.NewID(), At: tx.Now(), Kind: ci.NoteRefused, Detail: bound("the network policy refused it connections (" + refused + ")"), AgentID: j.AgentID,
	})
	return err
}

// Delays between attempts to delete.
const (
	deleteRetryBase = time.Second
	deleteRetryMax  = 30 * time.Second
)

// deleteFailed keeps the row, so that it stays counted, and tries again later (MG-46).
func (n *Node) deleteFailed(ctx context.Context, j job, err error) {
	attempts := int64(0)
	if j.row != nil {
		attempts = j.row.DeleteAttempts
		werr := n.d.Store.Write(ctx, func(tx *store.Tx) error {
			_, err := tx.NodeDeleteFailed(ctx, bound(err.Error()), j.AgentID)
			return err
		})
		if werr != nil {
			n.log.Error("record a failed delete", "agent_id", j.AgentID, "err", werr)
		}
	}
	wait := min(deleteRetryBase<<min(attempts, 10), deleteRetryMax)
	n.log.Error("end agent", "agent_id", j.AgentID, "scaler", j.Scaler.Name, "attempt", attempts+1, "retry_in", wait.String(), "err", err)
	n.setRetry(j.AgentID, n.d.Env.NowMs()+wait.Milliseconds())
}
