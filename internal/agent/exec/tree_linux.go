package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const walkMethod = MethodSubreaper

// becomeSubreaper makes orphans of descendants children of this process instead of init's.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// attributes of a step's first process: a session of its own, death with the agent, and the step's cgroup.
func (t *Tree) attributes(step int) (*syscall.SysProcAttr, func(), error) {
	// The signal follows the thread that forks; the Go runtime ends a thread only when a goroutine returns while locked to
	// it, which the agent never does.
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if t.group == nil {
		return attr, func() {}, nil
	}
	dir, err := t.group.openStep(step)
	if err != nil {
		return nil, nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return attr, func() { dir.Close() }, nil
}

// signalName is that of a number, ” for none.
func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }

// Terminate asks every process of a step to go (SIGTERM).
func (t *Tree) Terminate(step int) {
	if t.group != nil {
		for _, pid := range t.group.pids(step) {
			if p, ok := readProcess(pid); ok {
				p.signal(unix.SIGTERM)
			}
		}
		return
	}
	w := t.newWalk(step)
	w.pass(func(p process) { p.signal(unix.SIGTERM) })
}

// KillStep kills every process of a step, and nothing that an earlier step left running.
func (t *Tree) KillStep(ctx context.Context, step int) error {
	t.begin.Lock() // not the box, which may be in the step's cgroup just now
	defer t.begin.Unlock()
	if t.group != nil {
		if err := t.group.kill(ctx, step); err != nil {
			return err
		}
	}
	return t.newWalk(step).freezeAndKill(ctx)
}

// Kill kills every process of the job.
func (t *Tree) Kill(ctx context.Context) error {
	if t.group != nil {
		if err := t.group.kill(ctx, anyStep); err != nil {
			return err
		}
	}
	err := t.newWalk(anyStep).freezeAndKill(ctx)
	t.reap()
	return err
}

// reapOrphans collects adopted children that died, until the returned function is called. A process that adopts orphans
// is the only one that can.
func (t *Tree) reapOrphans() (stop func()) {
	if !t.opts.Exclusive {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				t.reap()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// reap collects dead adopted children. Only an exclusive tree may: elsewhere a dead child can be somebody else's.
func (t *Tree) reap() {
	if !t.opts.Exclusive {
		return
	}
	self := os.Getpid()
	t.mu.Lock()
	defer t.mu.Unlock()
	eachProcess(func(p process) {
		if _, ours := t.roots[p.pid]; !ours && p.ppid == self && p.dead() {
			reapOne(p.pid)
		}
	})
}

func reapOne(pid int) { _, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) }

func signalOf(s *os.ProcessState) (string, int) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return "", 0
	}
	return unix.SignalName(ws.Signal()), 128 + int(ws.Signal())
}

func executable(path string) error {
	if info, err := os.Stat(path); err != nil {
		return err
	} else if info.IsDir() {
		return errors.New("is a directory")
	}
	return unix.Access(path, unix.X_OK)
}

// CleanUp ends the processes of a job whose agent died, by its state file, and removes the file. It does nothing while
// that agent lives.
func CleanUp(ctx context.Context, stateFile string) error {
	s, err := ReadState(stateFile)
	if err != nil {
		return err
	}
	if st := StartTime(s.Pid); st != 0 && st == s.StartTime {
		return fmt.Errorf("the agent of job %s is alive (pid %d)", s.JobID, s.Pid)
	}
	if s.Cgroup != "" {
		g := &group{path: s.Cgroup}
		if err := g.kill(ctx, anyStep); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := g.remove(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if s.Marker != "" {
		w := &walk{adopted: func(p process) bool { return p.hasEnv(s.Marker) }, since: s.StartTime}
		if err := w.freezeAndKill(ctx); err != nil {
			return err
		}
	}
	return os.Remove(stateFile)
}
