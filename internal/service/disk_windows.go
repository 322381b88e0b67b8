package service

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// FreeDisk is what this process may still write where path is.
func FreeDisk(path string) (int64, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(p, &free, nil, nil)
	return int64(free), err
}

// SameDisk reports whether two paths are on one volume; folders into which another is mounted are taken for their own.
func SameDisk(a, b string) bool {
	first, second := filepath.VolumeName(a), filepath.VolumeName(b)
	return first != "" && strings.EqualFold(first, second)
}

// DiskFull reports whether an error says that a disk has no room.
func DiskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
