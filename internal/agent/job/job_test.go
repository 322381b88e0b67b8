//go:build unix

package job

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/agent/spool"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs jobs and keeps what they report and log.
type bench struct {
	t       *testing.T
	spec    wire.JobSpec
	def     lock.Job
	job     *Job
	dir     string
	environ []string

	mu      sync.Mutex
	reports []wire.StepStatus
	logs    map[int][]byte
}

func newBench(t *testing.T, steps ...lock.Step) *bench {
	t.Helper()
	return &bench{
		t: t, def: lock.Job{Name: "test", Steps: steps}, logs: map[int][]byte{},
		environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"},
		spec: wire.JobSpec{
			RunID: "run-1", JobID: fmt.Sprintf("job-%d", time.Now().UnixNano()), Attempt: 1, Workflow: "ci", GraceMs: 300,
			Contexts: wire.Contexts{Kici: json.RawMessage(
				`{"sha":"abc","ref":"refs/heads/main","ref_name":"main","repository":"me/repo","event_name":"push","event":{"x":1},"run_number":"7"}`)},
		},
	}
}

func (b *bench) post(_ context.Context, c spool.Chunk) (wire.LogAck, error) {
	data, err := io.ReadAll(c.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs[c.Step] = append(b.logs[c.Step], data...)
	return wire.LogAck{Offset: int64(len(b.logs[c.Step]))}, err
}

func (b *bench) report(s wire.StepStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports = append(b.reports, s)
}

// prepare makes the job; run runs it.
func (b *bench) prepare() *Job {
	b.t.Helper()
	raw, err := json.Marshal(b.def)
	if err != nil {
		b.t.Fatal(err)
	}
	b.spec.Job = raw
	b.dir = b.t.TempDir()
	spoolDir := b.t.TempDir()
	log := slog.New(slog.DiscardHandler)
	sp := spool.New(spool.Config{Dir: spoolDir, Post: b.post, Now: time.Now, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = sp.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done; sp.Close() })
	b.job = New(Config{
		Spec: b.spec, Dir: b.dir, AgentID: "agent-1", Hostname: "host", Version: "dev", Environ: b.environ, Spool: sp,
		Report: b.report, Now: time.Now, Log: log,
	})
	return b.job
}

func (b *bench) run() Outcome {
	b.t.Helper()
	if b.job == nil {
		b.prepare()
	}
	out := b.job.Run()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.job.cfg.Spool.Drained(ctx); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// text is a step's log without its frame, only lines of the level ("" for all).
func (b *bench) text(step int, level string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(string(b.logs[step])) {
		var l wire.LogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			b.t.Fatalf("%q: %v", line, err)
		}
		if level == "" || l.Level == level {
			out.WriteString(l.Msg + "\n")
		}
	}
	return out.String()
}

// statuses are the final statuses of the steps, in order.
func (b *bench) statuses() []string {
	last := map[int]string{}
	for _, r := range b.reports {
		last[r.StepIndex] = r.Status
	}
	var out []string
	for i := range len(last) {
		out = append(out, last[i])
	}
	return out
}

func (b *bench) all() string {
	var s strings.Builder
	for i := range b.logs {
		s.WriteString(b.text(i, ""))
	}
	for _, r := range b.reports {
		s.WriteString(r.Name + r.Error)
	}
	return s.String()
}

func TestHappyPath(t *testing.T) {
	b := newBench(t,
		lock.Step{ID: "one", Name: "Say ${{ matrix.who }}", Run: "echo hello ${{ matrix.who }}; echo v=1 >> $KICI_OUTPUT; echo x >&2"},
		lock.Step{Run: `echo "got ${{ steps.one.outputs.v }} ${{ steps.one.outcome }} ${{ job.status }}"`},
	)
	b.spec.Contexts.Matrix = json.RawMessage(`{"who":"world"}`)
	b.def.Outputs = map[string]string{"v": "${{ steps.one.outputs.v }}-${{ github.ref_name }}"}
	out := b.run()
	if out.Status != ci.JobSuccess || out.Error != "" || out.KillMethod == "" {
		t.Fatalf("%+v\n%s", out, b.all())
	}
	if d := cmp.Diff(map[string]string{"v": "1-main"}, out.Outputs); d != "" {
		t.Error(d)
	}
	if got := b.text(1, "stdout"); got != "hello world\n" {
		t.Errorf("stdout %q", got)
	}
	if got := b.text(1, "stderr"); got != "x\n" {
		t.Errorf("stderr %q", got)
	}
	if got := b.text(2, ""); got != "got 1 success success\n" {
		t.Errorf("step 2: %q", got)
	}
	if !strings.Contains(b.text(0, "kici"), "Agent agent-1 on host") {
		t.Errorf("step 0: %q", b.text(0, ""))
	}
	if d := cmp.Diff([]string{"success", "success", "success"}, b.statuses()); d != "" {
		t.Error(d)
	}
	var running wire.StepStatus
	for _, r := range b.reports {
		if r.StepIndex == 1 && r.Status == "running" {
			running = r
		}
	}
	if running.Name != "Say world" || running.StartedAt == 0 || running.JobID != b.spec.JobID || running.Attempt != 1 {
		t.Errorf("%+v", running)
	}
}

func TestEnvironmentLayers(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: `echo "B=fromfile" >> $GITHUB_ENV; echo "M<<E
l1
l2
E" >> "$KICI_ENV"; mkdir bin; printf '#!/bin/sh\necho mytool\n' > bin/mytool; chmod +x bin/mytool; echo $PWD/bin >> $KICI_PATH`},
		lock.Step{
			Run: `echo $A $B $C $M; mytool; echo $KICI_SHA $GITHUB_SHA $KICI_REF_NAME $CI $KICI $KICI_WORKFLOW $KICI_STEP
cat $KICI_EVENT_PATH; echo; echo $HOST_VAR; echo ${{ env.B }} ${{ env.C }}`,
			Env: map[string]string{"C": "step-${{ env.A }}", "GITHUB_SHA": "forged", "KICI_SHA": "forged"},
		},
		lock.Step{Run: "env"},
	)
	b.spec.Env = map[string]string{"A": "job-${{ kici.ref_name }}", "B": "job"}
	b.environ = append(b.environ, "HOST_VAR=host")
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatalf("%+v\n%s", out, b.all())
	}
	want := "job-main fromfile step-job-main l1 l2\nmytool\nabc abc main true true ci 2\n{\"x\":1}\nhost\nfromfile step-job-main\n"
	if d := cmp.Diff(want, b.text(2, "stdout")); d != "" {
		t.Error(d, b.text(2, ""))
	}
	if env := b.text(3, "stdout"); strings.Contains(env, "C=step") || !strings.Contains(env, "KICI_JOB_ID="+b.spec.JobID) {
		t.Errorf("environment of the next step:\n%s", env)
	}
}

