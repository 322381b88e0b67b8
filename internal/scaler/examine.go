package scaler

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// examineWait is how long an examination waits for the loop's own look to end.
const examineWait = time.Second

// Examine says what one of this node's scalers finds on its host now, and as an error what is wrong there. Nothing is changed.
func (n *Node) Examine(ctx context.Context, name string) (facts []string, err error) {
	wait, cancel := context.WithTimeout(ctx, examineWait)
	defer cancel()
	if n.turn.take(wait) != nil {
		return []string{"its server looks at it just now"}, nil
	}
	var found *managed
	for _, id := range n.order {
		if m := n.scalers[id]; id.Name == name && (found == nil || m.entry != nil) {
			found = m
		}
	}
	n.turn.give()
	if found == nil {
		return nil, nil
	}
	if e, ok := found.backend.(backend.Examiner); ok {
		facts, err = e.Examine(ctx)
	}
	if folder := found.backend.Capabilities().Volume; folder != "" {
		if free, ferr := n.d.FreeDisk(folder); ferr == nil {
			facts = append(facts, fmt.Sprintf("%s free in %s", humanize.IBytes(uint64(max(free, 0))), folder))
		}
	}
	return facts, err
}
