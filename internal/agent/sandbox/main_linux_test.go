package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/ci"
)

// The test's program is also the box, and, as a user without rights, the agent that opens one.
const driveCommand = "sandbox-drive"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Command:
			os.Exit(Main())
		case driveCommand:
			os.Exit(drive())
		}
	}
	goleak.VerifyTestMain(m)
}

// played is what a driver is told to do.
type played struct {
	Config     Config   `json:"config"`
	Namespaces bool     `json:"namespaces"`
	Scripts    []string `json:"scripts"`
}

// result is what became of one script.
type result struct {
	Out   string `json:"out"`
	Exit  Exit   `json:"exit"`
	Error string `json:"error,omitempty"`
}

type outcome struct {
	Report  Report   `json:"report"`
	Error   string   `json:"error,omitempty"`
	Results []result `json:"results"`
}

func drive() int {
	var p played
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// As an agent does, so that no other process of its user reads its memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var out outcome
	b, err := open(context.Background(), p.Config, Options{Executable: os.Args[0], Env: os.Environ()}, p.Namespaces)
	if err != nil {
		out.Error = err.Error()
	} else {
		out.Report = b.Report
		for _, s := range p.Scripts {
			out.Results = append(out.Results, runScript(b, p.Config, s))
		}
		b.Close()
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
	return 0
}

func runScript(b *Box, c Config, script string) (r result) {
	read, write, err := os.Pipe()
	if err != nil {
		return result{Error: err.Error()}
	}
	defer read.Close()
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "BIG=" + strings.Repeat("x", 100<<10)}
	wait, err := b.Start(Process{Path: "/bin/bash", Argv: []string{"bash", "-c", script}, Dir: c.Write[0], Env: env}, write, write)
	_ = write.Close()
	if err != nil {
		return result{Error: err.Error()}
	}
	e, err := wait()
	if err != nil {
		r.Error = err.Error()
	}
	r.Exit = e
	_ = read.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // what a script leaves running holds it open
	var text bytes.Buffer
	_, _ = io.Copy(&text, read)
	r.Out = text.String()
	return r
}

// rig is a folder that a user without rights owns, and this program where that user reaches it.
type rig struct {
	dir, program string
	uid          int
}

// testUser is nobody else's.
const testUser = 61763

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		lacks(t, "needs root, to become a user without rights")
	}
	base, err := os.MkdirTemp("/var/tmp", "kici-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	r := &rig{dir: filepath.Join(base, "job"), program: filepath.Join(base, "program"), uid: testUser}
	must(t, os.Chmod(base, 0o755))
	self, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(r.program, data, 0o755))
	for _, d := range []string{r.dir, r.path("workspace"), r.path("tmp"), r.path("root"), r.path("secret"), r.path("seen")} {
		must(t, os.Mkdir(d, 0o700))
		must(t, os.Chown(d, r.uid, r.uid))
	}
	for _, f := range []string{r.path("secret", "key"), r.path("seen", "file")} {
		must(t, os.WriteFile(f, []byte("the secret\n"), 0o600))
		must(t, os.Chown(f, r.uid, r.uid))
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) path(elem ...string) string { return filepath.Join(append([]string{r.dir}, elem...)...) }

func (r *rig) asUser() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid)}}
}

func (r *rig) config() Config {
	return Config{Write: []string{r.path("workspace")}, Read: []string{r.path("seen")}, Tmp: r.path("tmp"), Root: r.path("root"), Network: ci.NetworkIsolated}
}

func (r *rig) play(t *testing.T, p played) outcome {
	t.Helper()
	in, err := json.Marshal(p)
	must(t, err)
	cmd := osexec.Command(r.program, driveCommand)
	cmd.Stdin, cmd.Dir = bytes.NewReader(in), "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = r.asUser()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var res outcome
	must(t, json.Unmarshal(out, &res))
	for _, refusal := range []string{"operation not permitted", "permission denied", "no space left", "has no Landlock", "mount proc"} {
		if strings.Contains(res.Error, refusal) { // in a container, or where the distribution says no
			lacks(t, res.Error)
		}
	}
	return res
}

// lacks skips a test, or fails it where KICI_TEST_REQUIRE says that this machine must be able to run it.
func lacks(t *testing.T, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "sandbox") {
		t.Fatalf("%s, and KICI_TEST_REQUIRE names sandbox", why)
	}
	t.Skip(why)
}
