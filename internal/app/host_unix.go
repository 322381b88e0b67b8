//go:build unix

package app

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const onWindows = false

// foreignOwner says so when a file belongs to another user than this process's, who is not root.
func foreignOwner(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() == 0 || int(st.Uid) == os.Geteuid() {
		return ""
	}
	return fmt.Sprintf("belongs to user %d, not to %d", st.Uid, os.Geteuid())
}

// inodes are the free and all inodes where path is; 0 where the filesystem does not count them.
func inodes(path string) (free, total uint64) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0
	}
	return uint64(s.Ffree), uint64(s.Files) //nolint:unconvert // the types differ between systems
}

// lockHolder is the process that holds a lock on a file, by the kernel's list: trying the lock could get in the way of a start.
// It is 0 when nobody holds it or the system has no such list.
func lockHolder(path string) int {
	var st unix.Stat_t
	list, err := os.Open("/proc/locks")
	if err != nil || unix.Stat(path, &st) != nil {
		return 0
	}
	defer list.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino) //nolint:unconvert // likewise
	for lines := bufio.NewScanner(list); lines.Scan(); {
		f := strings.Fields(lines.Text()) // 1: FLOCK ADVISORY WRITE 123 08:01:456 0 EOF
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == file {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
}
