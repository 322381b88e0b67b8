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
// users know. What is in the locked file names the directory that its last holder made: who has the lock may take that over at once, because
// its maker is dead.
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
			err = takeDirectory(dir, f)
		}
		switch {
		case err == nil:
			return func() { _ = f.Truncate(0); _ = os.Remove(dir); _ = f.Close() }, nil
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

// takeDirectory makes the lock directory, and notes in the locked file which it is. One that a dead holder of the file has left is taken over,
// and so is one that has grown old.
func takeDirectory(dir string, noted *os.File) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := os.Stat(dir)
		if statErr != nil || time.Since(info.ModTime()) <= staleAfter && !isNoted(noted, info) {
			return err
		}
		now := time.Now()
		err = os.Chtimes(dir, now, now)
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil { // a note that is missing costs who comes after our death the time of staleAfter, no more
		_, _ = noted.WriteAt([]byte(noteOf(info)), 0)
	}
	return nil
}

// noteOf tells one lock directory from another one in its place.
func noteOf(dir fs.FileInfo) string { return fmt.Sprintf("%-20d", dir.ModTime().UnixNano()) }

func isNoted(f *os.File, dir fs.FileInfo) bool {
	note := make([]byte, len(noteOf(dir)))
	_, err := f.ReadAt(note, 0)
	return err == nil && string(note) == noteOf(dir)
}
