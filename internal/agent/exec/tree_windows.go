package exec

import (
	"context"
	"errors"
	"os"
	"syscall"
)

const walkMethod = MethodGroup

func becomeSubreaper() {}

// cgroup exists on Linux only.
type group struct{ path string }

func newGroup(string) (*group, error)       { return nil, errors.New("no cgroups on this system") }
func (*group) remove(context.Context) error { return nil }

func (t *Tree) attributes(int) (*syscall.SysProcAttr, func(), error) {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}, func() {}, nil
}

func (t *Tree) kill(step int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, s := range t.roots {
		if step != anyStep && s != step {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// Terminate ends the step's first process; Windows has no gentle way that reaches every program.
func (t *Tree) Terminate(step int) { t.kill(step) }

// KillStep ends the step's first process.
func (t *Tree) KillStep(_ context.Context, step int) error {
	t.kill(step)
	return nil
}

// Kill ends the first process of every step that runs.
func (t *Tree) Kill(context.Context) error {
	t.kill(anyStep)
	return nil
}

func (t *Tree) reapOrphans() func() { return func() {} }

func signalOf(*os.ProcessState) (string, int) { return "", 0 }

func executable(path string) error {
	_, err := os.Stat(path)
	return err
}

// StartTime is not known on this system: 0.
func StartTime(int) uint64 { return 0 }

// CleanUp removes the state file.
func CleanUp(_ context.Context, stateFile string) error { return os.Remove(stateFile) }
