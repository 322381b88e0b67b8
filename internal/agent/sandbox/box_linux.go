package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/ci"
)

// maxAnswer bounds what a box may say at once: it is a job's.
const maxAnswer = 64 << 10

// Box is a sandbox that runs. Its methods may be called one at a time, but for Close and Pid.
type Box struct {
	Report Report
	cmd    *osexec.Cmd
	conn   *net.UnixConn
	ended  chan struct{} // closed when its process has gone
	close  func() error
}

// Options say how a box is started.
type Options struct {
	Executable string   // this program
	Env        []string // of the box's own process
	Cgroup     *os.File // folder of the cgroup that it is born in; nil for its parent's
	// Started is called with the process as soon as there is one, before it does anything.
	Started func(pid int)
}

// Open builds a sandbox. Where namespaces cannot be had there is Landlock alone. Close must be called.
func Open(ctx context.Context, c Config, o Options) (*Box, error) {
	if os.Geteuid() == 0 {
		return nil, fmt.Errorf("%w: around root a sandbox holds little; run agents as another user (runAs)", ErrUnsupported)
	}
	b, err := open(ctx, c, o, true)
	if err == nil {
		return b, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	b, without := open(ctx, c, o, false)
	if without != nil {
		return nil, fmt.Errorf("%w: with namespaces: %w; without: %w", ErrUnsupported, err, without)
	}
	b.Report.Missing = append(b.Report.Missing, fmt.Sprintf("no namespaces (%v): the machine's processes can be seen, /tmp is closed, sockets outside can be reached", err))
	return b, nil
}

func open(ctx context.Context, c Config, o Options, namespaces bool) (*Box, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &osexec.Cmd{
		Path: o.Executable, Args: []string{o.Executable, Command}, Env: o.Env, Dir: "/", ExtraFiles: []*os.File{theirs},
		SysProcAttr: attributes(c, namespaces),
	}
	if o.Cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(o.Cgroup.Fd())
	}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, err
	}
	b := &Box{cmd: cmd, conn: ours, ended: make(chan struct{})}
	b.close = sync.OnceValue(b.end)
	if o.Started != nil {
		o.Started(cmd.Process.Pid)
	}
	go func() {
		_ = cmd.Wait()
		close(b.ended)
	}()
	if err := b.greet(ctx, boot{c, namespaces, os.Geteuid(), os.Getegid()}); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// boot is the first frame to a box.
type boot struct {
	Config     Config `json:"config"`
	Namespaces bool   `json:"namespaces"`
	UID        int    `json:"uid"` // of the agent, whose user the box has too
	GID        int    `json:"gid"`
}

// attributes of a box's process: it dies with the agent, and with it, in namespaces, everything inside.
func attributes(c Config, namespaces bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if !namespaces {
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	if c.Network == ci.NetworkIsolated {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	// It says itself who it is (identify): an agent that hides from its user's other processes may not say it for a child.
	// It is not root inside either, so its rights there must be told to stay when it becomes this program.
	for n := range uintptr(lastCapability() + 1) {
		attr.AmbientCaps = append(attr.AmbientCaps, n)
	}
	return attr
}

func (b *Box) greet(ctx context.Context, first boot) error {
	deadline := time.Now().Add(startWithin)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = b.conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { _ = b.conn.SetDeadline(time.Unix(1, 0)) })()
	var g greeting
	if err := errors.Join(writeFrame(b.conn, first), readFrame(b.conn, maxAnswer, &g)); err != nil {
		return b.lost("build the sandbox", err)
	}
	if g.Error != "" {
		return errors.New(g.Error)
	}
	b.Report = g.Report
	return b.conn.SetDeadline(time.Time{})
}

// lost explains an answer that did not come. Nobody else has the other end of the socket, so its end is that of the box.
func (b *Box) lost(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		select {
		case <-b.ended:
			return fmt.Errorf("%s: %w (%s)", what, ErrEnded, b.cmd.ProcessState)
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Pid of the box's process, as the agent sees it.
func (b *Box) Pid() int { return b.cmd.Process.Pid }

// Start starts a process inside, with the given output. It is born in the cgroup in which the box's process is at that moment. The
// returned function waits until it ends.
func (b *Box) Start(p Process, stdout, stderr *os.File) (wait func() (Exit, error), err error) {
	data, err := encode(p)
	if err != nil {
		return nil, err
	}
	_ = b.conn.SetDeadline(time.Now().Add(startWithin))
	rights := unix.UnixRights(int(stdout.Fd()), int(stderr.Fd()))
	n, _, err := b.conn.WriteMsgUnix(data, rights, nil)
	if err == nil && n < len(data) {
		_, err = b.conn.Write(data[n:])
	}
	var a answer
	if err == nil {
		err = readFrame(b.conn, maxAnswer, &a)
	}
	switch {
	case err != nil:
		return nil, b.lost("start in the sandbox", err)
	case a.Missing:
		return nil, fmt.Errorf("%w: %s", ErrNotVisible, a.Error)
	case !a.Started:
		return nil, errors.New(a.Error)
	}
	return b.wait, b.conn.SetDeadline(time.Time{})
}

func (b *Box) wait() (Exit, error) {
	for { // a process that has ended may have been told about before its box ended
		var a answer
		if err := readFrame(b.conn, maxAnswer, &a); err != nil {
			return Exit{}, b.lost("the step", err)
		}
		if a.Exit != nil {
			return *a.Exit, nil
		}
	}
}

// Close ends the box. In namespaces everything inside ends with it.
func (b *Box) Close() { _ = b.close() }

func (b *Box) end() error {
	err := b.conn.Close()
	_ = b.cmd.Process.Kill()
	<-b.ended
	return err
}

// socketPair makes the agent's end as a connection and the box's as a file.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "sandbox")
	ours, err = fileConn(os.NewFile(uintptr(fds[0]), "sandbox"))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

func fileConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a socket of this machine"), c.Close())
	}
	return u, nil
}
