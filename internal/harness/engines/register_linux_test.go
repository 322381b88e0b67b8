package engines

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend/container/enginetest"
)

// slow is the program whose agents do what a file says.
var slow = built("slow", "./testdata/slow")

func newSlowWorld(t *testing.T, e *enginetest.Engine, mode string) *world {
	t.Helper()
	w := makeWorld(t, e, setup{program: slow})
	w.write("shared/agent", mode)
	w.open()
	return w
}

// An image that exits at once: the job shows its last words, each failure makes the pause longer, and when the image is mended the job runs.
func TestE2EImageExitsAtOnce(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newSlowWorld(t, e, "exit")
		id := w.startRun("counted")
		var began []time.Time
		w.until("three agents have failed", func() bool {
			began = nil
			for _, a := range w.allAgents() {
				began = append(began, a.RequestedAt.Time)
			}
			return len(began) >= 3 && w.scaler().BackoffUntil != nil && len(w.scaler().Failures) >= 3
		})
		first, second := began[1].Sub(began[0]), began[2].Sub(began[1])
		if first < time.Second || second < 2*time.Second || second < first {
			t.Errorf("the pauses were %s and %s", first, second)
		}
		f := w.scaler().Failures[0]
		if !strings.Contains(f.Error, "exited with 9") || !strings.HasSuffix(f.Tail, "line 59\nno such thing here") || f.JobID == "" {
			t.Errorf("%+v", f)
		}
		if why := w.why(id); !strings.Contains(why, "exited with 9") {
			t.Errorf("the job says %s", why)
		}
		w.behave()
		if d := w.ended(id); d.Status != "success" {
			t.Errorf("%s", show(d))
		}
		w.expectNothingLeft()
		if s := w.scaler(); s.State != "ready" || s.BackoffUntil != nil {
			t.Errorf("the scaler is %s until %v", s.State, s.BackoffUntil)
		}
	})
}

// An image that never registers: it is ended at its deadline, and the job gets another agent.
func TestE2EImageNeverRegisters(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newSlowWorld(t, e, "never")
		began := time.Now()
		id := w.startRun("counted")
		w.until("an agent has its token", func() bool { all := w.allAgents(); return len(all) == 1 && all[0].State == "booting" })
		w.behave()
		if d := w.ended(id); d.Status != "success" || d.Jobs[0].Attempt != 1 {
			t.Errorf("%s", show(d))
		}
		w.expectLost("did not register in time")
		w.expectNothingLeft()
		t.Logf("the job was done after %s", time.Since(began).Round(time.Millisecond))
	})
}

// An image that registers after its deadline, when it is being ended: it is refused, and the job is done once, by another agent.
func TestE2EImageRegistersTooLate(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, e *enginetest.Engine) {
		w := newSlowWorld(t, e, "late")
		id := w.startRun("counted")
		d := w.ended(id)
		if ran, _ := os.ReadFile(w.file("shared/ran")); d.Status != "success" || string(ran) != "ran\n" {
			t.Errorf("it ran %q\n%s", ran, show(d))
		}
		w.expectLost("did not register in time")
		w.expectNothingLeft()
		said, err := os.ReadFile(w.file("shared/late.log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the late agent said:\n%s", said)
	})
}

// expectLost expects two agents: one that ended before it registered, and one that did the job.
func (w *world) expectLost(says string) {
	w.t.Helper()
	all := w.allAgents()
	if len(all) != 2 {
		w.t.Fatalf("there were %d agents:\n%s", len(all), show(all))
	}
	if a := all[0]; a.RegisteredAt != nil || a.GoneReason != ci.GoneSpawnTimeout || !strings.Contains(a.Error, says) {
		w.t.Errorf("the first: %s", show(a))
	}
	if a := all[1]; a.RegisteredAt == nil || a.JobsDone != 1 {
		w.t.Errorf("the second: %s", show(a))
	}
}

// allAgents are those of the ledger, the oldest first.
func (w *world) allAgents() []client.Agent {
	w.t.Helper()
	list, err := w.api.Agents(w.t.Context(), true, "", "", 50)
	if err != nil {
		w.t.Fatal(err)
	}
	out := list.Agents
	for i := range len(out) / 2 {
		out[i], out[len(out)-1-i] = out[len(out)-1-i], out[i]
	}
	return out
}

func (w *world) scaler() client.Scaler {
	w.t.Helper()
	list, err := w.api.Scalers(w.t.Context())
	if err != nil || len(list.Scalers) != 1 {
		w.t.Fatalf("%v, %v", list, err)
	}
	return list.Scalers[0]
}

// behave mends the image.
func (w *world) behave() {
	w.t.Helper()
	if err := os.Remove(w.file("shared/agent")); err != nil {
		w.t.Fatal(err)
	}
}
