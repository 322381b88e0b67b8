package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// sizeEvery is how often a mirror that grows is measured. What comes in between is beyond the bound.
const sizeEvery = 200 * time.Millisecond

// bounded returns a context that ends, with ErrTooBig as its cause, when the mirror grows beyond its bound: whoever may push to a
// repository must not fill this machine's disk. stop ends the watch and must be called; it returns that cause, or nil. The caller is
// the writer.
func (m *Mirror) bounded(ctx context.Context) (watched context.Context, stop func() error) {
	watched, cancel := context.WithCancelCause(ctx)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sizeEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if err := m.tooBig(); err != nil {
					cancel(err)
					return
				}
			}
		}
	}()
	return watched, func() error {
		close(over)
		<-done
		cancel(nil)
		return m.tooBig()
	}
}

// tooBig is an error when the mirror's objects take more than they may.
func (m *Mirror) tooBig() error {
	if size := m.size(); size > m.set.o.MaxBytes {
		return fmt.Errorf("%w: the repository's history takes more than %d MiB", ErrTooBig, m.set.o.MaxBytes>>20)
	}
	return nil
}

// size is what the packs take, with those that are on their way.
func (m *Mirror) size() (n int64) {
	entries, _ := os.ReadDir(filepath.Join(m.dir, "objects", "pack")) // no directory has no size
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}
