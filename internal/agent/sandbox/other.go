//go:build !linux

package sandbox

import (
	"context"
	"fmt"
	"os"
)

// Box is a sandbox that runs; there is none on this system.
type Box struct{ Report Report }

// Options say how a box is started.
type Options struct {
	Executable string
	Env        []string
	Cgroup     *os.File
	Started    func(pid int)
}

// Open always fails: sandboxes exist on Linux.
func Open(context.Context, Config, Options) (*Box, error) {
	return nil, fmt.Errorf("%w: it exists on Linux only", ErrUnsupported)
}

// Main is never called.
func Main() int { return 1 }

// Start is never called.
func (*Box) Start(Process, *os.File, *os.File) (func() (Exit, error), error) { return nil, ErrEnded }

// Pid is never called.
func (*Box) Pid() int { return 0 }

// Close does nothing.
func (*Box) Close() {}
