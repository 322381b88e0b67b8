//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/link"
	"github.com/kici-go/kici/internal/agent/stepcall"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_AGENT") != "" { // the test binary plays the agent
		playAgent()
	}
	if os.Getenv(stepcall.SocketVariable) != "" && len(os.Args) == 4 { // or the kici command of a step
		playStep()
	}
	goleak.VerifyTestMain(m)
}

func playAgent() {
	cfg, err := ConfigFromEnv(os.Environ())
	if err == nil {
		cfg.Version = "test"
		err = Main(context.Background(), cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func managed(c *Config) { c.Managed = true }

func TestManagedAgentRunsOneJobAndLeaves(t *testing.T) {
	c := newCoordinator(t)
	a := startAgent(t, c, managed)
	c.give("j1", lock.Step{Run: "echo hello"}, lock.Step{Run: "echo two"})
	final := c.final("j1")
	if err := a.ends(); err != nil {
		t.Fatal(err)
	}
	if final.Status != "success" || final.KillMethod == "" || final.FinishedAt < final.StartedAt {
		t.Errorf("%+v", final)
	}
	if got := c.text("j1", 1) + c.text("j1", 2); got != "hello\ntwo\n" {
		t.Errorf("log %q", got)
	}
	reg := c.registrations()[0]
	for _, want := range []string{"linux", "big"} {
		if !strings.Contains(strings.Join(reg.Labels, ","), want) {
			t.Errorf("labels %v", reg.Labels)
		}
	}
	if !strings.Contains(strings.Join(reg.Labels, ","), "kici:host:") || reg.Platform == "" || reg.MaxConcurrency != 1 || reg.RunningAsUID != os.Getuid() {
		t.Errorf("%+v", reg)
	}
	if c.count(wire.TypeJobAck) != 1 || c.count(wire.TypeConfigAck) != 1 || c.count(wire.TypeAgentStatus) != 1 {
		t.Error("acknowledgements are missing")
	}
	steps, jobs := c.reports("j1")
	var got []string
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%d %s", s.StepIndex, s.Status))
	}
	want := []string{"0 running", "1 pending", "2 pending", "0 success", "1 running", "1 success", "2 running", "2 success"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(jobs) != 2 || jobs[0].Status != "running" || jobs[0].Seq != 1 || jobs[1].Seq != int64(len(steps)+2) {
		t.Errorf("%+v", jobs)
	}
}

// XC-134: the job goes on while its log cannot be stored, and its result waits for the log.
func TestXC134FinalStatusComesAfterTheLog(t *testing.T) {
	c := newCoordinator(t)
	release := make(chan struct{})
	c.onPost = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		select {
		case <-release:
			return false
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
	}
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "echo hello"})
	await(t, "the last step ends", func() bool {
		steps, _ := c.reports("j")
		return len(steps) > 0 && steps[len(steps)-1].Status == "success" && steps[len(steps)-1].StepIndex == 1
	})
	time.Sleep(300 * time.Millisecond)
	if _, jobs := c.reports("j"); len(jobs) != 1 {
		t.Fatalf("the result came before the log: %+v", jobs)
	}
	close(release)
	if f := c.final("j"); f.Status != "success" || c.text("j", 1) != "hello\n" {
		t.Errorf("%+v %q", f, c.text("j", 1))
	}
}

func TestStaticAgentLoops(t *testing.T) {
	c := newCoordinator(t)
	a := startAgent(t, c, nil)
	for i := range 3 {
		id := fmt.Sprintf("j%d", i)
		c.give(id, lock.Step{Run: "echo " + id})
		if f := c.final(id); f.Status != "success" {
			t.Fatalf("%+v", f)
		}
		c.awaitFrame(wire.TypeAgentStatus, i+1)
	}
	a.stop()
	if err := a.ends(); err != nil {
		t.Error(err)
	}
}

func TestBusyAndRepeatedDispatch(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, nil)
	d := c.give("j1", lock.Step{Run: "while ! [ -e go ]; do sleep 0.02; done"}, lock.Step{Run: "echo never", If: "false"})
	c.awaitFrame(wire.TypeJobAck, 1)
	c.send(wire.TypeJobDispatch, d)
	c.awaitFrame(wire.TypeJobAck, 2)
	c.send(wire.TypeJobDispatch, wire.JobDispatch{RunID: "run", JobID: "j2", Attempt: 1})
	c.awaitFrame(wire.TypeJobReject, 1)
	c.send(wire.TypeJobCancel, wire.JobCancel{JobID: "j1", Force: true})
	if f := c.final("j1"); f.Status != "cancelled" {
		t.Errorf("%+v", f)
	}
	if _, jobs := c.reports("j1"); len(jobs) != 2 {
		t.Errorf("ran more than once: %+v", jobs)
	}
}

