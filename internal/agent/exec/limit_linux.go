package exec

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/kici-go/kici/internal/cgroup"
)

// limits tells which limit of this process's cgroup was hit. Steps are bounded together with their agent, so it is the agent's
// cgroup that counts; the leaves below have no limits of their own.
type limits struct {
	meter cgroup.Meter
	held  cgroup.Limits
}

func newLimits() *limits {
	place, err := cgroup.PlaceOf(os.Getpid())
	if err != nil {
		return &limits{} // it counts nothing
	}
	m := place.Meter()
	l := &limits{m, m.Limits()}
	if l.held.Tasks > 0 {
		reserveOnce.Do(func() { reserveThreads(spareThreads) })
	}
	return l
}

// spareThreads are made before a job begins. A job that has taken all tasks of the cgroup leaves none for the agent, and the Go runtime
// ends a process that needs a thread and gets none: the agent could not tell what happened. A thread stays once it is there.
const spareThreads = 32

var reserveOnce sync.Once

func reserveThreads(n int) {
	var made, left sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		left.Go(func() {
			runtime.LockOSThread() // waiting takes a thread of its own now
			made.Done()
			<-release
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		})
	}
	made.Wait()
	close(release)
	left.Wait()
}

// watch begins to count; what it returns says which limit was hit since then, ” when none was.
func (l *limits) watch() (hit func() string) {
	before := l.meter.Count()
	return func() string { return l.held.Blame(before, l.meter.Count()) }
}

// stepScore is by how much a step's processes are preferred to its agent when memory runs out, in thousandths of the memory there is:
// the agent must live to tell of it.
const stepScore = 500

// offerToKill raises a process's score, which its children inherit. Where that fails the kernel chooses by size alone.
func offerToKill(pid int) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return
	}
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(min(score+stepScore, 1000))), 0)
}
