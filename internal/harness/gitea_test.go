package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gitea is a real Gitea (scripts/gitea.sh) with a data directory, on one port, that can be stopped and started again.
type gitea struct {
	t         *testing.T
	bin, dir  string
	port      int
	cmd       *exec.Cmd
	exited    chan struct{}
	log       *logBuffer
	ann, bob  string // tokens: ann owns the repository, bob may only read it
	tokenName string // of ann's token
}

const giteaPassword = "a-password-of-tests-1"

// newGitea sets one up and starts it; without a binary the test is skipped, loudly.
func newGitea(t *testing.T) *gitea {
	t.Helper()
	bin := os.Getenv("KICI_TEST_GITEA")
	if bin == "" {
		require(t, "gitea", "KICI_TEST_GITEA names no Gitea binary; `make forge` builds one")
	}
	if _, err := exec.LookPath("git"); err != nil {
		require(t, "git", "git is not installed")
	}
	g := &gitea{t: t, bin: bin, dir: t.TempDir(), port: freePort(t), tokenName: "tests"}
	g.configure()
	g.run("migrate")
	g.ann = g.addUser("ann", "--admin")
	g.bob = g.addUser("bob")
	t.Cleanup(g.stop)
	g.start()
	return g
}

func (g *gitea) url(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", g.port, path) }

func (g *gitea) configure() {
	g.t.Helper()
	me, err := user.Current()
	if err != nil {
		g.t.Fatal(err)
	}
	static := g.dir // of a binary with everything in it
	if beside := filepath.Dir(g.bin); exists(filepath.Join(beside, "options")) {
		static = beside
	}
	text := fmt.Sprintf(`APP_NAME = tests
RUN_MODE = prod
RUN_USER = %[1]s
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = %[2]s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[3]d
ROOT_URL = http://127.0.0.1:%[3]d/
STATIC_ROOT_PATH = %[4]s
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = %[2]s/gitea.db
[repository]
ROOT = %[2]s/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = a-secret-of-tests
PASSWORD_HASH_ALGO = pbkdf2_v2
[oauth2]
ENABLED = false
[webhook]
ALLOWED_HOST_LIST = *
[service]
DISABLE_REGISTRATION = true
[log]
MODE = console
LEVEL = warn
`, me.Username, g.dir, g.port, static)
	if err := os.WriteFile(filepath.Join(g.dir, "app.ini"), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (g *gitea) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.bin, append([]string{"--config", filepath.Join(g.dir, "app.ini")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+g.dir, "GITEA_WORK_DIR="+g.dir)
	return cmd
}

func (g *gitea) run(args ...string) string {
	g.t.Helper()
	out, err := g.command(g.t.Context(), args...).CombinedOutput()
	if err != nil {
		g.t.Fatalf("gitea %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// addUser returns a token with every right of the user.
func (g *gitea) addUser(name string, more ...string) string {
	g.t.Helper()
	out := g.run(append([]string{
		"admin", "user", "create", "--username", name, "--password", giteaPassword, "--email", name + "@example.com",
		"--must-change-password=false", "--access-token", "--access-token-name", g.tokenName, "--access-token-scopes", "all",
	}, more...)...)
	_, token, ok := strings.Cut(out, "successfully created... ")
	if !ok {
		g.t.Fatalf("no token in %s", out)
	}
	return strings.TrimSpace(token)
}

func (g *gitea) start() {
	g.t.Helper()
	g.log = &logBuffer{}
	cmd := g.command(context.Background(), "web")
	cmd.Stdout, cmd.Stderr = g.log, g.log
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	g.cmd, g.exited = cmd, exited
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-exited:
			g.t.Fatalf("Gitea ended\n%s", g.log)
		default:
		}
		if status, _, err := g.ask(http.MethodGet, "/api/healthz", "", nil); err == nil && status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			g.stop()
			g.t.Fatalf("Gitea does not become healthy\n%s", g.log)
		}
	}
}

// stop ends it as an operator would, and kills what does not end.
func (g *gitea) stop() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.exited:
	case <-time.After(60 * time.Second):
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	g.cmd = nil
}

// ask makes one request. token is a token, or a user's name for that user's password.
func (g *gitea) ask(method, path, token string, body any) (int, []byte, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, g.url(path), sent)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	switch token {
	case "":
	case "ann", "bob":
		req.SetBasicAuth(token, giteaPassword)
	default:
		req.Header.Set("Authorization", "token "+token)
	}
	c := http.Client{Timeout: 30 * time.Second}
	defer c.CloseIdleConnections()
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// api asks the API and fails the test on anything but success.
func (g *gitea) api(method, path, token string, body, out any) {
	g.t.Helper()
	status, text, err := g.ask(method, "/api/v1"+path, token, body)
	if err != nil || status/100 != 2 {
		g.t.Fatalf("%s %s: %d %v\n%s\n%s", method, path, status, err, text, g.log)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			g.t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
	}
}

// statuses are the last state of each context of a commit.
func (g *gitea) statuses(repo, sha string) map[string]string {
	status, text, err := g.ask(http.MethodGet, "/api/v1/repos/"+repo+"/commits/"+sha+"/status?limit=50", "bob", nil)
	var all struct {
		Statuses []struct {
			Context string `json:"context"`
			State   string `json:"status"`
		} `json:"statuses"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &all) != nil {
		return nil
	}
	out := map[string]string{}
	for _, s := range all.Statuses {
		out[s.Context] = s.State
	}
	return out
}
