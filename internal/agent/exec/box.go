package exec

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kici-go/kici/internal/agent/sandbox"
)

// Confine puts every process that starts from now on into a sandbox, and says what it enforces. Executable is this program. It is called
// once, before the first step.
func (t *Tree) Confine(ctx context.Context, c sandbox.Config, executable string) (sandbox.Report, error) {
	o := sandbox.Options{Executable: executable, Env: t.Env(anyStep)}
	if t.group != nil {
		dir, err := os.Open(t.group.path)
		if err != nil {
			return sandbox.Report{}, fmt.Errorf("open the job's cgroup: %w", err)
		}
		defer dir.Close()
		o.Cgroup = dir
	}
	t.mu.Lock() // what dies meanwhile is reaped by who started it
	defer t.mu.Unlock()
	o.Started = func(pid int) {
		t.roots[pid] = anyStep
		offerToKill(pid) // what starts inside has its score; of equals the kernel takes the largest
	}
	box, err := sandbox.Open(ctx, c, o)
	if err != nil {
		clear(t.roots)
		return sandbox.Report{}, err
	}
	clear(t.roots) // of a box that was tried and has gone
	t.roots[box.Pid()] = anyStep
	t.box = box
	return box.Report, nil
}

// startInside has the box start a process. It is born where the box is, so the box goes into the step's cgroup for that moment.
func (t *Tree) startInside(path string, s Spec, stdout, stderr *os.File) (wait func() (Result, error), err error) {
	t.begin.Lock()
	defer t.begin.Unlock()
	if t.group != nil {
		if err := t.group.enter(s.Step, t.box.Pid()); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, t.group.enter(anyStep, t.box.Pid())) }()
	}
	ended, err := t.box.Start(sandbox.Process{Path: path, Argv: s.Argv, Dir: s.Dir, Env: s.Env}, stdout, stderr)
	if errors.Is(err, sandbox.ErrNotVisible) {
		return nil, fmt.Errorf("%w; show its folder to jobs by sandboxPaths of the scaler", err)
	}
	if err != nil {
		return nil, err
	}
	return func() (Result, error) {
		e, err := ended()
		if err != nil {
			return Result{}, err
		}
		return Result{ExitCode: e.Code, Signal: signalName(e.Signal)}, nil
	}, nil
}

// leaveBox ends the box, and everything that is still inside.
func (t *Tree) leaveBox() {
	if t.box == nil {
		return
	}
	t.box.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.roots, t.box.Pid())
}
