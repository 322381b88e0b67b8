package baremetal

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// process is one identified process: by its pid and when it started. There is no handle that would keep the pid from being given to
// another, so it is looked at before every signal. done is closed when its exit was seen.
type process struct {
	pid   int
	start uint64 // microseconds since 1970
	done  chan struct{}
	quit  chan struct{}

	mu     sync.Mutex
	exited bool
	detail string
}

var errNoProcess = errors.New("no such process")

// exitedWith is how the end of a process begins that was not killed.
const exitedWith = "exited with "

// lookEvery is how often an exit is looked for.
const lookEvery = 200 * time.Millisecond

func openProcess(pid int, start uint64, onExit func()) (*process, error) {
	p := &process{pid: pid, start: start, done: make(chan struct{}), quit: make(chan struct{})}
	if now, err := startTime(pid); err != nil || now != start {
		return nil, errNoProcess
	}
	go p.watch(onExit)
	return p, nil
}

func (p *process) watch(onExit func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			if p.gone() {
				onExit()
				return
			}
		}
	}
}

// gone reports whether the exit was seen, looking now; a child of ours is reaped.
func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		return true
	}
	var ws unix.WaitStatus
	pid, err := unix.Wait4(p.pid, &ws, unix.WNOHANG, nil)
	switch {
	case err == nil && pid == p.pid && ws.Signaled():
		p.detail = "killed by " + unix.SignalName(ws.Signal())
	case err == nil && pid == p.pid:
		p.detail = exitedWith + strconv.Itoa(ws.ExitStatus())
	case errors.Is(err, unix.ECHILD): // not our child
		if now, err := startTime(p.pid); err == nil && now == p.start {
			return false
		}
	default:
		return false
	}
	p.exited = true
	close(p.done)
	return true
}

// signal sends to the process group that the process leads, unless its exit was seen (BM-17).
func (p *process) signal(sig unix.Signal) error {
	if p.gone() {
		return nil
	}
	err := unix.Kill(-p.pid, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (p *process) close() { close(p.quit) }

// startTime is when a process started; a corpse has none.
func startTime(pid int) (uint64, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	const zombie = 5 // SZOMB
	if err != nil || info.Proc.P_pid != int32(pid) || info.Proc.P_stat == zombie {
		return 0, errNoProcess
	}
	t := info.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec), nil
}

// bootID names this boot of the machine.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return id, nil
}
