package harness

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
)

func allRuns() client.RunQuery { return client.RunQuery{Limit: 100} }

// TestXC3SixteenSendersOneRun: the same delivery, sixteen times at once, gives one run.
func TestXC3SixteenSendersOneRun(t *testing.T) {
	engines(t, func(t *testing.T, databaseURL func(*testing.T) string) {
		w := newWorld(t, databaseURL(t), crashWorkflow)
		w.start(0)
		answers := make([]int, 16)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = w.push("the-same") })
		}
		wg.Wait()
		slices.Sort(answers)
		if answers[0] != http.StatusOK || answers[14] != http.StatusOK || answers[15] != http.StatusAccepted {
			t.Errorf("answers %v, want fifteen times 200 (duplicate) and 202 once", answers)
		}
		w.expectOneCleanRun()
		w.stop()
	})
}

// send posts a signed body and returns the answer's status, 0 when there was none.
func (w *world) send(id, event string, body io.Reader, signature string) int {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.hook.WebhookURL, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Signature-256", "sha256="+signature)
	req.Header.Set("X-Event-Type", event)
	req.Header.Set("X-Delivery-Id", id)
	req.Header.Set("Content-Type", "application/json")
	c := http.Client{Timeout: 60 * time.Second}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (w *world) sign(body string) string {
	mac := hmac.New(sha256.New, []byte(w.hook.Secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// endless is a body that never ends and says nothing about its length.
type endless struct{ sent atomic.Int64 } // read by the sender's own goroutine

func (e *endless) Read(p []byte) (int, error) {
	if e.sent.Load() > 100<<20 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	e.sent.Add(int64(len(p)))
	return len(p), nil
}

// TestXC10HugeBody: 100 MB without a length are refused while they are read, and the server does not grow by them.
func TestXC10HugeBody(t *testing.T) {
	w := newWorld(t, "", crashWorkflow)
	w.start(0)
	before := w.memory()
	body := &endless{}
	if status := w.send("huge", "push", body, strings.Repeat("0", 64)); status != http.StatusRequestEntityTooLarge && status != 0 {
		t.Errorf("answered %d, want 413 or a cut connection", status)
	}
	if n := body.sent.Load(); n > 64<<20 {
		t.Errorf("the server read %d bytes", n)
	}
	if grown := w.memory() - before; grown > 40<<20 {
		t.Errorf("the server grew by %d bytes", grown)
	}
	if status := w.get("/ready"); status != http.StatusOK {
		t.Errorf("ready answers %d", status)
	}
	w.stop()
}

func (w *world) memory() (bytes int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		w.t.Skip("SKIPPED: no /proc")
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	_, err = fmt.Sscan(rest, &bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	return bytes << 10
}

// TestHostileWorkflows: each becomes one failed run that names the file and says what is wrong, in no time; the server goes on.
func TestHostileWorkflows(t *testing.T) {
	const file = ".kici/workflows/ci.yaml"
	laughs := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		laughs += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	var cells []string
	for i := range 10_000 {
		cells = append(cells, fmt.Sprint(i))
	}
	for name, c := range map[string]struct{ text, says string }{
		"billion laughs": {laughs, "anchors"},
		"deep nesting":   {strings.Repeat("[", 50_000), file},
		"10,000 cells":   {"name: m\non: push\njobs:\n  a:\n    runs-on: linux\n    strategy: {matrix: {n: [" + strings.Join(cells, ",") + "]}}\n    steps: [{run: 'true'}]\n", "256"},
		"not YAML":       {"\x00\x01\x02", file},
		"nothing":        {"", file},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "", c.text)
			w.start(0)
			begin := time.Now()
			if status := w.push("hostile"); status != http.StatusAccepted {
				t.Fatalf("answered %d", status)
			}
			w.until("the failed run", 20*time.Second, func() bool { _, ok := w.ended(); return ok })
			d, _ := w.ended()
			if d.Status != "failed" || d.InitFailure != "lock_resolution" || d.Workflow != "(unresolved workflow)" {
				t.Errorf("run %s %q of %q", d.Status, d.InitFailure, d.Workflow)
			}
			if !strings.Contains(d.FailureReason, c.says) || !strings.Contains(d.FailureReason, file) {
				t.Errorf("the reason names neither %q nor %q: %s", c.says, file, d.FailureReason)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			if status := w.get("/ready"); status != http.StatusOK {
				t.Errorf("ready answers %d", status)
			}
			w.stop()
		})
	}
}

// TestSymlinkedWorkflows: a symlink in place of .kici, or of a workflow, is not followed.
func TestSymlinkedWorkflows(t *testing.T) {
	for name, link := range map[string]string{"directory": ".kici", "file": ".kici/workflows/ci.yaml"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "", crashWorkflow)
			w.start(0)
			repo := filepath.Join(w.dir, "repo")
			if err := os.Rename(filepath.Join(repo, link), filepath.Join(w.dir, "elsewhere")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(w.dir, "elsewhere"), filepath.Join(repo, link)); err != nil {
				t.Fatal(err)
			}
			w.git("add", "-A")
			w.git("commit", "-q", "-m", "a link")
			w.sha = strings.TrimSpace(w.git("rev-parse", "HEAD"))
			if status := w.push("link"); status != http.StatusAccepted {
				t.Fatalf("answered %d", status)
			}
			var d client.Delivery
			w.until("the delivery is done with", 20*time.Second, func() bool {
				list, err := w.api.Deliveries(t.Context(), client.DeliveryQuery{Limit: 1})
				if err != nil || len(list.Deliveries) == 0 {
					return false
				}
				d = list.Deliveries[0]
				return d.FinishedAt != nil
			})
			if d.Status == "processed" || len(w.ran()) > 1 || w.ran()[0] != "" {
				t.Errorf("delivery %s, steps left %q", d.Status, w.ran())
			}
			if !strings.Contains(d.Error, "symbolic link") && !strings.Contains(d.Error, "symlink") {
				t.Errorf("nothing says that it is a link: %q", d.Error)
			}
			w.stop()
		})
	}
}

