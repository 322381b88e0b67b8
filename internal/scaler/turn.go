package scaler

import "context"

// turn lets one at a time look at the host and the ledger, or change what is managed. Unlike a mutex it may be held across I/O: who waits for
// it can give up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn until ctx ends.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }
