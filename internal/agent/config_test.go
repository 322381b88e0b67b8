//go:build unix

package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/agent/workdir"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestConfigFromEnv(t *testing.T) {
	c, err := ConfigFromEnv([]string{
		"KICI_ORCHESTRATOR_URL=ws://x/ws", "KICI_AGENT_ID=a", "KICI_LABELS=Linux, big,,linux", "KICI_PROPERTIES=a=1, b=x=y",
		"KICI_SCALER_MANAGED=1", "KICI_SCALER_IDLE_TIMEOUT=7000", "KICI_AGENT_TOKEN_FD=3", "KICI_PORT=0", "KICI_OUTPUT=/x",
		"HOME=/h", "SECRET_THING=1", "KICI_EXECUTION_MODE=bare-metal", "KICI_AGENT_MARK=m", "KICI_MIN_FREE_DISK_BYTES=1048576",
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"big", "linux"}, c.Labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"a": "1", "b": "x=y"}, c.Properties); d != "" {
		t.Error(d)
	}
	if !c.Managed || c.IdleTimeout != 7*time.Second || c.TokenFD != 3 || c.PendingTimeout != time.Minute || c.ReconnectWindow != time.Minute || !c.Process || c.MinFreeDisk != 1<<20 {
		t.Errorf("%+v", c)
	}
	if d := cmp.Diff([]string{"HOME=/h", "SECRET_THING=1", "KICI_AGENT_MARK=m"}, c.Environ); d != "" {
		t.Error(d)
	}
	c, err = ConfigFromEnv([]string{"HOME=/h", "SECRET_THING=1", "LC_TIME=C", "PATH=/bin", "KICI_AGENT_TOKEN=kat_x"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"HOME=/h", "LC_TIME=C", "PATH=/bin"}, c.Environ); d != "" {
		t.Error(d)
	}
	if c.MinFreeDisk != 256<<20 {
		t.Errorf("a static agent's floor is %d", c.MinFreeDisk)
	}
	if c.ReconnectWindow != 0 {
		t.Errorf("a static agent waits %s", c.ReconnectWindow)
	}
}

func TestConfigReportsEveryMistake(t *testing.T) {
	_, err := ConfigFromEnv([]string{"KICI_NONSENSE=1", "KICI_SCALER_MANAGED=maybe", "KICI_SCALER_IDLE_TIMEOUT=-1", "KICI_PROPERTIES=x", "KICI_SANDBOX=true", "KICI_SANDBOX_NETWORK=none", "KICI_SANDBOX_PATHS=rel", "KICI_DATADIR=/x"})
	for _, want := range []string{"KICI_NONSENSE", "KICI_SCALER_MANAGED", "KICI_SCALER_IDLE_TIMEOUT", "KICI_PROPERTIES", "KICI_SANDBOX_NETWORK", "KICI_SANDBOX_PATHS", "KICI_DATADIR"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s: %v", want, err)
		}
	}
	c := Config{Labels: []string{"kici:role:builder"}, AgentID: "a b", Log: discard()}
	err = c.complete()
	for _, want := range []string{"KICI_ORCHESTRATOR_URL", "kici:role:builder", "a b"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s: %v", want, err)
		}
	}
	c = Config{URL: "http://x", Labels: []string{"kici:role:builder"}, Managed: true, Log: discard()}
	if err := c.complete(); err != nil || c.AgentID == "" || workdir.CleanID(c.AgentID) != c.AgentID {
		t.Error(err, c.AgentID)
	}
}

func TestSandboxOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want *job.Sandbox
	}{
		{nil, nil},
		{[]string{"KICI_SANDBOX=false", "KICI_SANDBOX_NETWORK=host"}, nil},
		{[]string{"KICI_SANDBOX=true"}, &job.Sandbox{Network: "isolated"}},
		{
			[]string{"KICI_SANDBOX=1", "KICI_SANDBOX_NETWORK=host", "KICI_SANDBOX_PATHS=/sdk, /cache:rw,/b:ro", "KICI_SANDBOX_HIDDEN=/data"},
			&job.Sandbox{Network: "host", Read: []string{"/sdk", "/b"}, Write: []string{"/cache"}, Hidden: []string{"/data"}},
		},
	} {
		got, err := ConfigFromEnv(c.env)
		if d := cmp.Diff(c.want, got.Sandbox); err != nil || d != "" {
			t.Errorf("%v: %v %s", c.env, err, d)
		}
	}
}

// An agent that somebody started and that cannot make the sandbox it is told to make ends at once; a scaler's node has tried it before.
func TestSandboxIsTriedAtTheStart(t *testing.T) {
	c := Config{Sandbox: &job.Sandbox{Network: "isolated"}, Executable: "/does/not/exist", Log: discard()}
	if err := c.trySandbox(t.TempDir()); err == nil || !strings.Contains(err.Error(), "KICI_SANDBOX") {
		t.Errorf("a static agent: %v", err)
	}
	c.Managed = true
	if err := c.trySandbox(t.TempDir()); err != nil {
		t.Errorf("a scaler's agent: %v", err)
	}
	if err := (&Config{}).trySandbox(t.TempDir()); err != nil {
		t.Errorf("without a sandbox: %v", err)
	}
}

func TestLoadToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" kat_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{TokenFile: file}
	if tok, err := c.loadToken(); tok != "kat_file" || err != nil {
		t.Error(tok, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString("kat_fd")
	_ = w.Close()
	fd, err := syscall.Dup(int(r.Fd())) // loadToken closes it; r closes its own
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	c = Config{TokenFD: fd}
	if tok, err := c.loadToken(); tok != "kat_fd" || err != nil {
		t.Error(tok, err)
	}
	_ = os.WriteFile(file, []byte("two words"), 0o600)
	for _, c := range []Config{{TokenFile: file}, {TokenFile: file + "x"}, {}, {TokenFD: 9999}} {
		if tok, err := c.loadToken(); err == nil {
			t.Errorf("%+v: %q", c, tok)
		}
	}
}
