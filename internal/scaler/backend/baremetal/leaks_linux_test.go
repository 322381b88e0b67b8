package baremetal

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// What an agent's lost record leaves is found, whatever it is: its folder, half of one, its workspace in the node's own folder, its leaf with
// what runs there. It ends like any agent, by whichever scaler finds it.
func TestRemnantsAreFoundAndEnd(t *testing.T) {
	const id = "scaler-bare-metal-0000dead"
	withProcess := func(t *testing.T, b *Backend) func() bool {
		leaf := filepath.Join(b.cgroups, id)
		if err := makeLeaf(leaf, nil); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(leaf)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return func() bool { <-ended; return !exists(leaf) }
	}
	folder := func(of func(*Backend) string) func(*testing.T, *Backend) func() bool {
		return func(t *testing.T, b *Backend) func() bool {
			path := of(b)
			if err := os.MkdirAll(filepath.Join(path, "some", "thing"), 0o755); err != nil {
				t.Fatal(err)
			}
			return func() bool { return !exists(path) }
		}
	}
	broken := func(t *testing.T, b *Backend) func() bool { // as a crash of the machine can leave it
		path := b.dir(id)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, recordFile), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return func() bool { return !exists(path) }
	}
	for _, c := range []struct {
		name  string
		runAs string
		make  func(*testing.T, *Backend) (gone func() bool)
		holds []backend.Resource
	}{
		{"a folder without a record", "", folder(func(b *Backend) string { return b.dir(id) }), []backend.Resource{backend.Workspace}},
		{"a folder with an empty record", "", broken, []backend.Resource{backend.Workspace}},
		{"a folder that was never finished", "", folder(func(b *Backend) string { return halfMade(b.dir(id)) }), []backend.Resource{backend.Workspace}},
		{"a workspace", "nobody", folder(func(b *Backend) string { return filepath.Join(b.work, id) }), []backend.Resource{backend.Workspace}},
		{"a leaf with a process", "", withProcess, []backend.Resource{backend.Cgroup, backend.Process}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			if c.runAs != "" {
				if os.Geteuid() != 0 {
					t.Skip("needs root")
				}
				r.options[keyRunAs] = c.runAs
			}
			one, two := r.open("one"), r.open("two")
			t.Cleanup(func() {
				if one.work != "" {
					_ = os.RemoveAll(one.work)
				}
			})
			if err := one.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept, rec := r.create(one, "scaler-bare-metal-00000001")
			gone := c.make(t, one)
			for _, b := range []*Backend{one, two} {
				if got, ok := r.list(b, id); !ok || got.Running || !slices.Equal(got.Holds, c.holds) {
					t.Errorf("listed as %+v (%v)", got, ok)
				}
			}
			if got, ok := r.list(two, kept.AgentID); ok {
				t.Errorf("the other scaler lists %+v", got)
			}
			got, _ := r.list(two, id)
			if err := r.delete(two, backend.Ref{AgentID: id, Launch: got.Launch}); err != nil {
				t.Errorf("delete: %v", err)
			}
			if !gone() {
				t.Error("it is still there")
			}
			if again, ok := r.list(two, id); ok {
				t.Errorf("it is still listed: %+v", again)
			}
			r.up(rec)
			got, _ = r.list(one, kept.AgentID)
			if want := []backend.Resource{backend.Workspace, backend.Process, backend.Cgroup}; !got.Running || !slices.Equal(got.Holds, want) {
				t.Errorf("the other agent: %+v", got)
			}
			if err := r.delete(one, backend.Ref{AgentID: kept.AgentID, Launch: kept.Launch}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A folder for workspaces that was configured may be another node's too: nothing is looked for there.
func TestSharedWorkspaceIsLeftAlone(t *testing.T) {
	r := newRig(t, false)
	r.options[keyWorkDir] = t.TempDir()
	b := r.open("one")
	other := filepath.Join(b.work, "scaler-bare-metal-0000beef")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if all, err := b.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed %+v, %v", all, err)
	}
}

// The folder of a node that is dead is counted when it goes, at the next start of any.
func TestDeadNodesAreCounted(t *testing.T) {
	newRig(t, true)
	dead, held, err := cgroupBase("01970000-0000-7000-8000-d1d100000001")
	if err != nil {
		t.Fatal(err)
	}
	_ = held.Close()
	leaks := new(backend.Leaks)
	host := backend.Host{NodeID: "01970000-0000-7000-8000-d1d100000002", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Leaks: leaks}
	b, err := open(backend.Entry{Name: "one", Options: backend.Options{keyAllowRoot: true}}, host, realFacts())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if found, healed := leaks.Counts(backend.Cgroup); found < 1 || found != healed || exists(dead) {
		t.Errorf("found %d, healed %d, still there: %v", found, healed, exists(dead))
	}
}
