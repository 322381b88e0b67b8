package baremetal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

const old = 2 * strayAge

// put makes a folder, or a file when content is given, of an age.
func put(t *testing.T, age time.Duration, path, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil && content == "" {
		err = os.MkdirAll(path, 0o700)
	} else if err == nil {
		err = os.WriteFile(path, []byte(content), 0o600)
	}
	at := time.Now().Add(-age)
	if err == nil {
		err = os.Chtimes(path, at, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func collected(t *testing.T, b *Backend, c backend.Collect) (names []string) {
	t.Helper()
	things, err := b.Collect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range things {
		if x.Why == "" || x.Kind == "" {
			t.Errorf("%+v", x)
		}
		names = append(names, x.Name)
	}
	slices.Sort(names)
	return names
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Halves of starts and ends go when they are old; what has a record, what is young and what has another's name stays.
func TestCollectLeftovers(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	b.work = privateRoot(b.host.NodeID)
	t.Cleanup(func() { _ = os.RemoveAll(b.work) })
	if err := makeWorkRoot(b.work); err != nil {
		t.Fatal(err)
	}
	gone := []string{
		filepath.Join(b.root, ".new-a-1"), filepath.Join(b.root, "a-2"), filepath.Join(b.work, "a-3"), filepath.Join(b.work, ".bin", "kici-123"),
	}
	put(t, old, filepath.Join(gone[2], "deep", "file"), "12345")
	for _, path := range gone[:3] {
		put(t, old, path, "")
	}
	put(t, old, gone[3], "half a program")
	kept := []string{
		filepath.Join(b.root, ".new-b-1"), filepath.Join(b.root, "b-2"), filepath.Join(b.work, "b-3"), filepath.Join(b.work, ".bin", "kici-124"), // young
		filepath.Join(b.work, ".bin", "kici"), filepath.Join(b.root, "not an agent"), filepath.Join(b.work, "..hidden"), filepath.Join(b.work, ".new-x"),
		filepath.Join(b.work, "file"), filepath.Join(b.root, "c-1"), filepath.Join(b.work, "c-1"), filepath.Join(b.root, "c-2"),
	}
	put(t, 0, kept[3], "x")
	put(t, old, kept[4], "x")
	put(t, old, kept[8], "no folder")
	put(t, old, filepath.Join(kept[9], recordFile), record{Scaler: "other", Work: kept[10]}.str())
	put(t, old, filepath.Join(kept[11], recordFile), "no JSON: it may be anybody's")
	for _, i := range []int{0, 1, 2} {
		put(t, strayAge/2, kept[i], "")
	}
	for _, i := range []int{5, 6, 7, 9, 10, 11} {
		put(t, old, kept[i], "")
	}
	put(t, old, filepath.Join(b.work, ".bin"), "")
	slices.Sort(gone)
	if got := collected(t, b, backend.Collect{}); !slices.Equal(got, gone) {
		t.Errorf("removed %s\nwant %s", strings.Join(got, " "), strings.Join(gone, " "))
	}
	for _, path := range kept {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	if again := collected(t, b, backend.Collect{}); again != nil {
		t.Errorf("again: %q", again)
	}
}

// A configured folder of workspaces may be shared with others: what is in it without a record of ours is not ours to judge.
func TestCollectSparesAWorkDirOfOthers(t *testing.T) {
	r := newRig(t, false)
	shared := t.TempDir()
	r.options[keyWorkDir] = shared
	b := r.open("one")
	theirs := filepath.Join(shared, "scaler-bare-metal-00000001")
	put(t, old, theirs, "")
	if got := collected(t, b, backend.Collect{}); got != nil || !exists(theirs) {
		t.Errorf("removed %q", got)
	}
}

// On a full disk the workspaces of the dead go, and only as many as it takes; the living and the unproven keep theirs, and what is told of
// the dead stays.
func TestCollectOnAFullDisk(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	_, alive := r.create(b, "alive-1")
	r.up(alive)
	var dead []record
	for i, id := range []string{"dead-1", "dead-2", "dead-3"} {
		_, rec := r.create(b, id)
		r.up(rec)
		if err := syscall.Kill(rec.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.eventually(id+" is dead", func() bool { inst, found := r.list(b, id); return found && !inst.Running })
		put(t, time.Duration(10-i)*time.Minute, rec.Work, "")
		dead = append(dead, rec)
	}
	other := r.open("two")
	if got := collected(t, other, backend.Collect{Full: func() bool { return true }}); got != nil {
		t.Errorf("another scaler removed %q", got)
	}
	if got := collected(t, b, backend.Collect{}); got != nil {
		t.Errorf("without need it removed %q", got)
	}
	asked := 0
	got := collected(t, b, backend.Collect{Full: func() bool { asked++; return asked <= 2 }})
	if want := []string{dead[0].Work, dead[1].Work}; !slices.Equal(got, want) {
		t.Errorf("removed %q, want %q", got, want)
	}
	got = collected(t, b, backend.Collect{Full: func() bool { return true }})
	if want := []string{dead[2].Work}; !slices.Equal(got, want) {
		t.Errorf("then removed %q, want %q", got, want)
	}
	if !exists(alive.Work) {
		t.Error("the workspace of a living agent is gone")
	}
	for _, id := range []string{"alive-1", "dead-1", "dead-2", "dead-3"} {
		inst, found := r.list(b, id)
		if !found || inst.Running != (id == "alive-1") || len(inst.Tail) == 0 && !inst.Running {
			t.Errorf("%s: %+v %v", id, inst, found)
		}
		if err := b.Delete(t.Context(), backend.Ref{AgentID: id}); err != nil {
			t.Error(err)
		}
	}
}

func (r record) str() string { return string(r.encode()) }
