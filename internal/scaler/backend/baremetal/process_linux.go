package baremetal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/service"
)

// process is one identified process: its pidfd was opened, and then its start time was found to be the expected one, so the
// descriptor can never mean another process. done is closed when its exit was seen.
type process struct {
	pid   int
	start uint64
	file  *os.File // the pidfd
	done  chan struct{}

	mu     sync.Mutex
	exited bool
	detail string // "exited with 3", '' when unknown
}

var errNoProcess = errors.New("no such process")

// openProcess identifies a process by pid and start time and watches it. errNoProcess: it is gone, or another has its pid.
func openProcess(pid int, start uint64, onExit func()) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errNoProcess
	}
	if err != nil {
		return nil, fmt.Errorf("open pidfd of %d: %w", pid, err)
	}
	p := &process{pid: pid, start: start, file: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	now, err := startTime(pid)
	if err != nil || now != start {
		p.close()
		return nil, errNoProcess
	}
	go p.watch(onExit)
	return p, nil
}

// watch waits for the exit in the runtime's poller; no thread is held. It ends with close, too.
func (p *process) watch(onExit func()) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	if conn.Read(p.look) == nil {
		onExit()
	}
}

// look reports whether the process has exited, and reaps it when it is our child.
func (p *process) look(fd uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		return true
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG, nil)
	switch {
	case err == nil && info.Signo != 0:
		p.detail = describeExit(&info)
	case errors.Is(err, unix.ECHILD): // not our child, or no more
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
			return false
		}
	default:
		return false
	}
	p.exited = true
	close(p.done)
	return true
}

// Codes of a child's end in siginfo.
const cldExited = 1

// exitedWith is how the end of a process begins that was not killed.
const exitedWith = "exited with "

// describeExit reads what became of a child: pid, uid and status stand behind the head of siginfo, which is aligned to a word.
func describeExit(info *unix.Siginfo) string {
	const head = 3*4 + (unsafe.Sizeof(uintptr(0)) - 4)
	status := *(*int32)(unsafe.Add(unsafe.Pointer(info), head+8))
	if info.Code == cldExited {
		return exitedWith + strconv.Itoa(int(status))
	}
	return "killed by " + unix.SignalName(unix.Signal(status))
}

// gone reports whether the exit was seen, looking now.
func (p *process) gone() bool {
	gone := true // a closed descriptor belongs to an agent that was deleted
	if conn, err := p.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { gone = p.look(fd) })
	}
	return gone
}

// pidfdProcessGroup is PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9).
const pidfdProcessGroup = 1 << 2

// signal sends to the process group that the process leads. Once its exit was seen nothing is sent: the numbers may belong
// to somebody else (BM-17).
func (p *process) signal(sig unix.Signal) error {
	if p.gone() {
		return nil
	}
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = conn.Control(func(fd uintptr) {
		sent = unix.PidfdSendSignal(int(fd), sig, nil, pidfdProcessGroup)
		if errors.Is(sent, unix.EINVAL) {
			// Older kernels: the process was alive a moment ago and holds its number as group id.
			sent = unix.Kill(-p.pid, sig)
		}
	})
	if err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

func (p *process) close() { _ = p.file.Close() }

// startTime reads field 22 of /proc/<pid>/stat: clock ticks after boot. A process that is only a corpse has none.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, errNoProcess
	}
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("stat of process %d is not understood", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// bootID names this boot of the machine.
func bootID() (string, error) {
	if id := service.BootID(); id != "" {
		return id, nil
	}
	return "", errors.New("read boot id: there is none in /proc")
}
