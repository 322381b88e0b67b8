package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
)

// The storm: so many jobs against so many agents at once.
const (
	stormCap     = 20
	stormRuns    = 20
	stormJobs    = 10 // of a run
	stormCancels = 4  // runs that are cancelled
	stormSeed    = "KICI_TEST_SEED"
	stormPatient = 5 * time.Minute // for a machine that is ten times slower
)

// stormWorkflow makes jobs that take their time, leave a process behind, and sometimes fail.
const stormWorkflow = `name: storm
on: push
jobs:
  j:
    runs-on: linux
    checkout: false
    strategy:
      fail-fast: false
      matrix:
        n: [%s]
    steps:
      - run: |
          echo "${{ kici.run_id }} ${{ matrix.n }}" >> "%%[1]s/ran"
          sleep 300 &
          case ${{ matrix.n }} in
          %s
          esac
`

// stormScalers also counts processors, memory and a machine pool, in which what is left over would be seen.
const stormScalers = `version: 1
machinePools: [{name: storm, cap: {maxCpu: 64, maxMemory: 64g}}]
scalers:
  - name: storm
    type: bare-metal
    maxAgents: %d
    allowRoot: true
    machinePool: storm
    resourceCap: {maxCpu: 64, maxMemory: 64g}
    labelSets:
      - labels: [linux]
        binaryPath: %q
        resources: {cpus: 0.25, memory: 64m}
`

// storm is a world whose agents die in every way, by a seed.
type storm struct {
	*world
	rng     *rand.Rand
	program string     // what the scaler starts: notes its process, and is the agent
	born    string     // folder of those notes
	whole   sync.Mutex // the program is there: without it no server starts
	killed  atomic.Int64
	refused atomic.Int64
	most    atomic.Int64 // agents in the ledger at once
}

// TestCapWithRandomFailures is the storm: agents are killed before they register and in their steps, the host refuses launches, jobs fail,
// runs are cancelled, and the server is killed and started again. In the end nothing is used, anywhere.
func TestCapWithRandomFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for half a minute")
	}
	engines(t, func(t *testing.T, databaseURL func(*testing.T) string) {
		if strings.HasSuffix(t.Name(), "/postgres") && os.Getenv("KICI_TEST_CRASH_POINTS") != "all" {
			t.Skip("on PostgreSQL with KICI_TEST_CRASH_POINTS=all (make crash) only: it is the same ledger, and takes as long again")
		}
		seed := uint64(time.Now().UnixNano())
		if n, err := strconv.ParseUint(os.Getenv(stormSeed), 10, 64); err == nil {
			seed = n
		}
		t.Logf("%s=%d", stormSeed, seed)
		began := time.Now()
		s := newStorm(t, databaseURL(t), seed)
		quiet := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() { s.killAtBirth(rand.New(rand.NewPCG(seed, 2)), quiet) })
		chaos.Go(func() { s.refuse(rand.New(rand.NewPCG(seed, 3)), quiet) })
		chaos.Go(func() { s.watchCap(quiet) })
		for i := range stormRuns {
			if status := s.push(fmt.Sprintf("push-%d", i)); status != http.StatusAccepted {
				t.Fatalf("answered %d", status)
			}
		}
		s.until("all runs are there", stormPatient, func() bool { return len(s.runs()) == stormRuns })
		s.cancelSome()
		for _, part := range []int{4, 2} { // after a quarter of the runs, and after half of them
			s.until("runs end", stormPatient, func() bool { return s.endedRuns() >= stormRuns/part })
			s.killServer()
		}
		s.until("all runs end", stormPatient, func() bool { return s.endedRuns() == stormRuns })
		close(quiet)
		chaos.Wait()
		s.judge()
		s.expectNothingUsed()
		t.Logf("%d jobs in %s; %d agents killed, %d times the host refused for a while, at most %d agents at once",
			stormRuns*stormJobs, time.Since(began).Round(time.Second), s.killed.Load(), s.refused.Load(), s.most.Load())
		s.stop()
	})
}

func newStorm(t *testing.T, databaseURL string, seed uint64) *storm {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []string
	var fates strings.Builder
	for n := range stormJobs {
		list = append(list, strconv.Itoa(n))
		exit := 0
		if rng.IntN(5) == 0 {
			exit = 1 + rng.IntN(3)
		}
		fmt.Fprintf(&fates, "%d) sleep 0.%d; exit %d;;\n          ", n, 1+rng.IntN(5), exit)
	}
	w := newWorld(t, databaseURL, fmt.Sprintf(stormWorkflow, strings.Join(list, ", "), fates.String()))
	s := &storm{world: w, rng: rng, program: filepath.Join(w.dir, "agent.sh"), born: filepath.Join(w.dir, "born")}
	w.role.Pools, w.role.BackoffMax = filepath.Join(w.dir, "pools"), 400*time.Millisecond
	script := fmt.Sprintf("#!/bin/sh\n: > %q/$$\nexec %q agent\n", s.born, s.agentProgram())
	s.write(s.program, script, 0o755)
	s.write(filepath.Join(w.role.DataDir, "scalers.yaml"), fmt.Sprintf(stormScalers, stormCap, s.program), 0o600)
	if err := os.Mkdir(s.born, 0o755); err != nil {
		t.Fatal(err)
	}
	s.start(0)
	return s
}

