package baremetal

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

func TestProperties(t *testing.T) {
	const fixed = "Slice=kici-scaler.slice Delegate=true TimeoutStopUSec=20000000"
	for _, c := range []struct {
		limits  cgroup.Limits
		version int
		want    string
	}{
		{cgroup.Limits{}, 252, ""},
		{cgroup.Limits{CPUMilli: 1500}, 252, " CPUQuotaPerSecUSec=1500000"},
		{cgroup.Limits{CPUMilli: 3}, 252, " CPUQuotaPerSecUSec=10000"}, // BM-7: at least 1 %
		{cgroup.Limits{MemBytes: 2 << 30}, 252, " MemoryMax=2147483648 MemorySwapMax=0"},
		{cgroup.Limits{Tasks: defaultTasks}, 253, " TasksMax=4096 OOMPolicy=continue"},
		{cgroup.Limits{CPUMilli: 256_000, MemBytes: 1, Tasks: 2}, 257, " CPUQuotaPerSecUSec=256000000 MemoryMax=1 MemorySwapMax=0 TasksMax=2 OOMPolicy=continue"},
		{cgroup.Limits{CPUMilli: 1000}, 0, " CPUQuotaPerSecUSec=1000000"}, // an unknown version gets nothing that it might not know
	} {
		var got []string
		for _, p := range properties(c.limits, c.version) {
			_, value, _ := strings.Cut(p.Value.String(), " ") // "@t 7"
			if value == "" {
				value = p.Value.String()
			}
			got = append(got, p.Name+"="+strings.Trim(value, `"`))
		}
		if text := strings.Join(got, " "); text != fixed+c.want {
			t.Errorf("%+v for %d:\n got %s\nwant %s", c.limits, c.version, text, fixed+c.want)
		}
	}
}

func TestVersionOf(t *testing.T) {
	for text, want := range map[string]int{`"252 (252.39-1~deb12u2)"`: 252, `"v257.1"`: 257, `"260~rc1"`: 260, `""`: 0, "": 0, `"newest"`: 0} {
		if got := versionOf(text); got != want {
			t.Errorf("%s: %d", text, got)
		}
	}
}

// insideVariable is set in tests that run inside of a systemd of their own.
const insideVariable = "KICI_TEST_INSIDE_SYSTEMD"

const systemWay = "systemd (system manager)"

// inside runs the calling test again, inside of a systemd of its own, as a service of it. It is false there.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return false
	}
	if os.Geteuid() != 0 {
		require(t, "systemd", "a systemd of its own needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "kici-systemd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "test"), program, 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	pid := startSystemd(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", pid, "-a", "--", "systemd-run", "--quiet", "--pipe", "--wait", "--unit=server", "-p", "KillMode=process",
		"-p", "Delegate=yes", "-E", insideVariable+"=1", "-E", "KICI_TEST_REQUIRE="+systemWay, "/shared/test", "-test.v", "-test.timeout=80s", "-test.run=^"+t.Name()+"$")
	cmd.WaitDelay = time.Second // what nsenter has started is not its child
	out, err := cmd.CombinedOutput()
	t.Logf("inside:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("inside of systemd it failed: %v", err)
	}
	return true
}