// A workflow cannot take its processes' mark away, by which the node finds what an agent left behind, nor give them another's.
func TestTheMarkIsNotTheWorkflows(t *testing.T) {
	for _, mark := range []string{"scaler-bare-metal-1", ""} {
		b := newBench(t, lock.Step{Run: "echo mark=$KICI_AGENT_MARK", Env: map[string]string{"KICI_AGENT_MARK": "step"}})
		b.spec.Env = map[string]string{"KICI_AGENT_MARK": "job"}
		if mark != "" {
			b.environ = append(b.environ, "KICI_AGENT_MARK="+mark)
		}
		if out := b.run(); out.Status != ci.JobSuccess {
			t.Fatalf("%+v\n%s", out, b.all())
		}
		if got := b.text(1, "stdout"); strings.TrimSpace(got) != "mark="+mark {
			t.Errorf("marked %q: %q", mark, got)
		}
	}
}

func TestReservedVariablesAreRefused(t *testing.T) {
	b := newBench(t, lock.Step{Run: `echo KICI_SHA=forged >> $KICI_ENV`}, lock.Step{Run: "echo never"})
	out := b.run()
	if out.Status != ci.JobFailed || !strings.Contains(b.text(1, ""), "KICI_SHA is reserved") {
		t.Errorf("%+v %s", out, b.all())
	}
	if d := cmp.Diff([]string{"success", "failed", "skipped"}, b.statuses()); d != "" {
		t.Error(d)
	}
}

