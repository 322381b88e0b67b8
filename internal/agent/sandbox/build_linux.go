package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/ci"
)

// enter builds what first asks for around this thread, outermost first: the file system and the network, then rights, which all of that
// needs, then the two filters, which would forbid it.
func enter(first boot) (Report, error) {
	c := first.Config
	var r Report
	view, err := c.view(os.Lstat, os.Readlink)
	if err != nil {
		return r, fmt.Errorf("look at what a job may see: %w", err)
	}
	if first.Namespaces {
		if err := first.identify(); err != nil {
			return r, err
		}
		if err := c.build(view); err != nil {
			return r, err
		}
		r.Private = true
		r.Enforced = append(r.Enforced, "processes and files of its own, the system read-only")
		if c.Network == ci.NetworkIsolated {
			if err := loopback(); err != nil {
				return r, err
			}
			r.Enforced = append(r.Enforced, "no network but a loopback")
		}
	}
	// Its other threads keep rights that this one gives up: nobody inside may read or change its memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return r, fmt.Errorf("protect the box: %w", err)
	}
	if err := limitRights(c.Capabilities, first.Namespaces); err != nil {
		return r, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return r, fmt.Errorf("forbid new privileges: %w", err)
	}
	r.Enforced = append(r.Enforced, "no new privileges")
	if err := c.landlock(view, first.Namespaces, &r); err != nil {
		return r, err
	}
	if err := filterCalls(c.Capabilities); err != nil {
		r.Missing = append(r.Missing, fmt.Sprintf("system calls are not filtered (%v)", err))
	} else {
		r.Enforced = append(r.Enforced, "the system calls of containers (seccomp)")
	}
	if c.Network == ci.NetworkHost {
		r.Enforced = append(r.Enforced, "the machine's network")
	}
	return r, nil
}

// identify maps the agent's user into the new user namespace, as itself and alone.
func (b boot) identify() error {
	for _, f := range []struct{ file, text string }{
		{"setgroups", "deny"}, {"gid_map", fmt.Sprintf("%d %d 1", b.GID, b.GID)}, {"uid_map", fmt.Sprintf("%d %d 1", b.UID, b.UID)},
	} {
		if err := os.WriteFile("/proc/self/"+f.file, []byte(f.text), 0); err != nil {
			return fmt.Errorf("map the user: %w", err)
		}
	}
	return nil
}

// build makes the file system of the view, and makes it this process's.
func (c Config) build(view []entry) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part the file systems: %w", err)
	}
	if err := mount("tmpfs", c.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=4m"); err != nil {
		return err
	}
	at := func(path string) string { return filepath.Join(c.Root, path) }
	if err := makeDev(at); err != nil {
		return err
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if err := bind(entry{path: c.Tmp, dir: true, write: true}, at(dir)); err != nil {
			return err
		}
	}
	for _, e := range view {
		if err := bind(e, at(e.path)); err != nil {
			return err
		}
		for _, h := range below(e.path, c.hidden()) {
			if err := hide(at(h)); err != nil {
				return err
			}
		}
	}
	for _, f := range []func() error{
		func() error { return os.MkdirAll(at("/run"), 0o755) },
		func() error { return processes(at("/proc")) },
		func() error { return bind(entry{path: "/sys", dir: true}, at("/sys")) },
		func() error { return pivot(c.Root) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("make a mount point: %w", err)
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// bind shows an entry at a place in the new file system.
func bind(e entry, target string) error {
	if e.link != "" {
		return link(e.link, target)
	}
	if _, err := os.Lstat(target); err != nil { // else it is there already, with a folder above
		if err := placeFor(e, target); err != nil {
			return fmt.Errorf("make a place for %s: %w", e.path, err)
		}
	}
	if err := unix.Mount(e.path, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show %s: %w", e.path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if !isDevice(e.path) {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if !e.write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("protect %s: %w", e.path, err)
	}
	return nil
}

func isDevice(path string) bool { return within(path, "/dev") }

func link(to, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(to, at); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func placeFor(e entry, target string) error {
	if e.dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// hide puts nothing over a folder or file that is shown with what is above it.
func hide(target string) error {
	info, err := os.Lstat(target)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission): // nobody inside sees it either
		return nil
	case err == nil && !info.IsDir() && !info.Mode().IsRegular():
		return nil
	case err != nil:
		return fmt.Errorf("hide %s: %w", target, err)
	case info.IsDir():
		return mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "mode=755,size=4k")
	}
	if err := unix.Mount("/dev/null", target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("hide %s: %w", target, err)
	}
	return nil
}

// devices are those that any program may want.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// makeDev shows the devices, and makes a folder of terminals and shared memory of the sandbox's own.
func makeDev(at func(string) string) error {
	if err := mount("tmpfs", at("/dev"), "tmpfs", unix.MS_NOSUID, "mode=755,size=64k"); err != nil {
		return err
	}
	for _, path := range devices {
		if err := bind(entry{path: path, write: true}, at(path)); err != nil {
			return err
		}
	}
	if err := mount("tmpfs", at("/dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	if err := mount("devpts", at("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := link(to, at("/dev/"+name)); err != nil {
			return err
		}
	}
	return nil
}

// processes shows those of this namespace. Where the machine's own /proc is covered in part, as in a container, a new one is refused.
func processes(target string) error {
	return mount("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// pivot makes root the only file system there is.
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the file system: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's file system: %w", err)
	}
	return unix.Chdir("/")
}

// loopback brings up the only interface of a new network.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring up the loopback: %w", err)
	}
	return nil
}

// childOf reads the process of a SIGCHLD's description, whose fields x/sys does not name: it follows three ints, aligned to a word.
func childOf(info *unix.Siginfo) int {
	const offset = 4 * unsafe.Sizeof(int32(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}
