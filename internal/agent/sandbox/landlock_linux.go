package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/ci"
)

// Versions of Landlock's interface, by what came with them.
const (
	landlockRefer    = 2 // files may move between folders
	landlockTruncate = 3
	landlockTCP      = 4
	landlockIoctl    = 5
	landlockScope    = 6 // signals, and sockets without a place in the file system
	landlockMost     = 7 // the last one that this was tried with
)

// Rights to files. A rule may give no right that the ruleset does not handle.
const (
	fsReadFile  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	fsReadDir   = fsReadFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsWriteFile = fsReadFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	fsAll       = fsReadDir | fsWriteFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	fsDevice = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// fsHandled are the rights to files that a version knows.
func fsHandled(abi int) uint64 {
	rights := uint64(fsAll | fsDevice)
	for _, r := range []struct {
		since int
		right uint64
	}{{landlockRefer, unix.LANDLOCK_ACCESS_FS_REFER}, {landlockTruncate, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {landlockIoctl, fsDevice}} {
		if abi < r.since {
			rights &^= r.right
		}
	}
	return rights
}

// landlockVersion is 0 where there is no Landlock.
func landlockVersion() int {
	v, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(v)
}

// landlock restricts this thread to the view.
func (c Config) landlock(view []entry, namespaces bool, r *Report) error {
	abi := landlockVersion()
	if abi == 0 {
		if !namespaces {
			return errors.New("the kernel has no Landlock")
		}
		r.Missing = append(r.Missing, "files are kept by the file system alone: the kernel has no Landlock")
		return nil
	}
	closed := c.Network == ci.NetworkIsolated && !namespaces
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fsHandled(abi)}
	if closed && abi >= landlockTCP { // no rule opens a port
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= landlockScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if err := restrict(attr, c.rules(view, namespaces)); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	r.Enforced = append(r.Enforced, fmt.Sprintf("files of others closed by Landlock (version %d)", min(abi, landlockMost)))
	switch {
	case closed && abi >= landlockTCP:
		r.Enforced = append(r.Enforced, "no TCP connections")
		r.Missing = append(r.Missing, "other networking than TCP is open")
	case closed:
		r.Missing = append(r.Missing, "the network is open")
	}
	if abi < landlockScope && !namespaces {
		r.Missing = append(r.Missing, "processes of this user outside can be signalled")
	}
	if abi < landlockScope && (!namespaces || c.Network == ci.NetworkHost) {
		r.Missing = append(r.Missing, "the machine's sockets without a place in the file system can be reached")
	}
	return nil
}

// rule opens a path and what is below it.
type rule struct {
	path  string
	write bool
}

// rules are the view as Landlock has it. In namespaces there is nothing else than the view, so all of it may be read.
func (c Config) rules(view []entry, namespaces bool) (out []rule) {
	if namespaces {
		out = append(out, rule{path: "/"})
		for _, e := range view {
			if e.write && e.link == "" {
				out = append(out, rule{e.path, true})
			}
		}
		for _, d := range []string{"/dev", "/tmp", "/var/tmp", "/run", "/proc"} {
			out = append(out, rule{d, true})
		}
		return out
	}
	for _, e := range view {
		if e.link != "" {
			continue // what a link leads to is there by its own name
		}
		for _, p := range split(e.path, c.hidden(), os.ReadDir) {
			out = append(out, rule{p, e.write})
		}
	}
	for _, d := range append(slices.Clone(devices), c.Tmp, "/proc") { // in /proc, what is not one's own is closed by its owner
		out = append(out, rule{d, true})
	}
	return append(out, rule{path: "/sys"})
}

// restrict makes a ruleset and puts this thread under it, for good.
func restrict(attr unix.LandlockRulesetAttr, rules []rule) error {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("make a ruleset: %w", errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	for _, r := range rules {
		if err := allow(fd, r, attr.Handled_access_fs); err != nil {
			return fmt.Errorf("open %s: %w", r.path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("apply the ruleset: %w", errno)
	}
	return nil
}

// allow adds a rule; a path that is not there needs none.
func allow(ruleset uintptr, r rule, handled uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights(st.Mode&unix.S_IFMT == unix.S_IFDIR, r) & handled, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func rights(isDir bool, r rule) (out uint64) {
	switch {
	case isDir && r.write:
		out = fsAll
	case isDir:
		out = fsReadDir
	case r.write:
		out = fsWriteFile
	default:
		out = fsReadFile
	}
	if isDevice(r.path) {
		out |= fsDevice
	}
	return out
}