func TestFailureConditions(t *testing.T) {
	b := newBench(t,
		lock.Step{ID: "soft", Run: "exit 3", ContinueOnError: "true"},
		lock.Step{Run: "echo ${{ steps.soft.outcome }}/${{ steps.soft.conclusion }}"},
		lock.Step{Run: "exit 4"},
		lock.Step{Run: "echo never"},
		lock.Step{Run: "echo on failure", If: "failure()"},
		lock.Step{Run: "echo always", If: "always() && github.ref_name == 'main'"},
		lock.Step{Run: "echo no", If: "github.ref_name == 'main'"},
	)
	out := b.run()
	if out.Status != ci.JobFailed {
		t.Errorf("%+v", out)
	}
	want := []string{"success", "failed", "success", "failed", "skipped", "success", "success", "skipped"}
	if d := cmp.Diff(want, b.statuses()); d != "" {
		t.Error(d, b.all())
	}
	if got := b.text(2, "stdout"); got != "failure/success\n" {
		t.Errorf("%q", got)
	}
	for _, r := range b.reports {
		if r.StepIndex == 1 && r.Status == "failed" && (!r.Allowed || r.ExitCode == nil || *r.ExitCode != 3) {
			t.Errorf("%+v", r)
		}
	}
}

func TestBadExpressionFailsTheStep(t *testing.T) {
	b := newBench(t, lock.Step{Run: "echo ${{ fromJSON('{') }}"}, lock.Step{If: "fromJSON('{')", Run: "x"}, lock.Step{Run: "x", If: "false"})
	out := b.run()
	if out.Status != ci.JobFailed || !strings.Contains(b.text(1, "kici"), "run: ") {
		t.Errorf("%+v %s", out, b.all())
	}
}

func TestSecretsAreMaskedEverywhere(t *testing.T) {
	const secret, short = "s3cr3t-v@lue", "abc"
	b := newBench(t,
		lock.Step{
			Name: "Use ${{ secrets.TOKEN }}", Run: `echo "a $T b"; printf 's3cr'; sleep 0.05; printf '3t-v@lue\n'; echo $T | base64; echo abc; echo $T >&2`,
			Env: map[string]string{"T": "${{ secrets.TOKEN }}"},
		},
		lock.Step{ID: "m", Name: "m", Run: "echo '::add-mask::dynamic-value'; echo dynamic-value; echo '::stop-commands::tok'; echo '::add-mask::visible-value'; echo '::tok::'; echo visible-value; echo '  ::add-mask::another%25one'; echo another%one; printf '::error::bad'; printf 'leak=%s\nok=fine\n' dynamic-value >>$KICI_OUTPUT; echo dynamic-value >> $KICI_SUMMARY"},
		lock.Step{Run: "cd /${{ secrets.TOKEN }}"},
		lock.Step{Run: "x", WorkingDirectory: "${{ secrets.TOKEN }}", If: "always()"},
	)
	b.spec.Secrets = map[string]string{"TOKEN": secret, "SHORT": short}
	b.def.Outputs = map[string]string{"leak": "${{ steps.m.outputs.leak }}", "ok": "${{ steps.m.outputs.ok }}", "direct": "x${{ secrets.TOKEN }}"}
	out := b.run()
	all := b.all() + out.Error
	for _, bad := range []string{secret, "dynamic-value", "another%one", "czNjcjN0"} {
		if strings.Contains(all, bad) {
			t.Errorf("%q is shown:\n%s", bad, all)
		}
	}
	if got := b.text(1, "stdout"); !strings.HasPrefix(got, "a *** b\n***\n") || !strings.HasSuffix(got, "abc\n") {
		t.Errorf("%q", got)
	}
	if !strings.Contains(all, "visible-value") || !strings.Contains(all, "::error::bad") {
		t.Errorf("%s", all)
	}
	if d := cmp.Diff(map[string]string{"ok": "fine"}, out.Outputs); d != "" {
		t.Error(d)
	}
	if !strings.Contains(b.text(5, "kici"), "The output leak is dropped") {
		t.Errorf("%q", b.text(5, ""))
	}
}

func TestSecretsAreNotInTheEnvironment(t *testing.T) {
	b := newBench(t, lock.Step{Run: `env; cat /proc/self/environ | tr '\0' '\n'; cat /proc/$PPID/cmdline | tr '\0' ' '`})
	b.spec.Secrets = map[string]string{"TOKEN": "very-secret-thing"}
	b.spec.Checkout = nil
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatal(out)
	}
	if s := b.all(); strings.Contains(s, "***") || strings.Contains(s, "very-secret") {
		t.Errorf("a secret was in the environment:\n%s", s)
	}
}

