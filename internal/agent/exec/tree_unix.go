//go:build unix && !linux

package exec

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const walkMethod = MethodGroup

func becomeSubreaper() {}

// cgroup exists on Linux only.
type group struct{ path string }

func newGroup(string) (*group, error)       { return nil, errors.New("no cgroups on this system") }
func (*group) remove(context.Context) error { return nil }
func (*group) enter(int, int) error         { return nil }

func signalName(int) string { return "" }

func (t *Tree) attributes(int) (*syscall.SysProcAttr, func(), error) {
	return &syscall.SysProcAttr{Setsid: true}, func() {}, nil
}

func (t *Tree) signal(step int, sig syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, s := range t.roots {
		if step == anyStep || s == step {
			_ = syscall.Kill(-pid, sig)
		}
	}
}

// Terminate asks the step's process group to go (SIGTERM).
func (t *Tree) Terminate(step int) { t.signal(step, syscall.SIGTERM) }

// KillStep kills the step's process group.
func (t *Tree) KillStep(_ context.Context, step int) error {
	t.signal(step, syscall.SIGKILL)
	return nil
}

// Kill kills the process groups of all steps that run.
func (t *Tree) Kill(context.Context) error {
	t.signal(anyStep, syscall.SIGKILL)
	return nil
}

func (t *Tree) reapOrphans() func() { return func() {} }

func signalOf(s *os.ProcessState) (string, int) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return "", 0
	}
	return unix.SignalName(ws.Signal()), 128 + int(ws.Signal())
}

func executable(path string) error { return unix.Access(path, unix.X_OK) }

// StartTime is not known on this system: 0.
func StartTime(int) uint64 { return 0 }

// CleanUp removes the state file; without /proc nothing can be found again.
func CleanUp(_ context.Context, stateFile string) error { return os.Remove(stateFile) }
