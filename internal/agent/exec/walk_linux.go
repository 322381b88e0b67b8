package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// walk finds processes by descent and by their environment in /proc, and kills them so that none can fork its way out:
// everything found is stopped at once, and looked for again until a pass finds nothing new; a stopped process cannot
// fork, so this ends. One pass can miss a chain whose every member forks the next and goes. So an empty pass counts as
// proof only when no process was made anywhere while it looked; on a machine that never rests, many empty passes do.
type walk struct {
	roots   map[int]bool       // these and their descendants
	adopted func(process) bool // further, any process for which this is true
	since   uint64             // nothing that started before is looked at closely; in the kernel's ticks
	sure    bool               // a cgroup was killed as a whole: an empty pass is believed at once
	found   map[int]uint64     // pid → start time
}

// How many empty passes in a row are believed when processes are made all the time: each one misses a chain of 2 ms a
// member about once in four on a busy machine. With many processes a pass is slow, so time bounds their number.
const (
	fewPasses  = 8
	manyPasses = 40
	passesFor  = 500 * time.Millisecond
)

func (t *Tree) newWalk(step int) *walk {
	w := &walk{roots: map[int]bool{}, since: t.started, sure: t.group != nil}
	t.mu.Lock()
	others := map[int]bool{}
	for pid, s := range t.roots {
		if step == anyStep || s == step {
			w.roots[pid] = true
		} else {
			others[pid] = true
		}
	}
	t.mu.Unlock()
	want := markers(t.opts.JobID, step)
	w.adopted = func(p process) bool {
		if others[p.pid] {
			return false
		}
		return t.opts.Exclusive && step == anyStep && p.ppid == os.Getpid() || p.hasEnv(want...)
	}
	return w
}

func (w *walk) freezeAndKill(ctx context.Context) error {
	for {
		began := time.Now()
		for empty := 0; ctx.Err() == nil; { // after ctx, kill what is stopped all the same
			before := lastPid()
			if w.pass(func(p process) { p.signal(unix.SIGSTOP) }) > 0 {
				empty, began, w.sure = 0, time.Now(), false
				continue
			}
			empty++
			if w.sure || before != 0 && before == lastPid() || empty >= manyPasses || empty >= fewPasses && time.Since(began) > passesFor {
				break
			}
		}
		if len(w.found) == 0 {
			return nil
		}
		for pid, start := range w.found {
			process{pid: pid, start: start}.signal(unix.SIGKILL)
		}
		if err := w.awaitDeath(ctx); err != nil {
			return err
		}
		w.found = nil
	}
}

// lastPid is the number of the youngest process or thread of this pid namespace, 0 when it cannot be read.
func lastPid() int {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data[bytes.LastIndexByte(data, ' ')+1:])))
	return pid
}

// pass looks at every process once and calls act for those of the tree that were not found before, at once: the less
// time passes between seeing and stopping a process, the less it can do in between.
func (w *walk) pass(act func(process)) (fresh int) {
	if w.found == nil {
		w.found = map[int]uint64{}
	}
	eachProcess(func(p process) {
		if p.dead() {
			return
		}
		if start, ok := w.found[p.pid]; ok && start == p.start {
			return
		}
		if !w.owns(p) {
			return
		}
		act(p)
		w.found[p.pid] = p.start
		fresh++
	})
	return fresh
}

func (w *walk) owns(p process) bool {
	if w.roots[p.pid] {
		return true
	}
	if _, ok := w.found[p.ppid]; ok {
		return true
	}
	return p.start >= w.since && p.pid != os.Getpid() && w.adopted(p)
}

// awaitDeath waits until no process that was killed is alive. Adopted ones are reaped here: nobody else knows of them.
func (w *walk) awaitDeath(ctx context.Context) error {
	self := os.Getpid()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for pid, start := range maps.Clone(w.found) {
			p, ok := readProcess(pid)
			if !ok || p.start != start || p.dead() {
				if ok && p.ppid == self && !w.roots[pid] {
					reapOne(pid)
				}
				delete(w.found, pid)
			}
		}
		if len(w.found) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			left := slices.Sorted(maps.Keys(w.found))
			return fmt.Errorf("processes %v did not die: %w", left, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// process is what /proc says about one.
type process struct {
	pid, ppid int
	state     byte
	kernel    bool // a kernel thread
	start     uint64
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// signal sends to this process, and to no other that has got its number meanwhile: the handle is opened before the start is looked at
// again. Where processes come and go by thousands and die of want of memory, numbers are given out anew within seconds.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		_ = unix.Kill(p.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// hasEnv reports whether the process was started with all entries in its environment.
func (p process) hasEnv(entries ...string) bool {
	file := "/proc/" + strconv.Itoa(p.pid) + "/environ"
	env, err := os.ReadFile(file)
	if err == nil && len(env) == 0 && !p.kernel { // as it is for a moment in exec
		time.Sleep(time.Millisecond)
		env, err = os.ReadFile(file)
	}
	if err != nil {
		return false
	}
	env = append([]byte{0}, env...)
	for _, e := range entries {
		if !bytes.Contains(env, []byte("\x00"+e+"\x00")) {
			return false
		}
	}
	return true
}

func eachProcess(f func(process)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				if p, ok := readProcess(pid); ok {
					f(p)
				}
			}
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	p, err := parseStat(data)
	return p, err == nil
}

var errStat = errors.New("not a stat line")

// parseStat reads "pid (comm) state ppid … starttime …". comm may hold anything, also blanks and parentheses.
func parseStat(data []byte) (process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return process{}, errStat
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return process{}, errStat
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(string(data[:open])))
	ppid, err2 := strconv.Atoi(fields[1])
	flags, err3 := strconv.ParseUint(fields[6], 10, 64)
	start, err4 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return process{}, err
	}
	const kernelThread = 0x200000 // PF_KTHREAD
	return process{pid: pid, ppid: ppid, state: fields[0][0], kernel: flags&kernelThread != 0, start: start}, nil
}

// StartTime identifies a process together with its pid; 0 when there is none.
func StartTime(pid int) uint64 {
	p, ok := readProcess(pid)
	if !ok || p.dead() {
		return 0
	}
	return p.start
}