func TestRetry(t *testing.T) {
	b := newBench(t, lock.Step{
		Run: `n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; echo try $n; [ $n -ge 2 ]`, Retry: &lock.Retry{MaxAttempts: 5, DelayMs: 10, Backoff: "fixed"},
	})
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatalf("%+v %s", out, b.all())
	}
	last := b.reports[len(b.reports)-1]
	if last.Retries != 2 || *last.ExitCode != 0 {
		t.Errorf("%+v", last)
	}
	if got := b.text(1, "stdout"); got != "try 0\ntry 1\ntry 2\n" {
		t.Errorf("%q", got)
	}
}

func TestRetryDelay(t *testing.T) {
	var got []time.Duration
	for n := 1; n < 8; n++ {
		got = append(got, retryDelay(lock.Retry{}, n))
	}
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i := range want {
		want[i] *= time.Second
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := retryDelay(lock.Retry{DelayMs: 50, Backoff: "fixed"}, 9); d != 50*time.Millisecond {
		t.Error(d)
	}
}

func TestStepTimeoutKillsTheTree(t *testing.T) {
	b := newBench(t, lock.Step{Run: `trap '' TERM; setsid sh -c 'while :; do sleep 0.02; echo x >> beat; done' & sleep 60`, TimeoutMs: 300})
	start := time.Now()
	out := b.run()
	if out.Status != ci.JobFailed || !strings.Contains(b.text(1, "kici"), "exceeded its timeout of 300ms") {
		t.Errorf("%+v %s", out, b.all())
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
	still(t, filepath.Join(b.dir, "workspace", "beat"))
}

// still fails when the file grows.
func still(t *testing.T, file string) {
	t.Helper()
	before, _ := os.Stat(file)
	time.Sleep(150 * time.Millisecond)
	after, _ := os.Stat(file)
	if before == nil || after == nil || before.Size() != after.Size() {
		t.Errorf("%s: something still writes (%v, %v)", file, before, after)
	}
}

func (b *bench) awaitText(step int, text string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(b.text(step, ""), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("step %d never said %q: %s", step, text, b.all())
		}
	}
}

func TestCancelGraceful(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: `trap 'echo cleaning; exit 5' TERM; echo ready; while :; do sleep 0.02; done`},
		lock.Step{Run: "echo never"},
		lock.Step{Run: "echo hook", If: "cancelled()"},
		lock.Step{Run: "echo always ${{ job.status }}", If: "always()"},
		lock.Step{Run: "echo no", If: "failure()"},
	)
	b.prepare()
	go func() { b.awaitText(1, "ready"); b.job.Cancel(false, 0) }()
	out := b.run()
	if out.Status != ci.JobCancelled {
		t.Errorf("%+v", out)
	}
	want := []string{"success", "cancelled", "skipped", "success", "success", "skipped"}
	if d := cmp.Diff(want, b.statuses()); d != "" {
		t.Error(d, b.all())
	}
	if !strings.Contains(b.text(1, ""), "cleaning") || b.text(4, "") != "always cancelled\n" {
		t.Error(b.all())
	}
}

func TestCancelKillsWhatDoesNotGo(t *testing.T) {
	b := newBench(t, lock.Step{Run: `trap '' TERM; echo ready; setsid sh -c 'trap "" TERM; while :; do sleep 0.02; echo x >> beat; done' & while :; do sleep 1; done`})
	b.prepare()
	go func() { b.awaitText(1, "ready"); b.job.Cancel(false, 200*time.Millisecond) }()
	start := time.Now()
	if out := b.run(); out.Status != ci.JobCancelled {
		t.Errorf("%+v", out)
	}
	if d := time.Since(start); d > 30*time.Second || d < 200*time.Millisecond {
		t.Errorf("took %s", d)
	}
	still(t, filepath.Join(b.dir, "workspace", "beat"))
}

func TestCancelForceSkipsGraceAndHooks(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: `trap '' TERM; echo ready; while :; do sleep 1; done`},
		lock.Step{Run: "echo never", If: "always()"},
	)
	b.spec.GraceMs = 60_000
	b.prepare()
	go func() { b.awaitText(1, "ready"); b.job.Cancel(true, 0) }()
	start := time.Now()
	out := b.run()
	if d := time.Since(start); out.Status != ci.JobCancelled || d > 30*time.Second {
		t.Errorf("%+v after %s", out, d)
	}
	if d := cmp.Diff([]string{"success", "cancelled", "skipped"}, b.statuses()); d != "" {
		t.Error(d)
	}
}

