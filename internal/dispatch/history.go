package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store"
)

const (
	historyFor   = 30 * 24 * time.Hour // how long it is known why jobs of a shape waited
	historyPrune = time.Hour
)

// noReasons ends a wait in the history of a shape.
const noReasons = "[]"

// logReasons adds to the history of the shapes whose reasons have changed in kind. Counts in the sentences change all the time and are
// not history.
func (p *placer) logReasons(ctx context.Context, tx *store.Tx, changed map[string]string) error {
	for shape, text := range changed {
		if kindsOf(text) == kindsOf(p.reasons[shape]) {
			continue
		}
		if text == "" {
			text = noReasons
		}
		if err := tx.LogShapeReasons(ctx, shape, tx.Now(), text); err != nil {
			return fmt.Errorf("note why jobs wait: %w", err)
		}
	}
	if now := tx.Now(); now-p.prunedAt >= historyPrune.Milliseconds() {
		if _, err := tx.PruneShapeReasons(ctx, now-historyFor.Milliseconds()); err != nil {
			return fmt.Errorf("forget why jobs waited: %w", err)
		}
		p.prunedAt = now
	}
	return nil
}

// keep remembers what was written.
func (p *placer) keep(changed map[string]string) {
	for shape, text := range changed {
		if text == "" {
			delete(p.reasons, shape)
			continue
		}
		p.reasons[shape] = text
	}
}

// kindsOf is the distinct kinds of stored reasons.
func kindsOf(text string) string {
	if text == "" || text == noReasons {
		return ""
	}
	var reasons []placement.Reason
	_ = json.Unmarshal([]byte(text), &reasons) // our own JSON
	kinds := make([]string, len(reasons))
	for i, r := range reasons {
		kinds[i] = string(r.Kind)
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), " ")
}
