package baremetal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// limited is a backend on this host that enforces limits by the way with that name, or the test is skipped.
func limited(t *testing.T, way string) (*rig, *Backend) {
	t.Helper()
	r := newRig(t, false)
	r.groups = true
	r.options[keyCgroups] = true
	b := r.open("one")
	for _, l := range b.limiters() {
		if l.String() != way {
			continue
		}
		missing, err := b.try(t.Context(), l)
		if err != nil || len(missing) > 0 {
			require(t, way, "limits cannot be enforced here by "+way, missing, err)
		}
		b.enforced = &enforcement{l, missing}
		return r, b
	}
	require(t, way, "this host has no "+way)
	return nil, nil
}

// require skips, loudly, what this machine cannot do, unless it must be able to (D26).
func require(t *testing.T, capability, why string, detail ...any) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), capability) {
		t.Fatalf("%s %v, and KICI_TEST_REQUIRE names %s", why, detail, capability)
	}
	t.Skipf("SKIPPED: %s %v", why, detail)
}

// createLimited starts an agent that does something under limits.
func (r *rig) createLimited(b *Backend, id, mode string, l ci.Resources) record {
	r.t.Helper()
	r.env["HELPER"] = mode
	s := r.spec(id)
	s.Limits = l
	inst, err := b.Create(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	rec, ok, err := readRecord(b.dir(id))
	if err != nil || !ok || string(inst.Launch) != string(rec.encode()) {
		r.t.Fatalf("the record is %+v and Create said %s: %v", rec, inst.Launch, err)
	}
	return rec
}

func (r *rig) meter(rec record) cgroup.Meter {
	r.t.Helper()
	p, err := cgroup.PlaceOf(rec.Pid)
	if err != nil {
		r.t.Fatal(err)
	}
	return p.Meter()
}

// gone checks that Delete leaves neither unit nor folder.
func (r *rig) gone(b *Backend, id string, rec record) {
	r.t.Helper()
	if err := r.delete(b, backend.Ref{AgentID: id, Launch: rec.encode()}); err != nil {
		r.t.Fatal(err)
	}
	for _, dir := range append([]string{rec.Cgroup}, values(rec.Folders)...) {
		if _, err := os.Stat(dir); dir != "" && !errors.Is(err, fs.ErrNotExist) {
			r.t.Errorf("%s is left: %v", dir, err)
		}
	}
	if left := marked(id); len(left) > 0 {
		r.t.Errorf("processes are left: %v", left)
	}
	if err := r.delete(b, backend.Ref{AgentID: id, Launch: rec.encode()}); !errors.Is(err, backend.ErrNotFound) {
		r.t.Errorf("deleted twice: %v", err)
	}
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// Limits that bite: each is met by a process that would not stop by itself.
func testLimits(t *testing.T, way string) {
	const id = "scaler-bare-metal-00000001"
	t.Run("they are what was asked for", func(t *testing.T) {
		r, b := limited(t, way)
		rec := r.createLimited(b, id, "", ci.Resources{CPUMilli: 1500, MemBytes: 64 << 20})
		if got := r.meter(rec).Limits(); got != (cgroup.Limits{CPUMilli: 1500, MemBytes: 64 << 20, Tasks: defaultTasks}) {
			t.Errorf("the kernel holds %+v", got)
		}
		r.up(rec)
		r.gone(b, id, rec)
	})
	t.Run("memory of a child", func(t *testing.T) {
		r, b := limited(t, way)
		rec := r.createLimited(b, id, "parent of a hog", ci.Resources{MemBytes: 64 << 20})
		r.up(rec) // it lives on
		m := r.meter(rec)
		if got := m.Limits().Blame(cgroup.Count{}, m.Count()); got != "killed: out of memory (limit 64 MiB)" {
			t.Errorf("the meter says %q", got)
		}
		r.gone(b, id, rec)
	})
	t.Run("cpu", func(t *testing.T) {
		r, b := limited(t, way)
		rec := r.createLimited(b, id, "burn", ci.Resources{CPUMilli: 200})
		place, err := cgroup.PlaceOf(rec.Pid)
		if err != nil {
			t.Fatal(err)
		}
		stat := filepath.Join(place.Legacy["cpu"], "cpu.stat")
		if place.Legacy["cpu"] == "" {
			stat = filepath.Join(place.Unified, "cpu.stat")
		}
		r.eventually("it is throttled again and again", func() bool {
			data, _ := os.ReadFile(stat)
			for line := range strings.Lines(string(data)) {
				if n, ok := strings.CutPrefix(line, "nr_throttled "); ok && len(strings.TrimSpace(n)) > 1 { // ten times
					return true
				}
			}
			return false
		})
		r.gone(b, id, rec)
	})
	t.Run("a fork bomb", func(t *testing.T) {
		r, b := limited(t, way)
		b.entry.Options[keyTasks] = int64(64)
		rec := r.createLimited(b, id, "forks", ci.Resources{})
		r.eventually("it is refused", func() bool {
			m := r.meter(rec)
			return m.Limits().Blame(cgroup.Count{}, m.Count()) == "task limit reached (64 processes and threads)"
		})
		if n := len(marked(id)); n < 10 || n > 64 {
			t.Errorf("%d processes", n)
		}
		r.gone(b, id, rec)
	})
}

// The fallback, for real where this machine has controllers of v1 that it may use.
func TestLegacyFoldersBite(t *testing.T) {
	testLimits(t, "cgroup v1")
	t.Run("an agent that dies of it says so", func(t *testing.T) {
		r, b := limited(t, "cgroup v1")
		const id = "scaler-bare-metal-00000001"
		rec := r.createLimited(b, id, "hog", ci.Resources{MemBytes: 64 << 20})
		select {
		case <-b.Exits():
		case <-time.After(20 * time.Second):
			t.Fatal("it lives")
		}
		if got, _ := r.list(b, id); got.Running || got.Detail != "killed by SIGKILL: killed: out of memory (limit 64 MiB)" {
			t.Errorf("listed as %+v", got)
		}
		r.gone(b, id, rec)
	})
}

func TestUnifiedFolderBites(t *testing.T) { testLimits(t, "cgroup v2") }

// A host where nothing can be enforced: the scaler is not ready and says what to do; Plan starts nothing meanwhile.
func TestNothingCanBeEnforced(t *testing.T) {
	r := newRig(t, false)
	r.options[keyCgroups] = true
	b := r.open("one")
	b.program = "/bin/false" // dies before it can be put anywhere
	err := b.Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no limit can be enforced here (") || !strings.Contains(err.Error(), "delegated") {
		t.Fatalf("got %v", err)
	}
	if _, err := b.Plan(r.spec("scaler-bare-metal-00000001")); !errors.Is(err, backend.ErrNotReady) {
		t.Errorf("Plan: %v", err)
	}
	if left, _ := os.ReadDir(b.root); len(left) > 0 {
		t.Errorf("trying left %v", left)
	}
}

// What a way cannot hold is said, not hidden; what it said it holds and does not is an error.
func TestMissingLimits(t *testing.T) {
	r := newRig(t, false)
	r.options[keyCgroups] = true
	b := r.open("one")
	b.enforced = &enforcement{loose{}, []string{"cpu"}}
	if got := strings.Join(b.Capabilities().Protections, "\n"); !strings.Contains(got, "limits of cpu cannot be enforced here by loose") {
		t.Errorf("it says %s", got)
	}
	s := r.spec("scaler-bare-metal-00000001")
	s.Limits = ci.Resources{MemBytes: 64 << 20}
	b.enforced.missing = []string{"cpu", "tasks"}
	if _, err := b.Create(t.Context(), s); !errors.Is(err, backend.ErrInfra) || !strings.Contains(err.Error(), "the memory limit was set by loose and does not hold") {
		t.Errorf("got %v", err)
	}
	if left := marked(s.AgentID); len(left) > 0 {
		t.Errorf("it runs all the same: %v", left)
	}
	s.Limits = ci.Resources{CPUMilli: 100}
	if _, err := b.Create(t.Context(), s); err != nil {
		t.Errorf("what was said to be missing: %v", err)
	}
	if err := r.delete(b, backend.Ref{AgentID: s.AgentID}); err != nil {
		t.Error(err)
	}
}

// loose sets limits that nothing holds.
type loose struct{}

func (loose) String() string                                             { return "loose" }
func (loose) plan(string, *record)                                       {}
func (loose) hold(context.Context, string, *record, cgroup.Limits) error { return nil }

// A row can name no folder but this agent's.
func TestFoldersOfARow(t *testing.T) {
	got := ours(map[string]string{"memory": "/m/kici-000000000001/a", "cpu": "/m/kici-000000000001/b", "pids": "/m/x/a", "blkio": "/m/kici-000000000001/a"}, "a")
	if len(got) != 1 || got["memory"] == "" {
		t.Errorf("got %v", got)
	}
}

// The record was lost with the data directory: the folders of v1 are found by the node's name, and go.
func TestFoldersWithoutARecord(t *testing.T) {
	r, b := limited(t, "cgroup v1")
	const id = "scaler-bare-metal-0000dead"
	rec := r.createLimited(b, id, "", ci.Resources{MemBytes: 64 << 20})
	r.up(rec)
	if got, _ := r.list(b, id); !got.Running {
		t.Fatalf("listed as %+v", got)
	}
	if err := os.RemoveAll(b.dir(id)); err != nil {
		t.Fatal(err)
	}
	got, ok := r.list(b, id)
	if !ok || got.Running || !slices.Equal(got.Holds, []backend.Resource{backend.Cgroup, backend.Process}) {
		t.Fatalf("listed as %+v (%v)", got, ok)
	}
	if err := r.delete(b, backend.Ref{AgentID: id, Launch: got.Launch}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range rec.Folders {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	if left := marked(id); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if got, ok := r.list(b, id); ok {
		t.Errorf("still listed: %+v", got)
	}
}

// A server that died between the start and the token: the process leaves, and whoever looks next takes its folders away.
func TestInterruptedLimitsAreUndone(t *testing.T) {
	r, b := limited(t, "cgroup v1")
	const id = "scaler-bare-metal-00000001"
	rec := r.createLimited(b, id, "", ci.Resources{MemBytes: 64 << 20})
	r.up(rec)
	rec.Ready = false // as it is written before the token
	if err := rec.write(b.dir(id)); err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(rec.Pid, unix.SIGKILL)
	r.eventually("it is dead", func() bool { inst, _ := r.list(b, id); return !inst.Running && inst.Unstarted })
	again := r.createLimited(b, id, "", ci.Resources{MemBytes: 32 << 20})
	if got := r.meter(again).Limits().MemBytes; got != 32<<20 {
		t.Errorf("the second start has %d", got)
	}
	r.gone(b, id, again)
}