func TestCancelBeforeRun(t *testing.T) {
	b := newBench(t, lock.Step{Run: "echo never"})
	b.prepare().Cancel(false, 0)
	if out := b.run(); out.Status != ci.JobCancelled || out.InitFailure != "" {
		t.Errorf("%+v", out)
	}
	if strings.Contains(b.text(1, ""), "never") {
		t.Error("it ran")
	}
}

func TestCancelDuringCheckout(t *testing.T) {
	asked := make(chan struct{}, 8)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer slow.Close()
	b := newBench(t, lock.Step{Run: "echo never"}, lock.Step{Run: "echo never", If: "always()"})
	b.spec.Checkout = &wire.Checkout{URL: slow.URL + "/repo", SHA: strings.Repeat("ab", 20)}
	b.prepare()
	go func() { <-asked; b.job.Cancel(false, 0) }()
	start := time.Now()
	if out := b.run(); out.Status != ci.JobCancelled || out.InitFailure != "" || time.Since(start) > 30*time.Second {
		t.Errorf("%+v after %s", out, time.Since(start))
	}
	if d := cmp.Diff([]string{"cancelled", "skipped", "skipped"}, b.statuses()); d != "" {
		t.Error(d)
	}
}

func TestJobTimeout(t *testing.T) {
	b := newBench(t, lock.Step{Run: "sleep 60"}, lock.Step{Run: "echo hook", If: "always()"})
	b.spec.TimeoutMs = 300
	out := b.run()
	if out.Status != ci.JobFailed || !out.TimedOut || !strings.Contains(out.Error, "timeout of 300ms") {
		t.Errorf("%+v", out)
	}
	if d := cmp.Diff([]string{"success", "cancelled", "success"}, b.statuses()); d != "" {
		t.Error(d)
	}
}

func TestAbort(t *testing.T) {
	b := newBench(t, lock.Step{Run: "echo ready; sleep 60"})
	b.prepare()
	go func() { b.awaitText(1, "ready"); b.job.Abort(ErrAborted) }()
	if out := b.run(); out.Status != ci.JobFailed || out.Error != ErrAborted.Error() {
		t.Errorf("%+v", out)
	}
}

func TestBackgroundProcessServesLaterStepsAndDiesWithTheJob(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: `(while :; do echo x >> beat; sleep 0.02; done) >/dev/null 2>&1 & while ! [ -e beat ]; do sleep 0.01; done`},
		lock.Step{Run: `a=$(wc -c < beat); sleep 0.2; b=$(wc -c < beat); [ $b -gt $a ]`},
	)
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatalf("%+v %s", out, b.all())
	}
	still(t, filepath.Join(b.dir, "workspace", "beat"))
}

func TestShells(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: `false | true; echo never`},
		lock.Step{Run: `false | true; echo $0`, Shell: "sh", If: "always()"},
		lock.Step{Run: `import os; print("py", os.getcwd().endswith("sub"))`, Shell: "python", WorkingDirectory: "sub", If: "always()"},
		lock.Step{Run: `custom`, Shell: "cat {0}", If: "always()"},
		lock.Step{Run: `x`, Shell: "nonsense", If: "always()"},
	)
	b.prepare()
	if err := os.MkdirAll(filepath.Join(b.dir, "workspace", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.run()
	want := []string{"success", "failed", "success", "success", "success", "failed"}
	if _, err := osexec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	if d := cmp.Diff(want, b.statuses()); d != "" {
		t.Fatal(d, b.all())
	}
	if b.text(3, "stdout") != "py True\n" || b.text(4, "stdout") != "custom\n" || !strings.Contains(b.text(5, ""), "{0}") {
		t.Error(b.all())
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "temp")); len(left) != 1 {
		t.Errorf("left in temp: %v", left)
	}
}

func TestDefaultShellWithoutBash(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "sh")); err != nil {
		t.Fatal(err)
	}
	if sh := defaultShell([]string{"PATH=" + dir}); sh.argv[0] != "sh" {
		t.Error(sh)
	}
	if sh := defaultShell([]string{"PATH=" + os.Getenv("PATH")}); !slices.Contains([]string{"bash", "sh"}, sh.argv[0]) {
		t.Error(sh)
	}
}

