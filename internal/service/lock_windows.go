package service

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// LockFile takes the lock of a file that ends with the process. It does not wait: ErrLocked says that another process has it. One byte far
// behind the text is locked, which others may still read.
func LockFile(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// SyncDir does nothing: this system has no such call.
func SyncDir(string) error { return nil }
