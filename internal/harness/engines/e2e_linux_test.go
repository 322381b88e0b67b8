package engines

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	moby "github.com/moby/moby/client"

	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// A workflow runs in an image that has neither git nor bash, isolated from every network, and nothing of its agent is left.
func TestE2EWorkflowInAContainer(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		for _, isolated := range []bool{true, false} {
			name := map[bool]string{true: "isolated", false: "open"}[isolated]
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, e, isolated)
				began := time.Now()
				id := w.startRun("ci")
				d := w.ended(id)
				if d.Status != "success" {
					t.Fatalf("%s", show(d))
				}
				t.Logf("start to end of the run: %s", time.Since(began).Round(time.Millisecond))
				if log := w.stepLog(id, "short"); !strings.Contains(log, "hello from scaler-container-") {
					t.Errorf("the log is %q", log)
				}
				w.until("nothing of the agent is left", func() bool { return len(w.containers()) == 0 })
				if isolated {
					w.until("the run says what was refused", func() bool { return strings.Contains(w.record(id), "refused it connections (packets: ") })
				}
			})
		}
	})
}

// patience is what an end that somebody else has brought about may take until it has been seen, and what it held is free.
const patience = 20 * time.Second

// "docker rm -f" in mid-job: the job ends within seconds and says why, and nothing counts any more.
func TestE2EContainerIsRemovedInMidJob(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, true)
		id := w.begun()
		began := time.Now()
		for _, c := range w.containers() {
			if _, err := e.API.ContainerRemove(t.Context(), c, moby.ContainerRemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		w.expectFailed(id, "the agent's process is gone: killed by SIGKILL", "somebody else has removed it") // it is seen dead first, or not
		ended := time.Since(began)
		w.expectNothingLeft()
		if took := time.Since(began); took > patience {
			t.Errorf("it took %s", took)
		} else {
			t.Logf("the job ended after %s, its room was free after %s", ended.Round(time.Millisecond), took.Round(time.Millisecond))
		}
	})
}

// The engine is restarted in mid-job, and its containers go on: so does the job.
func TestE2EEngineIsRestartedInMidJob(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, true)
		id := w.begun()
		restart(t, e)
		w.write("shared/go", "")
		if d := w.ended(id); d.Status != "success" || !strings.Contains(w.stepLog(id, "long"), "went on") {
			t.Fatalf("%s\n%s", show(d), w.stepLog(id, "long"))
		}
		w.expectNothingLeft()
	})
}

// The engine is restarted in mid-job, and its containers end with it: the job ends and says so, its room is free, and the next one runs.
func TestE2EEngineEndsItsContainersInMidJob(t *testing.T) {
	e := enginetest.WithoutLiveRestore(t)
	w := newWorld(t, e, false)
	id := w.begun()
	began := time.Now()
	restart(t, e)
	w.expectFailed(id, "the agent was stopped while it ran the job", "the agent's process is gone: killed by SIGKILL") // it had its ten seconds, or not quite
	w.expectNothingLeft()
	t.Logf("from the restart to free room: %s", time.Since(began).Round(time.Millisecond))
	if d := w.ended(w.startRun("counted")); d.Status != "success" {
		t.Errorf("%s", show(d))
	}
}

func restart(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	if err := e.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
}

// expectFailed expects a run's only job to end for the loss of its agent, and to say one of these.
func (w *world) expectFailed(id string, says ...string) {
	w.t.Helper()
	d := w.ended(id)
	if j := d.Jobs[0]; d.Status != "failed" || j.AgentID == "" ||
		!slices.ContainsFunc(says, func(text string) bool { return strings.Contains(j.Error, text) }) {
		w.t.Fatalf("%s", show(d))
	}
	w.t.Log(d.Jobs[0].Error)
}

// kill -9 of the server in mid-job: the container goes on, the next server knows it again, and the job succeeds with its whole log.
func TestE2EServerIsKilledInMidJob(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, true)
		id := w.begun()
		before := w.containers()
		w.kill()
		if after := w.containers(); len(after) != 1 || after[0] != before[0] {
			t.Fatalf("containers were %v, and are %v", before, after)
		}
		w.start()
		w.write("shared/go", "")
		d := w.ended(id)
		if d.Status != "success" || !strings.Contains(w.stepLog(id, "long"), "went on") {
			t.Fatalf("%s\n%s", show(d), w.stepLog(id, "long"))
		}
		w.until("nothing of the agent is left", func() bool { return len(w.containers()) == 0 })
	})
}

// A step that takes more memory than its agent has ends its job, visibly.
func TestE2EStepRunsOutOfMemory(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, false)
		d := w.ended(w.startRun("greedy"))
		if d.Status != "failed" || !strings.Contains(show(d), "out of memory (limit 256") {
			t.Fatalf("%s", show(d))
		}
	})
}

// A job's own image takes the place of the label set's; its user and variables are the image's.
func TestE2EJobInItsOwnImage(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newWorld(t, e, false)
		e.Import(t, "localhost/kici-own:1", "USER other", "ENV OF_IMAGE=one")
		id := w.startRun("own")
		if d := w.ended(id); d.Status != "success" {
			t.Fatalf("%s", show(d))
		}
		if log := w.stepLog(id, "own"); !strings.Contains(log, "one and two as 1000") {
			t.Errorf("the log is %q", log)
		}
	})
}
