package dispatch

import (
	"context"
	"errors"
	"fmt"
)

// keeper is the loop of concurrency groups of one term: whoever was given a place goes on, whoever is superseded or has waited too
// long is ended. Each is a transaction of its own, so that none locks two runs. Only its own goroutine touches it.
type keeper struct {
	d         *Dispatcher
	term      int64
	nextSweep int64
}

func (d *Dispatcher) keeper(term int64) *keeper { return &keeper{d: d, term: term} }

// tick does what there is to do. What one duty frees is there at the next tick, which its notification brings about.
func (k *keeper) tick(ctx context.Context) error {
	now := k.d.Env.NowMs()
	sweep := now >= k.nextSweep
	duties, err := k.d.Runs.GroupDuties(ctx, sweep)
	if err != nil {
		return err
	}
	if sweep {
		k.nextSweep = now + k.d.Settings.SweepInterval.Milliseconds()
	}
	var errs []error
	for _, do := range duties {
		if err := k.d.Store.Lead(ctx, k.term, do); err != nil {
			errs = append(errs, err) // it is listed again; the others need not wait for it
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("concurrency groups: %w", err)
	}
	return nil
}