func TestHashFiles(t *testing.T) {
	b := newBench(t,
		lock.Step{Run: "mkdir -p a/b; echo 1 > a/x.txt; echo 2 > a/b/y.txt; echo 3 > z.md; ln -s /etc/passwd a/link.txt"},
		lock.Step{Run: "echo ${{ hashFiles('**/*.txt') }} ${{ hashFiles('a', '!**/y.txt') }} [${{ hashFiles('nothing') }}]"},
	)
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatalf("%+v %s", out, b.all())
	}
	// sha256(sha256("2\n") + sha256("1\n")) in the order of the paths, and sha256(sha256("1\n")).
	cmd := osexec.Command("sh", "-c", `(echo 2|sha256sum|xxd -r -p; echo 1|sha256sum|xxd -r -p)|sha256sum|cut -d' ' -f1; echo 1|sha256sum|xxd -r -p|sha256sum|cut -d' ' -f1`)
	sums, err := cmd.Output()
	if f := strings.Fields(string(sums)); err == nil && len(f) == 2 && !strings.HasPrefix(f[0], "e3b0c442") {
		if want := f[0] + " " + f[1] + " []\n"; b.text(2, "stdout") != want {
			t.Errorf("%q, want %q", b.text(2, "stdout"), want)
		}
	}
	if f := strings.Fields(b.text(2, "stdout")); len(f) != 3 || len(f[0]) != 64 || len(f[1]) != 64 || f[2] != "[]" {
		t.Error(f)
	}
}

func TestInitFailures(t *testing.T) {
	t.Run("checkout", func(t *testing.T) {
		b := newBench(t, lock.Step{Run: "echo never"})
		b.spec.Checkout = &wire.Checkout{URL: "/nonexistent/repo", SHA: strings.Repeat("ab", 20)}
		out := b.run()
		if out.Status != ci.JobFailed || out.InitFailure != InitCheckout || !strings.Contains(out.Error, "check out") {
			t.Errorf("%+v", out)
		}
		if d := cmp.Diff([]string{"failed", "skipped"}, b.statuses()); d != "" {
			t.Error(d)
		}
	})
	t.Run("container", func(t *testing.T) {
		b := newBench(t, lock.Step{Run: "echo never"})
		b.def.Container = &lock.Container{Image: "x"}
		if out := b.run(); out.Status != ci.JobFailed || out.InitFailure != InitSpec {
			t.Errorf("%+v", out)
		}
	})
	t.Run("spec", func(t *testing.T) {
		b := newBench(t)
		b.prepare()
		b.job.cfg.Spec.Job = json.RawMessage(`{"steps":17}`)
		if out := b.run(); out.InitFailure != InitSpec {
			t.Errorf("%+v", out)
		}
	})
	t.Run("env", func(t *testing.T) {
		b := newBench(t)
		b.spec.Env = map[string]string{"A": "${{ nonsense( }}"}
		if out := b.run(); out.InitFailure != InitSpec {
			t.Errorf("%+v", out)
		}
	})
}

func repository(t *testing.T) (dir, sha string) {
	t.Helper()
	dir = t.TempDir()
	cmd := osexec.Command("sh", "-ec", `git init -q -b main . && echo hello > f && git add f && git -c user.name=T -c user.email=t@e.x commit -qm c && git rev-parse HEAD`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return dir, strings.TrimSpace(string(out))
}

func TestCheckout(t *testing.T) {
	repo, sha := repository(t)
	no := false
	for name, c := range map[string]struct {
		checkout *bool
		steps    []lock.Step
		status   ci.JobStatus
	}{
		"before the first step": {nil, []lock.Step{{Run: "grep hello f; git rev-parse HEAD"}}, ci.JobSuccess},
		"not":                   {&no, []lock.Step{{Run: "test ! -e f"}}, ci.JobSuccess},
		"as a step":             {nil, []lock.Step{{Run: "test ! -e f"}, {Uses: "checkout"}, {Run: "grep hello f"}, {Uses: "checkout"}}, ci.JobSuccess},
		"unknown":               {nil, []lock.Step{{Uses: "other"}}, ci.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.steps...)
			b.def.Checkout = c.checkout
			b.spec.Checkout = &wire.Checkout{URL: repo, SHA: sha, Ref: "refs/heads/main"}
			if out := b.run(); out.Status != c.status {
				t.Errorf("%+v %s", out, b.all())
			}
		})
	}
}

