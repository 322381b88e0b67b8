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

const old = 2 * time.Hour

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

// Interrupted copies of the program go when they are old; what is young, and what is none, stays.
func TestCollectLeftovers(t *testing.T) {
	r := newRig(t, false)
	b := r.open("one")
	b.work = privateRoot(b.host.NodeID)
	t.Cleanup(func() { _ = os.RemoveAll(b.work) })
	if err := makeWorkRoot(b.work); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(b.work, programFolder, name) }
	put(t, old, at("kici-123"), "half a program")
	put(t, 0, at("kici-124"), "young")
	put(t, old, at("kici"), "the program")
	put(t, old, filepath.Join(b.work, "a-1"), "")
	if got := collected(t, b, backend.Collect{}); !slices.Equal(got, []string{at("kici-123")}) {
		t.Errorf("removed %s", strings.Join(got, " "))
	}
	for _, path := range []string{at("kici-124"), at("kici"), filepath.Join(b.work, "a-1")} {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	if again := collected(t, b, backend.Collect{}); again != nil {
		t.Errorf("again: %q", again)
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
	if got := collected(t, other, backend.Collect{Full: func() bool { return true }, Folder: r.dir}); got != nil {
		t.Errorf("another scaler removed %q", got)
	}
	if got := collected(t, b, backend.Collect{}); got != nil {
		t.Errorf("without need it removed %q", got)
	}
	if got := collected(t, b, backend.Collect{Full: func() bool { return true }, Folder: "/proc"}); got != nil {
		t.Errorf("for another disk it removed %q", got)
	}
	asked := 0
	got := collected(t, b, backend.Collect{Full: func() bool { asked++; return asked <= 2 }, Folder: r.dir})
	if want := []string{dead[0].Work, dead[1].Work}; !slices.Equal(got, want) {
		t.Errorf("removed %q, want %q", got, want)
	}
	got = collected(t, b, backend.Collect{Full: func() bool { return true }, Folder: r.dir})
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
