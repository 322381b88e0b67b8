package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

// Campaign plays many seeds in processes of their own: a bubble has one processor to itself, and what hangs or panics is one seed.
type Campaign struct {
	Program      string   // this test binary
	Args         []string // that make it call Worker
	Seeds        []uint64
	Coordinators int
	Processes    int           // 0 is one a processor that Go may use (GOMAXPROCS)
	Limit        time.Duration // real time of one seed; 0 is two minutes
	Budget       time.Duration // real time of all; what is left over then is not played; 0 is none
	StopAtFirst  bool          // failure
	Each         func(Result)  // as they come, one at a time; may be nil
	Verbose      bool          // the whole trace to standard error
	Server       string        // of PostgreSQL: the worlds are in real time, and their databases there; "" is virtual time
}

// workerVariable holds a task.
const workerVariable = "KICI_TEST_SIM_WORKER"

// task is what one process plays.
type task struct {
	Seeds        []uint64
	Coordinators int
	Limit        time.Duration
	Dir          string
	Verbose      bool
	Server       string
}

// IsWorker reports whether this process is to call Worker and do nothing else.
func IsWorker() bool { return os.Getenv(workerVariable) != "" }

const defaultLimit = 2 * time.Minute

// Run plays the seeds and returns those that failed.
func (c Campaign) Run(ctx context.Context) (played int, failed []Result) {
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.Processes == 0 {
		c.Processes = runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Budget)
		defer cancel()
	}
	seeds := make(chan uint64)
	go func() {
		defer close(seeds)
		for _, s := range c.Seeds {
			select {
			case seeds <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range c.Processes {
		group.Go(func() {
			for {
				batch := take(seeds, c.batch())
				if len(batch) == 0 {
					return
				}
				c.play(ctx, batch, func(r Result) {
					mu.Lock()
					defer mu.Unlock()
					played++
					if c.Each != nil {
						c.Each(r)
					}
					if len(r.Violations) > 0 {
						failed = append(failed, r)
						if c.StopAtFirst {
							stop()
						}
					}
				})
			}
		})
	}
	group.Wait()
	return played, failed
}

// batch is how many seeds one process plays: one after the other in real time would keep the other processes waiting.
func (c Campaign) batch() int {
	if c.Server != "" {
		return 1
	}
	return 4
}

func take(seeds <-chan uint64, n int) (out []uint64) {
	for s := range seeds {
		if out = append(out, s); len(out) == n {
			break
		}
	}
	return out
}

// play runs seeds in a process; when that dies it goes on with the next one behind the one that it died of.
func (c Campaign) play(ctx context.Context, seeds []uint64, done func(Result)) {
	for len(seeds) > 0 && ctx.Err() == nil {
		n, err := c.process(ctx, seeds, done)
		seeds = seeds[min(n, len(seeds)):]
		if err == nil || ctx.Err() != nil {
			return
		}
		if len(seeds) > 0 {
			done(Result{Seed: seeds[0], Violations: []string{"process: " + err.Error()}})
			seeds = seeds[1:]
		}
	}
}

func (c Campaign) process(ctx context.Context, seeds []uint64, done func(Result)) (n int, err error) {
	dir, err := os.MkdirTemp(fastDisk(), "kici-sim-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text, err := json.Marshal(task{Seeds: seeds, Coordinators: c.Coordinators, Limit: c.Limit, Dir: dir, Verbose: c.Verbose, Server: c.Server})
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, c.Program, c.Args...)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	if c.Server == "" {
		cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if c.Verbose {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	other := ""
	for lines.Scan() {
		var r Result
		if line, ok := strings.CutPrefix(lines.Text(), resultMark); ok && json.Unmarshal([]byte(line), &r) == nil {
			n++
			done(r)
			continue
		}
		other += lines.Text() + "\n"
	}
	if err := cmd.Wait(); err != nil && n < len(seeds) {
		return n, fmt.Errorf("%w\n%s\n%s", err, tail(other, 20_000), tail(stderr.String(), 60_000))
	}
	return n, nil
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// fastDisk is a directory in memory, if there is one.
func fastDisk() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return ""
}

const resultMark = "sim-result "

// Worker plays the seeds of this process's task.
func Worker(t *testing.T) {
	var w task
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &w); err != nil {
		t.Fatal(err)
	}
	if w.Server == "" {
		alone()
	}
	for _, s := range w.Seeds {
		watchdog := time.AfterFunc(w.Limit, func() {
			buf := make([]byte, 4<<20)
			fmt.Fprintf(os.Stderr, "seed %d hangs\n%s\n", s, buf[:runtime.Stack(buf, true)])
			os.Exit(3)
		})
		o := Options{Seed: s, Coordinators: w.Coordinators, Dir: filepath.Join(w.Dir, "world"), Server: w.Server}
		if w.Verbose {
			o.Verbose = os.Stderr
		}
		r := Run(t, o)
		watchdog.Stop()
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(resultMark + string(text))
		runtime.GC()
	}
}

// alone makes the scheduler repeat itself: one processor, and no collector that stops goroutines in the middle.
func alone() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
}

// Range is n seeds from first.
func Range(first uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = first + uint64(i)
	}
	return out
}
