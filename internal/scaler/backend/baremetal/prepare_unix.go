//go:build unix

package baremetal

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeWorkRoot makes the folder that holds workspaces: passable for everybody, readable for nobody, and ours. In a folder like
// /var/tmp somebody else could have made it first.
func makeWorkRoot(path string) error {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at work folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("work folder %s must be a folder that belongs to the server's user and that nobody else can write", path)
	}
	return nil
}

// reaches reports whether the user may execute a file and pass every folder above it.
func (a *account) reaches(path string) bool {
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil || !a.mayExecute(info) {
			return false
		}
		if p == filepath.Dir(p) {
			return true
		}
	}
}

func (a *account) mayExecute(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	bit := fs.FileMode(0o001)
	switch {
	case st.Uid == a.uid:
		bit = 0o100
	case st.Gid == a.gid || a.inGroup(st.Gid):
		bit = 0o010
	}
	return info.Mode()&bit != 0
}

func (a *account) inGroup(gid uint32) bool {
	for _, g := range a.groups {
		if g == gid {
			return true
		}
	}
	return false
}
