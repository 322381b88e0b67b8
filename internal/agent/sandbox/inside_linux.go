package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	osexec "os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlFD is where a box finds the socket to its agent.
const controlFD = 3

// Main is a box: it builds the sandbox around itself and starts what it is told, until its agent closes the socket. It is not the
// agent any more and holds nothing that its job may not have.
func Main() int {
	// What the kernel restricts is a thread. This one is restricted, and starts everything inside, so that all of it inherits that.
	runtime.LockOSThread()
	conn, err := fileConn(os.NewFile(controlFD, "control"))
	if err != nil {
		return 1
	}
	unix.CloseOnExec(controlFD)
	var first boot
	if err := readFrame(conn, maxFrame, &first); err != nil {
		return 1
	}
	report, err := enter(first)
	if err != nil {
		_ = writeFrame(conn, greeting{Error: err.Error()})
		return 1
	}
	if err := writeFrame(conn, greeting{Report: report}); err != nil {
		return 1
	}
	in := &inside{conn: conn, reaped: make(chan struct{}, 1)}
	// What ends a step is sent to all of its processes; this one is none of them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	go in.reap()
	for in.next() == nil {
	}
	return 0
}

// inside is a box at work.
type inside struct {
	conn   *net.UnixConn
	reaped chan struct{}

	mu   sync.Mutex
	root int // the process that was started last and is not reaped, 0 for none
}

// next starts one process and tells of its end.
func (in *inside) next() error {
	p, files, err := in.receive()
	if err != nil {
		return err
	}
	cmd := &osexec.Cmd{
		Path: p.Path, Args: p.Argv, Dir: p.Dir, Env: p.Env, Stdout: files[0], Stderr: files[1],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	in.mu.Lock() // no reaping before it is known whose it is
	err = cmd.Start()
	if err == nil {
		in.root = cmd.Process.Pid
	}
	in.mu.Unlock()
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return writeFrame(in.conn, answer{Error: err.Error(), Missing: errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)})
	}
	if err := writeFrame(in.conn, answer{Started: true}); err != nil {
		return err
	}
	_ = cmd.Wait()
	in.mu.Lock()
	in.root = 0
	in.mu.Unlock()
	select {
	case in.reaped <- struct{}{}:
	default:
	}
	e := Exit{Code: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e = Exit{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return writeFrame(in.conn, answer{Exit: &e})
}

// receive reads a process and the two files of its output.
func (in *inside) receive() (p Process, files []*os.File, err error) {
	head, space := make([]byte, 1), make([]byte, unix.CmsgSpace(2*4))
	n, used, _, _, err := in.conn.ReadMsgUnix(head, space)
	if err != nil {
		return p, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:used])
	if err != nil || n != 1 || len(messages) != 1 {
		return p, nil, fmt.Errorf("no files came with a process: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return p, nil, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "output"))
	}
	if len(files) != 2 {
		return p, nil, fmt.Errorf("%d files came with a process", len(files))
	}
	return p, files, readFrame(&prefixed{head, in.conn}, maxFrame, &p)
}

// prefixed reads what was read already, then on.
type prefixed struct {
	head []byte
	conn *net.UnixConn
}

func (r *prefixed) Read(into []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(into, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.conn.Read(into)
}

// reap collects orphans: in a namespace of processes this is the first one, and they are its children.
func (in *inside) reap() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without namespaces
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	for {
		for in.reapOne() {
		}
		select {
		case <-died:
		case <-in.reaped:
		}
	}
}

// reapOne reports whether there may be more. The process that next waits for is left to it.
func (in *inside) reapOne() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false
	}
	pid := childOf(&info)
	if pid == 0 || pid == in.root {
		return false
	}
	_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}