func TestCheckoutSaysWhatItLeavesOut(t *testing.T) {
	repo, _ := repository(t)
	cmd := osexec.Command("sh", "-ec", `touch .gitmodules && echo '*.bin filter=lfs diff=lfs' > .gitattributes && git add -A &&
		git -c user.name=t -c user.email=t@example.com commit -qm more && git rev-parse HEAD`)
	cmd.Dir = repo
	sha, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, lock.Step{Run: "true"})
	b.spec.Checkout = &wire.Checkout{URL: repo, SHA: strings.TrimSpace(string(sha))}
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatal(out, b.all())
	}
	for _, want := range []string{"git submodule update --init", "git lfs pull", "credential is not there for steps"} {
		if log := b.text(0, "kici"); !strings.Contains(log, want) {
			t.Errorf("no %q in:\n%s", want, log)
		}
	}
}

func TestCheckoutRefusedNamesTheCure(t *testing.T) {
	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		w.Header().Set("WWW-Authenticate", "Basic realm=git")
		http.Error(w, "no such token: "+password, http.StatusUnauthorized)
	}))
	defer closed.Close()
	b := newBench(t, lock.Step{Run: "true"})
	b.spec.Checkout = &wire.Checkout{URL: closed.URL + "/repo", SHA: strings.Repeat("ab", 20), Username: "u", Password: "revoked-token"}
	out := b.run()
	if out.Status != ci.JobFailed || out.InitFailure != InitCheckout || !strings.Contains(out.Error, "kici source set-token") {
		t.Errorf("%+v", out)
	}
	if text := out.Error + b.all(); strings.Contains(text, "revoked-token") {
		t.Errorf("the credential is shown:\n%s", text)
	}
}

func TestOutputsAreBounded(t *testing.T) {
	b := newBench(t, lock.Step{ID: "big", Run: `head -c 300000 /dev/zero | tr '\0' x > o; (printf 'v='; cat o; echo) >> $KICI_OUTPUT`})
	b.def.Outputs = map[string]string{"v": "${{ steps.big.outputs.v }}"}
	if out := b.run(); out.Status != ci.JobFailed || !strings.Contains(out.Error, "outputs") {
		t.Errorf("%v %v", out.Status, out.Error)
	}
}

func TestBigLogIsComplete(t *testing.T) {
	b := newBench(t, lock.Step{Run: "seq 100000"})
	if out := b.run(); out.Status != ci.JobSuccess {
		t.Fatal(out)
	}
	lines := strings.Fields(b.text(1, "stdout"))
	if len(lines) != 100_000 || lines[0] != "1" || lines[99_999] != "100000" {
		t.Errorf("%d lines", len(lines))
	}
}

// BenchmarkLog is a step that prints as fast as it can: pipe, workflow commands, masking, lines, spool, poster.
func BenchmarkLog(b *testing.B) {
	file := filepath.Join(b.TempDir(), "big")
	line := "2026-01-01T00:00:00Z some ordinary build output that compiles things [100%]\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 1<<20)), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(line)) << 20)
	for b.Loop() {
		sp := spool.New(spool.Config{
			Dir: b.TempDir(), MaxBytes: 1 << 62, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Post: func(_ context.Context, c spool.Chunk) (wire.LogAck, error) {
				n, err := io.Copy(io.Discard, c.Body)
				return wire.LogAck{Offset: c.Offset + n}, err
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = sp.Run(ctx) }()
		raw, _ := json.Marshal(lock.Job{Steps: []lock.Step{{Run: "cat " + file}}})
		j := New(Config{
			Spec: wire.JobSpec{JobID: "bench", Job: raw, Secrets: map[string]string{"A": "some-secret", "B": "other-secret"}},
			Dir:  b.TempDir(), Environ: []string{"PATH=" + os.Getenv("PATH")}, Spool: sp, Report: func(wire.StepStatus) {}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		if out := j.Run(); out.Status != ci.JobSuccess {
			b.Fatal(out)
		}
		if err := sp.Drained(ctx); err != nil {
			b.Fatal(err)
		}
		cancel()
		<-done
		sp.Close()
	}
}
