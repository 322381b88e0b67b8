package baremetal

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// system is nothing here: sessions hold agents together, as far as processes stay in them.
type system struct{}

func (a *agents) openSystem() {}

func (a *agents) closeSystem() {}

func (b *Backend) goos() string { return "macOS" }

func (b *Backend) loosen(context.Context, record) {}

// endLeft finds nothing: a process that has left the agent's session cannot be told from others.
func (b *Backend) endLeft(context.Context, string, record) (bool, error) { return false, nil }

// exec starts a process in a session of its own (BM-10).
func (b *Backend) exec(_ string, _ *record, l launch, o outputs) (pid int, err error) {
	cmd := exec.Cmd{
		Path: l.path, Args: l.args, Env: l.env, Dir: l.dir, Stdout: o.out, Stderr: o.out, ExtraFiles: []*os.File{o.token},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if b.user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: b.user.uid, Gid: b.user.gid, Groups: b.user.groups}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}