// XC-78: the link drops in the middle of a step, the agent comes back, and log and reports go on where they were.
func TestXC78LinkDropsMidStep(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "for i in $(seq 1 150); do echo line $i; sleep 0.01; done"})
	c.awaitText("j", 1, "line 20")
	c.drop()
	await(t, "it registers again", func() bool { return len(c.registrations()) == 2 })
	if in := c.registrations()[1].InFlightJobs; len(in) != 1 || in[0].JobID != "j" || in[0].Attempt != 1 || in[0].Ended {
		t.Errorf("in flight: %+v", in)
	}
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	wantLines(t, c.text("j", 1), 150)
}

func wantLines(t *testing.T, text string, n int) {
	t.Helper()
	var want strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if d := cmp.Diff(want.String(), text); d != "" {
		t.Error(d)
	}
}

// The coordinator is killed in a step, loses what it had not made durable, and comes back on the same address.
func TestCoordinatorRestart(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "for i in $(seq 1 150); do echo line $i; sleep 0.01; done"})
	c.awaitText("j", 1, "line 20")
	c.stop()
	c.mu.Lock()
	for k, v := range c.logs {
		v = v[:len(v)/2]
		c.logs[k] = v[:strings.LastIndexByte(string(v), '\n')+1]
	}
	c.mu.Unlock()
	time.Sleep(300 * time.Millisecond)
	c.start()
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	wantLines(t, c.text("j", 1), 150)
	if regs := c.registrations(); len(regs) != 2 {
		t.Errorf("%d registrations", len(regs))
	}
}

func TestReportsAreRepeatedUntilAcknowledged(t *testing.T) {
	c := newCoordinator(t)
	c.mute = true
	a := startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "true"})
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	n := c.count(wire.TypeStepStatus)
	select {
	case err := <-a.done:
		t.Fatal("it left without an acknowledgement", err)
	case <-time.After(200 * time.Millisecond):
	}
	c.mu.Lock()
	c.mute = false
	c.mu.Unlock()
	c.drop()
	if err := a.ends(); err != nil {
		t.Fatal(err)
	}
	if again := c.count(wire.TypeStepStatus); again != 2*n {
		t.Errorf("%d step reports, then %d", n, again)
	}
	if in := c.registrations()[1].InFlightJobs; len(in) != 1 || !in[0].Ended {
		t.Errorf("in flight: %+v", in)
	}
}

// DESIGN §9: an agent whose coordinator never returns finishes, keeps its result for the reconnect window, and leaves.
func TestCoordinatorNeverReturns(t *testing.T) {
	c := newCoordinator(t)
	mark := filepath.Join(t.TempDir(), "done")
	a := startAgent(t, c, func(cfg *Config) { cfg.Managed, cfg.ReconnectWindow = true, 400*time.Millisecond })
	c.give("j", lock.Step{Run: "echo hi; sleep 0.8; touch " + mark})
	c.awaitText("j", 1, "hi")
	c.stop()
	if err := a.ends(); !errors.Is(err, link.ErrLost) {
		t.Errorf("err = %v", err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("the job was not finished")
	}
}

func TestCancelGracefulAndForce(t *testing.T) {
	for _, force := range []bool{false, true} {
		t.Run(fmt.Sprint(force), func(t *testing.T) {
			c := newCoordinator(t)
			startAgent(t, c, managed)
			c.give("j", lock.Step{Run: "trap 'echo bye; exit 1' TERM; echo hi; while :; do sleep 0.02; done"}, lock.Step{Run: "echo hook", If: "cancelled()"})
			c.awaitText("j", 1, "hi")
			c.send(wire.TypeJobCancel, wire.JobCancel{RunID: "run", JobID: "other"})
			c.send(wire.TypeJobCancel, wire.JobCancel{RunID: "run", JobID: "j", Reason: "test", Force: force, GraceMs: 20_000}) // a busy shell needs its time
			if f := c.final("j"); f.Status != "cancelled" {
				t.Errorf("%+v", f)
			}
			said := strings.Contains(c.text("j", 1), "bye") && c.text("j", 2) == "hook\n"
			if said == force {
				t.Errorf("force %v: %q %q", force, c.text("j", 1), c.text("j", 2))
			}
		})
	}
}

// A cancel that overtakes the job's description is not forgotten (XC-87).
func TestXC87CancelBeforeTheJobBegins(t *testing.T) {
	c := newCoordinator(t)
	c.onFetch = func(w http.ResponseWriter) bool {
		c.mu.Lock()
		c.onFetch = nil
		c.mu.Unlock()
		c.send(wire.TypeJobCancel, wire.JobCancel{RunID: "run", JobID: "j"})
		time.Sleep(100 * time.Millisecond)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "echo never"})
	if f := c.final("j"); f.Status != "cancelled" || c.text("j", 1) != "" {
		t.Errorf("%+v %q", f, c.text("j", 1))
	}
}