// startSystemd starts one and returns its pid; it ends with the test.
func startSystemd(t *testing.T, dir string) (pid string) {
	t.Helper()
	cmd := exec.Command("../../../../scripts/systemd.sh", dir)
	cmd.Stderr = os.Stderr
	hold, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		require(t, "systemd", "a systemd of its own cannot be started", err)
	}
	t.Cleanup(func() { _ = hold.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		require(t, "systemd", "a systemd of its own does not come up", err, string(log))
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimSpace(line)
}

// BM-7, BM-18: scopes of a real systemd.
func TestScopes(t *testing.T) {
	if inside(t) {
		return
	}
	testLimits(t, systemWay)
	t.Run("a scope is of its slice and named in the record", func(t *testing.T) { testScopePlace(t) })
	t.Run("what left the process group ends with the scope", testScopeChildren)
	t.Run("a scope without a record is found", testOrphanScope)
	t.Run("a unit of another node is left alone", testForeignScope)
	t.Run("as another user", testScopeOfAnotherUser)
	t.Run("prepare finds it", func(t *testing.T) {
		r, _ := limited(t, systemWay)
		b := r.open("two")
		if err := b.Prepare(t.Context()); err != nil || b.enforces().String() != systemWay {
			t.Errorf("found %v: %v", b.enforces(), err)
		}
		if left := units(t, b); len(left) > 0 {
			t.Errorf("trying left %v", left)
		}
	})
}

func units(t *testing.T, b *Backend) (names []string) {
	t.Helper()
	err := b.managers[systemManager].do(t.Context(), func(ctx context.Context, c *sd.Conn, _ int) error {
		all, err := c.ListUnitsByPatternsContext(ctx, nil, []string{unitPrefix + "*"})
		for _, u := range all {
			names = append(names, u.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func testScopePlace(t *testing.T) {
	const id = "scaler-bare-metal-00000001"
	r, b := limited(t, systemWay)
	planned, err := b.Plan(r.spec(id))
	if err != nil || !strings.Contains(string(planned), `"unit":"kici-agent-scaler-bare-metal-00000001.scope"`) {
		t.Fatalf("planned %s: %v", planned, err)
	}
	rec := r.createLimited(b, id, "", ci.Resources{CPUMilli: 1000})
	if !strings.HasSuffix(rec.Cgroup, "/kici.slice/kici-scaler.slice/kici-agent-"+id+".scope") {
		t.Errorf("it is in %s", rec.Cgroup)
	}
	r.up(rec)
	r.gone(b, id, rec)
	files, err := filepath.Glob("/run/systemd/*/kici-agent-*")
	if left := units(t, b); len(left) > 0 || len(files) > 0 || err != nil {
		t.Errorf("left %v %v", left, files)
	}
}

func testScopeChildren(t *testing.T) {
	const id = "scaler-bare-metal-00000001"
	r, b := limited(t, systemWay)
	rec := r.createLimited(b, id, "children", ci.Resources{})
	r.up(rec)
	_ = unix.Kill(rec.Pid, unix.SIGKILL)
	r.eventually("the agent is dead", func() bool { got, _ := r.list(b, id); return !got.Running })
	if n := len(marked(id)); n != 3 {
		t.Errorf("%d children survive the agent, want 3: the test shows nothing", n)
	}
	r.gone(b, id, rec)
}

// The data directory was lost with the agent's record in it: the unit is found by what it says, and ended by its name.
func testOrphanScope(t *testing.T) {
	const id = "scaler-bare-metal-0000000d"
	r, b := limited(t, systemWay)
	rec := r.createLimited(b, id, "", ci.Resources{})
	r.up(rec)
	if err := os.RemoveAll(b.dir(id)); err != nil {
		t.Fatal(err)
	}
	other := r.open("two")
	other.enforced = b.enforced
	if got, ok := r.list(other, id); ok {
		t.Errorf("another scaler takes it for its own: %+v", got)
	}
	got, ok := r.list(b, id)
	if !ok || !got.Running || !slices.Contains(got.Holds, backend.Scope) {
		t.Fatalf("listed as %+v", got)
	}
	if err := r.delete(b, backend.Ref{AgentID: id, Launch: got.Launch}); err != nil {
		t.Fatal(err)
	}
	if left := append(marked(id), len(units(t, b))); len(left) != 1 || left[0] != 0 {
		t.Errorf("left %v", left)
	}
}

func testForeignScope(t *testing.T) {
	r, b := limited(t, systemWay)
	other := exec.Command("systemd-run", "--unit=kici-agent-mine", "--slice=kici-scaler", "--scope", "--", "sh", "-c", "sleep 1000 &")
	if err := other.Run(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = exec.Command("systemctl", "stop", "kici-agent-mine.scope").Run() }()
	if got, ok := r.list(b, "mine"); ok {
		t.Errorf("listed as %+v", got)
	}
}

func testScopeOfAnotherUser(t *testing.T) {
	const id = "scaler-bare-metal-00000001"
	r, b := limited(t, systemWay)
	r.options = backend.Options{keyRunAs: "nobody", keyCgroups: true}
	e := b.enforced
	b = r.open("one")
	t.Cleanup(func() { _ = os.RemoveAll(b.work) })
	if err := b.Prepare(t.Context()); err != nil || b.enforces().String() != e.String() {
		t.Fatalf("found %v: %v", b.enforces(), err)
	}
	rec := r.createLimited(b, id, "", ci.Resources{MemBytes: 64 << 20})
	if up := r.up(rec); !strings.HasSuffix(up, " 65534") {
		t.Errorf("the agent runs as %q", up)
	}
	if err := unix.Access(filepath.Join(rec.Cgroup, "cgroup.kill"), unix.F_OK); err != nil {
		t.Errorf("the scope has no leaf of v2: %v", err)
	}
	info, err := os.Stat(rec.Cgroup)
	if st, ok := info.Sys().(*unix.Stat_t); err != nil || ok && st.Uid != 65534 {
		t.Errorf("the leaf is of %v: %v", info.Sys(), err)
	}
	r.gone(b, id, rec)
}
