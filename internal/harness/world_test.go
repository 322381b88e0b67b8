package harness

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the engine under test needs a database of its own

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
)

// world is a machine: a data directory, a repository, and servers that come and go on one port.
type world struct {
	t      *testing.T
	dir    string
	role   serverRole
	cmd    *exec.Cmd
	exited chan struct{}
	log    *logBuffer
	api    *client.Client
	hook   client.AddedSource
	sha    string
}

// Two jobs, each of which leaves a line in a file: run twice, it would leave two.
const crashWorkflow = `name: ci
on: push
jobs:
  first:
    runs-on: linux
    outputs:
      word: ${{ steps.say.outputs.word }}
    steps:
      - id: say
        run: |
          echo first >> "%[1]s/ran"
          sleep 0.05
          echo "word=hello" >> "$KICI_OUTPUT"
  second:
    needs: first
    runs-on: linux
    steps:
      - run: echo "second ${{ needs.first.outputs.word }}" >> "%[1]s/ran"
`

func newWorld(t *testing.T, databaseURL, workflow string) *world {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		require(t, "git", "git is not installed")
	}
	dir := t.TempDir()
	w := &world{t: t, dir: dir, role: serverRole{
		DataDir: filepath.Join(dir, "data"), DatabaseURL: databaseURL, Port: freePort(t), OnStop: "keep",
		Armed: filepath.Join(dir, "armed"), Counted: filepath.Join(dir, "counted"),
	}}
	w.makeRepository(workflow)
	t.Cleanup(w.cleanUp)
	return w
}

// require skips, loudly, what this machine cannot do, unless it must be able to (D26).
func require(t *testing.T, capability, why string) {
	t.Helper()
	for c := range strings.SplitSeq(os.Getenv("KICI_TEST_REQUIRE"), ",") {
		if c == capability {
			t.Fatalf("%s, and KICI_TEST_REQUIRE names %s", why, capability)
		}
	}
	t.Skipf("SKIPPED: %s", why)
}

func (w *world) makeRepository(workflow string) {
	repo := filepath.Join(w.dir, "repo")
	file := filepath.Join(repo, ".kici", "workflows", "ci.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(workflow, "%[1]s", w.dir)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.git("init", "-q", "-b", "main")
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "a commit")
	w.sha = strings.TrimSpace(w.git("rev-parse", "HEAD"))
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	all := append([]string{"-C", filepath.Join(w.dir, "repo"), "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)
	out, err := exec.Command("git", all...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// start starts a server that dies at the given commit (0 = never) and waits until it is ready or dead.
func (w *world) start(crashAt int) {
	w.t.Helper()
	w.launch(crashAt)
	w.until("the server is ready", 20*time.Second, func() bool { return w.dead() || w.get("/ready") == http.StatusOK })
	if w.api == nil {
		w.connect()
	}
}

func (w *world) launch(crashAt int) {
	w.t.Helper()
	role := w.role
	role.CrashAt = crashAt
	text, err := json.Marshal(role)
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = &logBuffer{}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = w.log, w.log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	w.cmd, w.exited = cmd, exited
}

func (w *world) connect() {
	w.t.Helper()
	token, err := os.ReadFile(filepath.Join(w.role.DataDir, "admin.token"))
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.log)
	}
	if w.api, err = client.New(client.Config{URL: w.url(""), Token: strings.TrimSpace(string(token))}); err != nil {
		w.t.Fatal(err)
	}
	w.hook, err = w.api.AddSource(w.t.Context(), client.NewSource{Kind: "local", Name: "repo", Path: filepath.Join(w.dir, "repo"), Repo: "acme/repo"})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) url(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", w.role.Port, path)
}

func (w *world) get(path string) int {
	c := http.Client{Timeout: time.Second}
	resp, err := c.Get(w.url(path))
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (w *world) dead() bool {
	select {
	case <-w.exited:
		return true
	default:
		return false
	}
}

// push reports the push under a delivery id, as a sender would, and returns the status of the answer, 0 without one.
func (w *world) push(deliveryID string) int {
	body := fmt.Sprintf(`{"ref":"refs/heads/main","before":%q,"after":%q}`, strings.Repeat("0", 40), w.sha)
	req, err := http.NewRequest(http.MethodPost, w.hook.WebhookURL, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(w.hook.Secret))
	mac.Write([]byte(body))
	req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-Event-Type", "push")
	req.Header.Set("X-Delivery-Id", deliveryID)
	req.Header.Set("Content-Type", "application/json")
	c := http.Client{Timeout: 20 * time.Second}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// until polls; what has not happened in time fails the test with the server's log.
func (w *world) until(what string, within time.Duration, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %s: %s\n%s", within, what, w.log)
		}
	}
}

// ended is the only run once it has ended.
func (w *world) ended() (client.RunDetail, bool) {
	list, err := w.api.Runs(w.t.Context(), client.RunQuery{Limit: 10})
	if err != nil || len(list.Runs) == 0 {
		return client.RunDetail{}, false
	}
	d, err := w.api.Run(w.t.Context(), list.Runs[0].ID)
	return d, err == nil && d.FinishedAt != nil
}

// settled reports whether nothing is left of any agent: no live row, no process, no directory.
func (w *world) settled() error {
	list, err := w.api.Agents(w.t.Context(), false, "", "", 50)
	if err != nil {
		return err
	}
	if n := len(list.Agents); n > 0 {
		return fmt.Errorf("%d agents are still alive in the ledger, the first is %s in state %s", n, list.Agents[0].ID, list.Agents[0].State)
	}
	if left, _ := os.ReadDir(filepath.Join(w.role.DataDir, "agents")); len(left) > 0 {
		return fmt.Errorf("directory of agent %s is left", left[0].Name())
	}
	if pids := w.processes(); len(pids) > 0 {
		return fmt.Errorf("processes %v are left", pids)
	}
	return nil
}

// processes are those that carry this world's directory in their environment or command line, besides the server and its git.
func (w *world) processes() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || w.cmd != nil && pid == w.cmd.Process.Pid {
			continue
		}
		if w.cmd != nil && parent(pid) == w.cmd.Process.Pid {
			comm, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
			if strings.TrimSpace(string(comm)) == "git" {
				continue
			}
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.Contains(environ, []byte(w.dir+"/")) || bytes.Contains(cmdline, []byte(w.dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func parent(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

func (w *world) ran() []string {
	text, _ := os.ReadFile(filepath.Join(w.dir, "ran"))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (w *world) stop() {
	if w.cmd == nil || w.dead() {
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.exited:
	case <-time.After(30 * time.Second):
		w.t.Errorf("the server did not stop\n%s", w.log)
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
}

func (w *world) cleanUp() {
	if w.cmd != nil && !w.dead() {
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
	for _, pid := range w.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// engines runs f on SQLite and, where there is a server, on PostgreSQL.
func engines(t *testing.T, f func(t *testing.T, databaseURL func(*testing.T) string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, func(*testing.T) string { return "" }) })
	t.Run("postgres", func(t *testing.T) {
		base := os.Getenv("KICI_TEST_POSTGRES")
		if base == "" {
			require(t, "postgres", "KICI_TEST_POSTGRES is not set: no PostgreSQL to test with")
		}
		f(t, func(t *testing.T) string { return database(t, base) })
	})
}

// database makes an empty database that lives as long as the test.
func database(t *testing.T, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("pgx", base)
	if err != nil {
		t.Fatal(err)
	}
	name := "harness_" + ci.RandomHex(6)
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err := admin.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		if err := errors.Join(err, admin.Close()); err != nil {
			t.Log(err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

// logBuffer is what a process prints; it can be read while the process writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