// XC-76: the job went to another agent; this one stops it and reports nothing more.
func TestXC76ToldGone(t *testing.T) {
	for name, tell := range map[string]func(c *coordinator){
		"report.ack": func(c *coordinator) {
			c.mu.Lock()
			c.goneJob = "j"
			c.mu.Unlock()
		},
		"log": func(c *coordinator) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.onPost = func(_ int, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusGone); return true }
		},
		"registration": func(c *coordinator) {
			c.mu.Lock()
			c.ack.Abandon = []string{"j"}
			c.mu.Unlock()
			c.drop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCoordinator(t)
			beat := filepath.Join(t.TempDir(), "beat")
			a := startAgent(t, c, managed)
			c.give("j", lock.Step{Run: "echo hi; touch " + beat + "; for i in $(seq 100); do sleep 0.1; echo x >>" + beat + "; done"}, lock.Step{Run: "echo two"})
			await(t, "the step runs", func() bool { _, err := os.Stat(beat); return err == nil })
			tell(c)
			if name == "report.ack" { // it learns with its next report
				c.send(wire.TypeReportAck, wire.ReportAck{JobID: "j", Attempt: 1, Gone: true})
			}
			if err := a.ends(); err != nil {
				t.Error(err)
			}
			before, _ := os.ReadFile(beat)
			time.Sleep(400 * time.Millisecond)
			after, _ := os.ReadFile(beat)
			if len(before) != len(after) || len(after) == 200 {
				t.Errorf("the step went on: %d, then %d bytes", len(before), len(after))
			}
			if _, jobs := c.reports("j"); len(jobs) != 1 {
				t.Errorf("it reported an end: %+v", jobs)
			}
		})
	}
}

func TestJobThatIsNotOursAtFetch(t *testing.T) {
	c := newCoordinator(t)
	a := startAgent(t, c, managed)
	c.send(wire.TypeJobDispatch, wire.JobDispatch{RunID: "run", JobID: "unknown", Attempt: 1})
	if err := a.ends(); err != nil {
		t.Error(err)
	}
	if _, jobs := c.reports("unknown"); len(jobs) != 0 {
		t.Errorf("%+v", jobs)
	}
}

func TestDigestMismatchFailsTheJob(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, managed)
	c.specs["j"] = wire.JobSpec{RunID: "run", JobID: "j", Attempt: 1, Job: []byte(`{"name":"j"}`)}
	c.send(wire.TypeJobDispatch, wire.JobDispatch{RunID: "run", JobID: "j", Attempt: 1, Digest: strings.Repeat("0", 64)})
	if f := c.final("j"); f.Status != "failed" || f.InitFailure != "spec" {
		t.Errorf("%+v", f)
	}
}

// XC-135: a repeated chunk and a gap lead to each line once.
func TestXC135LogOffsetsMismatch(t *testing.T) {
	c := newCoordinator(t)
	c.onPost = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n % 4 {
		case 1: // as if it had been stored and the answer were lost
			c.store(r)
			w.WriteHeader(http.StatusBadGateway)
			return true
		case 2: // it forgets everything
			c.mu.Lock()
			if len(c.logs["j/1/1"]) > 0 && n < 20 {
				c.logs["j/1/1"] = nil
			}
			c.mu.Unlock()
		}
		return false
	}
	startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "for i in $(seq 1 60); do echo line $i; sleep 0.01; done"})
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	wantLines(t, c.text("j", 1), 60)
}

func TestIdleExit(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, func(cfg *Config) { cfg.Managed, cfg.IdleTimeout = true, 100*time.Millisecond })
		if err := a.ends(); err != nil {
			t.Error(err)
		}
	})
	t.Run("pending waits longer", func(t *testing.T) {
		c := newCoordinator(t)
		c.ack.PendingDispatch = true
		a := startAgent(t, c, func(cfg *Config) {
			cfg.Managed, cfg.IdleTimeout, cfg.PendingTimeout = true, 50*time.Millisecond, 600*time.Millisecond
		})
		start := time.Now()
		if err := a.ends(); err != nil || time.Since(start) < 500*time.Millisecond {
			t.Error(err, time.Since(start))
		}
	})
	t.Run("warm pool has no timer", func(t *testing.T) {
		c := newCoordinator(t)
		c.ack.WarmPool = true
		a := startAgent(t, c, func(cfg *Config) { cfg.Managed, cfg.IdleTimeout = true, 50*time.Millisecond })
		await(t, "it registers", func() bool { return len(c.registrations()) == 1 })
		select {
		case <-a.done:
			t.Fatal("it left")
		case <-time.After(300 * time.Millisecond):
		}
		c.give("j", lock.Step{Run: "true"})
		if err := a.ends(); err != nil {
			t.Error(err)
		}
	})
}

