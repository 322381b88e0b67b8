//go:build unix

package git

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup puts git and its helpers (remote-https, ssh, index-pack) into a process group of their own, so that they
// can be ended together.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func terminateGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }
func killGroup(p *os.Process) error      { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