func (s *storm) write(path, text string, mode fs.FileMode) {
	s.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// agentProgram is the real one: hundreds of agents under the race detector would say nothing about the server, slowly.
func (s *storm) agentProgram() string {
	s.t.Helper()
	path := filepath.Join(s.dir, "kici")
	cmd := exec.Command("go", "build", "-o", path, "github.com/kici-go/kici/cmd/kici")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("build the agent: %v: %s", err, out)
	}
	return path
}

// killAtBirth decides over each agent when it appears: it lives, dies while it starts, or dies later.
func (s *storm) killAtBirth(rng *rand.Rand, quiet <-chan struct{}) {
	var deaths sync.WaitGroup
	defer deaths.Wait()
	for pause(quiet, 2*time.Millisecond) {
		entries, _ := os.ReadDir(s.born)
		for _, e := range entries {
			_ = os.Remove(filepath.Join(s.born, e.Name()))
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			after := time.Duration(0)
			switch fate := rng.IntN(100); {
			case fate < 15:
				after = time.Duration(rng.IntN(25)) * time.Millisecond
			case fate < 30:
				after = time.Duration(50+rng.IntN(700)) * time.Millisecond
			default:
				continue
			}
			agent, err := os.FindProcess(pid) // by handle: never another one with its number
			if err != nil {
				continue
			}
			deaths.Go(func() {
				defer func() { _ = agent.Release() }()
				time.Sleep(after)
				if agent.Signal(syscall.SIGKILL) == nil {
					s.killed.Add(1)
				}
			})
		}
	}
}

// refuse takes the agents' program away now and then, so that the host refuses what is launched.
func (s *storm) refuse(rng *rand.Rand, quiet <-chan struct{}) {
	for pause(quiet, time.Duration(1000+rng.IntN(2000))*time.Millisecond) {
		s.whole.Lock()
		away := os.Rename(s.program, s.program+".away")
		s.refused.Add(1)
		time.Sleep(time.Duration(100+rng.IntN(300)) * time.Millisecond)
		back := os.Rename(s.program+".away", s.program)
		s.whole.Unlock()
		if err := errors.Join(away, back); err != nil {
			s.t.Error(err)
			return
		}
	}
}

// watchCap looks at the ledger, and at the host, which has no more agents than that.
func (s *storm) watchCap(quiet <-chan struct{}) {
	for pause(quiet, 100*time.Millisecond) {
		if n := s.running(); n > stormCap {
			s.t.Errorf("%d agents run, the cap is %d", n, stormCap)
		}
		list, err := s.api.Agents(s.t.Context(), false, "", "", 100)
		if err != nil {
			continue // the server is away
		}
		n := int64(len(list.Agents))
		if s.most.Store(max(s.most.Load(), n)); n > stormCap {
			s.t.Errorf("%d agents are in the ledger, the cap is %d", n, stormCap)
		}
	}
}

// running counts the agents' processes.
func (s *storm) running() (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); string(cmdline) == filepath.Join(s.dir, "kici")+"\x00agent\x00" {
			n++
		}
	}
	return n
}

func (s *storm) runs() []client.Run {
	list, err := s.api.Runs(s.t.Context(), client.RunQuery{Limit: 100})
	if err != nil {
		return nil
	}
	return list.Runs
}

func (s *storm) endedRuns() (n int) {
	for _, r := range s.runs() {
		if r.FinishedAt != nil {
			n++
		}
	}
	return n
}

func (s *storm) cancelSome() {
	runs := s.runs()
	for _, i := range s.rng.Perm(len(runs))[:stormCancels] {
		time.Sleep(time.Duration(s.rng.IntN(300)) * time.Millisecond)
		if _, err := s.api.Cancel(s.t.Context(), runs[i].ID, false, "a test"); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *storm) killServer() {
	s.whole.Lock()
	defer s.whole.Unlock()
	_ = s.cmd.Process.Kill()
	<-s.exited
	time.Sleep(time.Duration(s.rng.IntN(500)) * time.Millisecond)
	s.launch(0)
	s.until("the server is ready", stormPatient, func() bool {
		if s.dead() {
			s.t.Fatalf("the server does not start:\n%s", s.log)
		}
		return s.get("/ready") == http.StatusOK
	})
}

// judge looks at every job: it has ended, and ran at most once.
func (s *storm) judge() {
	s.t.Helper()
	lines, how := map[string]int{}, map[string]int{}
	for _, line := range s.ran() {
		lines[line]++
	}
	for line, n := range lines {
		if n > 1 {
			s.t.Errorf("job %q ran %d times", line, n)
		}
	}
	for _, r := range s.runs() {
		d, err := s.api.Run(s.t.Context(), r.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(d.Jobs) != stormJobs {
			s.t.Errorf("run %s has %d jobs", r.ID, len(d.Jobs))
		}
		for _, j := range d.Jobs {
			if how[j.Status]++; !ci.JobStatus(j.Status).Terminal() {
				s.t.Errorf("job %s is %s in a run that is %s", j.Name, j.Status, d.Status)
			}
		}
	}
	if how["success"] == 0 || how["failed"] == 0 {
		s.t.Errorf("the storm was none: %v", how)
	}
	s.t.Logf("jobs: %v", how)
}