func TestDrainAndTerminate(t *testing.T) {
	t.Run("idle agent leaves at once", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, nil)
		await(t, "it registers", func() bool { return len(c.registrations()) == 1 })
		a.sig <- syscall.SIGTERM
		if err := a.ends(); err != nil {
			t.Error(err)
		}
	})
	t.Run("drain finishes the job and takes no other", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, nil)
		c.give("j", lock.Step{Run: "echo hi; sleep 0.3"})
		c.awaitText("j", 1, "hi")
		a.sig <- syscall.SIGUSR1
		if err := a.ends(); err != nil {
			t.Error(err)
		}
		if f := c.final("j"); f.Status != "success" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("termination aborts a job that does not end", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, func(cfg *Config) { cfg.termPatience = 2 * time.Second }) // as long again, and its report is given up
		c.give("j", lock.Step{Run: "trap '' TERM; echo hi; sleep 60"}, lock.Step{Run: "echo never", If: "always()"})
		c.awaitText("j", 1, "hi")
		a.sig <- syscall.SIGTERM
		if err := a.ends(); err != nil {
			t.Error(err)
		}
		if f := c.final("j"); f.Status != "failed" || !strings.Contains(f.Error, "agent was stopped") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("termination does not wait for a lost coordinator", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, func(cfg *Config) { cfg.termPatience = 200 * time.Millisecond })
		c.give("j", lock.Step{Run: "echo hi; sleep 60"})
		c.awaitText("j", 1, "hi")
		c.stop()
		a.sig <- syscall.SIGTERM
		start := time.Now()
		if _ = a.ends(); time.Since(start) > 30*time.Second {
			t.Errorf("took %s", time.Since(start))
		}
		c.start()
	})
	t.Run("the orchestrator drains", func(t *testing.T) {
		c := newCoordinator(t)
		a := startAgent(t, c, nil)
		c.send(wire.TypeDrain, wire.Drain{Reason: "test"})
		if err := a.ends(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusalsEndTheAgent(t *testing.T) {
	for code, want := range map[int]error{
		wire.CloseAuthFailed: link.ErrRefused, wire.CloseAgentGone: nil, wire.CloseSuperseded: link.ErrSuperseded, wire.CloseProtocol: link.ErrProtocol,
	} {
		c := newCoordinator(t)
		c.refuse = code
		if err := startAgent(t, c, nil).ends(); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", code, err, want)
		}
		if n := len(c.registrations()); n != 1 {
			t.Errorf("%d: %d registrations", code, n)
		}
	}
	t.Run("token", func(t *testing.T) {
		c := newCoordinator(t)
		if err := startAgent(t, c, func(cfg *Config) { cfg.Token = "kat_wrong" }).ends(); !errors.Is(err, link.ErrRefused) {
			t.Error(err)
		}
	})
	t.Run("4006 is tried again", func(t *testing.T) {
		c := newCoordinator(t)
		c.refuse = wire.CloseScalerState
		startAgent(t, c, nil)
		await(t, "it tries again", func() bool { return len(c.registrations()) == 2 })
	})
}

func TestGoneAgentStopsItsJob(t *testing.T) {
	c := newCoordinator(t)
	a := startAgent(t, c, managed)
	c.give("j", lock.Step{Run: "echo hi; sleep 300"})
	c.awaitText("j", 1, "hi")
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	go conn.Close(wire.CloseAgentGone, "ended")
	start := time.Now()
	if err := a.ends(); err != nil || time.Since(start) > 40*time.Second {
		t.Error(err, time.Since(start))
	}
}

func TestWorkDirIsCleared(t *testing.T) {
	c := newCoordinator(t)
	var root string
	a := startAgent(t, c, func(cfg *Config) { cfg.Managed, root = true, cfg.WorkDir })
	c.give("j", lock.Step{Run: "mkdir -p a/b; touch a/b/c; chmod 555 a/b a"})
	c.final("j")
	if err := a.ends(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(root); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestManyStepsAreNotAFlood(t *testing.T) {
	c := newCoordinator(t)
	startAgent(t, c, managed)
	steps := make([]lock.Step, 300)
	for i := range steps {
		steps[i] = lock.Step{Run: "x", If: "false"}
	}
	c.give("j", steps...)
	if f := c.final("j"); f.Status != "success" {
		t.Fatalf("%+v", f)
	}
	got, _ := c.reports("j")
	if n := len(got); n != 300+maxPending+2 {
		t.Errorf("%d step reports", n)
	}
}

const maxPending = 60
