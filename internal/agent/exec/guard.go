package exec

import (
	"fmt"
	"io"
	osexec "os/exec"
)

// Guard is a process that outlives this one if it must: it waits for the end of its standard input, which this process holds
// and which the kernel closes when this process ends in any way, and then does what it was started for. It stands in a session
// of its own, so that no terminal's signal reaches it.
type Guard struct {
	cmd  *osexec.Cmd
	hold io.Closer
}

// StartGuard starts argv as a guard.
func StartGuard(argv []string) (*Guard, error) {
	cmd := osexec.Command(argv[0], argv[1:]...) //nolint:noctx // it outlives every context of this process
	cmd.SysProcAttr = detached()
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &Guard{cmd: cmd, hold: hold}, nil
}

// Release lets the guard go and waits until it has gone.
func (g *Guard) Release() {
	_ = g.hold.Close()
	_ = g.cmd.Wait() // its verdict is for nobody: there was nothing left to do
}
