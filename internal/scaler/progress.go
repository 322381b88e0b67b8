package scaler

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/store"
)

// detailEvery is how often what a launch says of itself is written down.
const detailEvery = 2 * time.Second

// teller writes down what a launch says of itself, the last word only and not all the time.
type teller struct {
	mu   sync.Mutex
	text string
	news chan struct{} // has one element when there is something to write
}

// tell takes up what a launch says. It does not wait.
func (t *teller) tell(text string) {
	t.mu.Lock()
	t.text = bound(text)
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default: // the writer sees the last word
	}
}

func (t *teller) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// narrate lets a launch say what it is doing until stop; people see it where its job waits. What cannot be written is missed by nobody.
func (n *Node) narrate(ctx context.Context, j job) (tell func(string), stop func()) {
	t := &teller{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.news:
			}
			if err := n.recordDetail(ctx, j, t.last()); err != nil && ctx.Err() == nil {
				n.log.Debug("record what a launch says", "agent_id", j.AgentID, "err", err)
			}
			pause := time.NewTimer(detailEvery)
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
		}
	})
	return t.tell, func() { cancel(); done.Wait() }
}

func (n *Node) recordDetail(ctx context.Context, j job, text string) error {
	return n.d.Store.Write(ctx, func(tx *store.Tx) error {
		changed, err := tx.NodeAgentDetail(ctx, text, j.AgentID)
		if err != nil || changed == 0 {
			return err
		}
		tx.Notify(store.TopicScalers, n.id)
		if !j.row.BoundJobID.Valid {
			return nil
		}
		run, err := tx.NodeRunOfJob(ctx, j.row.BoundJobID.String)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // the job was deleted; its agent is withdrawn in a moment
		}
		if err == nil {
			tx.Notify(store.TopicRuns, run)
		}
		return err
	})
}
