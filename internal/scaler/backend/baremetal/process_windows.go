package baremetal

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/windows"
)

// process is one identified process: its handle was opened, and then it was created when expected, so the handle can never mean
// another. done is closed when its exit was seen.
type process struct {
	pid    int
	start  uint64 // when it was created, in 100 ns since 1601
	handle windows.Handle
	quit   windows.Handle // an event that ends the watch
	done   chan struct{}

	mu     sync.Mutex
	exited bool
	closed bool
	detail string
	over   chan struct{} // the watch has ended
}

var errNoProcess = errors.New("no such process")

// exitedWith is how the end of a process begins that was not killed.
const exitedWith = "exited with "

const processRights = windows.SYNCHRONIZE | windows.PROCESS_QUERY_LIMITED_INFORMATION | windows.PROCESS_TERMINATE

func openProcess(pid int, start uint64, onExit func()) (*process, error) {
	h, err := windows.OpenProcess(processRights, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil, errNoProcess
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	if now, err := createdAt(h); err != nil || now != start {
		return nil, errors.Join(errNoProcess, windows.CloseHandle(h))
	}
	quit, err := windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make an event: %w", err), windows.CloseHandle(h))
	}
	p := &process{pid: pid, start: start, handle: h, quit: quit, done: make(chan struct{}), over: make(chan struct{})}
	go p.watch(onExit)
	return p, nil
}

// watch waits for the exit; it holds a thread. It ends with close, too, and then closes the handles.
func (p *process) watch(onExit func()) {
	which, err := windows.WaitForMultipleObjects([]windows.Handle{p.handle, p.quit}, false, windows.INFINITE)
	if err == nil && which == windows.WAIT_OBJECT_0 {
		p.gone()
		onExit()
	}
	close(p.over)
}

// gone reports whether the exit was seen, looking now.
func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited || p.closed {
		return true
	}
	if event, err := windows.WaitForSingleObject(p.handle, 0); err != nil || event != windows.WAIT_OBJECT_0 {
		return false
	}
	var code uint32
	if windows.GetExitCodeProcess(p.handle, &code) == nil {
		p.detail = exitedWith + strconv.FormatUint(uint64(code), 10)
	}
	p.exited = true
	close(p.done)
	return true
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	_ = windows.SetEvent(p.quit)
	go func() { // the watch may be about to ask for the lock
		<-p.over
		_ = windows.CloseHandle(p.handle)
		_ = windows.CloseHandle(p.quit)
	}()
}

// startTime is when a process was created; the number of one that has ended may be another's.
func startTime(pid int) (uint64, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, errNoProcess
	}
	defer func() { _ = windows.CloseHandle(h) }()
	return createdAt(h)
}

func createdAt(h windows.Handle) (uint64, error) {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return 0, fmt.Errorf("ask when a process was created: %w", err)
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime), nil
}

// bootID is the same for every boot: when a process was created tells it from one of another boot.
func bootID() (string, error) { return "windows", nil }