// TestHostileBranches: names that try to be options, paths or scripts start what they should or nothing, and touch nothing else.
func TestHostileBranches(t *testing.T) {
	w := newWorld(t, "", `name: ci
on: push
jobs:
  first:
    runs-on: linux
    steps:
      - run: printf '%s\n' "$KICI_REF" >> "%[1]s/ran"
`)
	w.start(0)
	canary := filepath.Join(w.dir, "canary")
	names := []string{
		"$(touch " + canary + ")", "`touch " + canary + "`", "a;touch " + canary, "--upload-pack=touch " + canary, "-c", "../../../" + canary,
		"a\ntouch " + canary, "a b", "\u202eevil", "refs/heads/main", "main@{1}", "main^{tree}", ":/x", "\x00", strings.Repeat("a", 5000),
	}
	for i, name := range names {
		ref, _ := json.Marshal("refs/heads/" + name)
		body := fmt.Sprintf(`{"ref":%s,"before":%q,"after":%q}`, ref, strings.Repeat("0", 40), w.sha)
		status := w.send(fmt.Sprintf("branch-%d", i), "push", strings.NewReader(body), w.sign(body))
		if status >= 500 || status == 0 {
			t.Errorf("%q: answered %d", name, status)
		}
	}
	w.until("every delivery is done with", 60*time.Second, func() bool {
		list, err := w.api.Deliveries(t.Context(), client.DeliveryQuery{Limit: 100})
		return err == nil && !slices.ContainsFunc(list.Deliveries, func(d client.Delivery) bool { return d.FinishedAt == nil })
	})
	w.until("every run has ended", 60*time.Second, func() bool {
		list, err := w.api.Runs(t.Context(), allRuns())
		return err == nil && !slices.ContainsFunc(list.Runs, func(r client.Run) bool { return r.FinishedAt == nil })
	})
	if _, err := os.Stat(canary); err == nil {
		t.Error("a branch name was executed")
	}
	w.stop()
}

// TestFullDisk: while nothing can be written the server says so and stays; nothing accepted is lost, and it works when there is
// room again.
func TestFullDisk(t *testing.T) {
	w := newWorld(t, "", crashWorkflow)
	if err := os.MkdirAll(w.role.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", w.role.DataDir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("SKIPPED: mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(w.role.DataDir, syscall.MNT_DETACH) })
	w.role.SmallDisk = true
	w.start(0)
	if status := w.push("with-room"); status != http.StatusAccepted {
		t.Fatalf("answered %d", status)
	}
	w.expectOneCleanRun()
	ballast := filepath.Join(w.role.DataDir, "ballast")
	if err := os.WriteFile(ballast, bytes.Repeat([]byte("x"), 24<<20), 0o600); err == nil {
		t.Fatal("24 MB went into 24 MB that hold a database")
	}
	refused := 0
	for i := range 40 {
		switch status := w.push(fmt.Sprintf("full-%d", i)); {
		case status >= 500:
			refused++
		case status != http.StatusAccepted:
			t.Errorf("answered %d", status)
		}
	}
	if refused == 0 {
		t.Error("no delivery was refused on a full disk")
	}
	if status := w.get("/health"); status != http.StatusOK {
		t.Errorf("health answers %d", status)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.until("it takes deliveries again", 30*time.Second, func() bool { return w.push("after") == http.StatusAccepted || w.push("after") == http.StatusOK })
	w.until("every accepted delivery is done with", 90*time.Second, func() bool {
		list, err := w.api.Deliveries(t.Context(), client.DeliveryQuery{Limit: 100})
		return err == nil && !slices.ContainsFunc(list.Deliveries, func(d client.Delivery) bool { return d.FinishedAt == nil })
	})
	w.stop()
}

// TestReadOnlyDataDirectory: one clear sentence and exit code 1.
func TestReadOnlyDataDirectory(t *testing.T) {
	w := newWorld(t, "", crashWorkflow)
	if err := os.MkdirAll(w.role.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", w.role.DataDir, "tmpfs", syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Skipf("SKIPPED: mounting needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(w.role.DataDir, syscall.MNT_DETACH) })
	w.launch(0)
	select {
	case <-w.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("the server did not give up")
	}
	if code := w.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(w.log.String(), w.role.DataDir) || !strings.Contains(strings.ToLower(w.log.String()), "read-only") {
		t.Errorf("it said: %s", w.log)
	}
}
