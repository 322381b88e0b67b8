//go:build unix

package service

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FreeDisk is what this process may still write where path is.
func FreeDisk(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}

// SameDisk reports whether two paths are on one file system. It is false when that cannot be found out.
func SameDisk(a, b string) bool {
	device := func(path string) (uint64, bool) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, false
		}
		return uint64(st.Dev), true //nolint:unconvert,gosec // the types differ between systems
	}
	first, ok := device(a)
	second, ok2 := device(b)
	return ok && ok2 && first == second
}

// DiskFull reports whether an error says that a disk has no room.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
