//go:build unix

package workdir

import (
	"fmt"
	"os"
	"syscall"
)

// Owned refuses a directory that another user could have put there.
func Owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the work directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("the work directory %s must be a directory of this user that nobody else can write", dir)
	}
	return nil
}
