package harness

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowWorkflow waits, in its step, for a file; then it writes a last line and is done.
const slowWorkflow = `name: ci
on: push
jobs:
  slow:
    runs-on: linux
    steps:
      - run: |
          echo begun >> "%[1]s/ran"
          ( while sleep 0.1; do :; done ) &
          until [ -e "%[1]s/go" ]; do sleep 0.02; done
          echo the last line
          touch "%[1]s/last"
          sleep 0.2
`

// TestAgentKilled kills the agent with SIGKILL before it registers, in a step, and after its last line. A job that had not
// begun is given to another agent; one that had begun fails and names the lost agent, or has succeeded; nothing is left.
func TestAgentKilled(t *testing.T) {
	engines(t, func(t *testing.T, databaseURL func(*testing.T) string) {
		t.Run("XS54 before registering", func(t *testing.T) {
			w := newWorld(t, databaseURL(t), crashWorkflow)
			w.start(0)
			killed := make(chan int, 1)
			go func() { killed <- w.killFirstAgent() }()
			if status := w.push("one"); status != http.StatusAccepted {
				t.Fatalf("answered %d", status)
			}
			if pid := <-killed; pid == 0 {
				t.Fatal("no agent appeared")
			}
			w.expectOneCleanRun() // after the back-off of a failed launch
			w.stop()
		})
		t.Run("XS55 in a step", func(t *testing.T) {
			w := newWorld(t, databaseURL(t), slowWorkflow)
			w.start(0)
			w.push("one")
			w.until("the step begins", 30*time.Second, func() bool { return w.ran()[0] == "begun" })
			w.killAgents()
			w.until("the run ends", 90*time.Second, func() bool { _, ok := w.ended(); return ok })
			d, _ := w.ended()
			if j := d.Jobs[0]; j.Status != "failed" || !strings.Contains(j.Error, j.AgentID) || j.AgentID == "" {
				t.Errorf("job %s of agent %q: %s", j.Status, j.AgentID, j.Error)
			}
			w.expectNothingLeft()
			w.stop()
		})
		t.Run("after its last line", func(t *testing.T) {
			w := newWorld(t, databaseURL(t), slowWorkflow)
			w.start(0)
			w.push("one")
			w.until("the step begins", 30*time.Second, func() bool { return w.ran()[0] == "begun" })
			if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w.until("the last line", 10*time.Second, func() bool { _, err := os.Stat(filepath.Join(w.dir, "last")); return err == nil })
			w.killAgents()
			w.until("the run ends", 90*time.Second, func() bool { _, ok := w.ended(); return ok })
			d, _ := w.ended()
			if j := d.Jobs[0]; j.Status != "success" && (j.Status != "failed" || !strings.Contains(j.Error, j.AgentID)) {
				t.Errorf("job %s: %s", j.Status, j.Error)
			}
			w.expectNothingLeft()
			w.stop()
		})
	})
}

// agents are the processes of this world's agents.
func (w *world) agents() (pids []int) {
	for _, pid := range w.processes() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.HasSuffix(cmdline, []byte("\x00agent\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (w *world) killAgents() {
	for _, pid := range w.agents() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// killFirstAgent kills the first agent that appears, at once: it has had no time to register.
func (w *world) killFirstAgent() int {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if pids := w.agents(); len(pids) > 0 {
			_ = syscall.Kill(pids[0], syscall.SIGKILL)
			return pids[0]
		}
	}
	return 0
}

func (w *world) expectNothingLeft() {
	w.t.Helper()
	var left error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = w.settled(); left == nil {
			return
		}
	}
	w.t.Errorf("something is left: %v\n%s", left, w.log)
}
