package machinepool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kici-go/kici/internal/service"
)

// Times of the lock of a pool (ML-3).
const (
	lockTries   = 200
	lockPause   = 5 * time.Millisecond
	longestWait = 100 * time.Millisecond
	staleAfter  = 30 * time.Second // a lock directory that is older was left by a process that died
)

// lock takes a pool, a path without an ending: a lock of the operating system, which ends with its process, and beside it the directory that the file's older
// users know.
func lock(ctx context.Context, pool string) (unlock func(), err error) {
	f, err := os.OpenFile(pool+".flock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	dir := pool + ".lock"
	pause := lockPause
	for try := 0; ; try++ {
		err = service.LockFile(f)
		if err == nil {
			err = takeDirectory(dir)
		}
		switch {
		case err == nil:
			return func() { _ = os.Remove(dir); _ = f.Close() }, nil
		case !errors.Is(err, service.ErrLocked) && !errors.Is(err, fs.ErrExist):
			return nil, err
		case try == lockTries:
			return nil, fmt.Errorf("the pool %s is locked by somebody else", filepath.Base(pool))
		}
		if err := service.Sleep(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(2*pause, longestWait)
	}
}

// takeDirectory makes the lock directory. One that has grown old is taken over.
func takeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, statErr := os.Stat(dir); statErr == nil && time.Since(info.ModTime()) > staleAfter {
		now := time.Now()
		return os.Chtimes(dir, now, now)
	}
	return err
}
