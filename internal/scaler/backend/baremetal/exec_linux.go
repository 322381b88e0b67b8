package baremetal

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// exec starts a process in its leaf. Where that cannot be it starts without.
func (b *Backend) exec(_ string, r *record, l launch, o outputs) (pid int, err error) {
	pid, err = b.execIn(r.Cgroup, l, o)
	if err != nil && r.Cgroup != "" && cgroupError(err) {
		b.log.Warn("agent starts without its cgroup", "cgroup", r.Cgroup, "err", err)
		r.Cgroup = ""
		pid, err = b.execIn("", l, o)
	}
	return pid, err
}

func (b *Backend) execIn(leaf string, l launch, o outputs) (pid int, err error) {
	cmd := exec.Cmd{
		Path: l.path, Args: l.args, Env: l.env, Dir: l.dir, Stdout: o.out, Stderr: o.out, ExtraFiles: []*os.File{o.token},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if b.user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: b.user.uid, Gid: b.user.gid, Groups: b.user.groups}
	}
	if leaf != "" {
		f, err := os.Open(leaf)
		if err != nil {
			return 0, &leafError{err}
		}
		defer f.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release() // it is watched by its pidfd
}

type leafError struct{ error }

// cgroupError reports whether a start failed in a way that its cgroup can explain.
func cgroupError(err error) bool {
	var leaf *leafError
	return errors.As(err, &leaf) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
