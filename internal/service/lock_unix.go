//go:build unix

package service

import (
	"errors"
	"os"
	"syscall"
)

// LockFile takes the lock of a file that ends with the process; children do not inherit it (O_CLOEXEC). It does not wait: ErrLocked says
// that another process has it.
func LockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// SyncDir makes a rename in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
