package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
)

// always leads under one term.
type always struct{ term int64 }

func (a always) While(ctx context.Context, fn func(context.Context, int64) error) error {
	return fn(ctx, a.term)
}

// A notification makes the loop run at once; nobody waits for its interval.
func TestRunWakes(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.d.Leader = always{w.term}
		w.d.Settings.Interval = time.Hour
		w.static("box", "linux")
		assigned := w.st.Subscribe(store.TopicAssignments, "box")
		defer assigned.Close()
		loop, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- w.d.Run(loop) }()
		id := w.insert(job("a", "linux"))
		select {
		case <-assigned.C():
		case <-time.After(20 * time.Second):
			t.Error("no assignment")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if a := w.job(id, "a"); a.AgentID.String != "box" {
			t.Fatalf("agent %v", a.AgentID)
		}
	})
}
