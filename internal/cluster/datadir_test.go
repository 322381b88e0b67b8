package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/blob"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestDataDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	d, err := OpenDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	_, err = OpenDataDir(path)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(err.Error(), path) {
		t.Errorf("second server: %v", err)
	}
	id := d.InstanceID()
	if len(id) != 36 {
		t.Errorf("instance id %q", id)
	}
	if want := filepath.Join(path, "a", "b"); d.File("a", "b") != want {
		t.Error(d.File("a", "b"))
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	again, err := OpenDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.InstanceID() != id {
		t.Error("the instance id changed")
	}
}

func TestDamagedInstanceID(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, instanceName), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDataDir(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, instanceName)); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDataDir(dir) // the failed attempt holds no lock
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
}

func TestDataDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDataDir(filepath.Join(file, "data")); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Error(err)
	}
}

func row(t *testing.T, st *store.Store) db.ClusterInstance {
	t.Helper()
	r, err := st.Read().ClusterInstance(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestInstanceLife(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		i := NewInstance(st, Info{InstanceID: "one", Name: "host", Version: "v1", URL: "http://h"}, discard)
		if err := i.Ready(t.Context()); err == nil {
			t.Error("ready before it is registered")
		}
		if err := i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := row(t, st); r.ReadyAt != 0 || r.HeartbeatAt != time.Now().UnixMilli() || r.Name != "host" || r.Url != "http://h" {
			t.Errorf("%+v", r)
		}
		stop := runInstance(t, i)
		wait(25 * time.Second)
		if err := i.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait(60 * time.Second)
		r := row(t, st)
		if now := time.Now().UnixMilli(); !Live(r, now) || now-r.HeartbeatAt > HeartbeatInterval.Milliseconds() || r.ReadyAt == 0 {
			t.Errorf("%+v at %d", r, now)
		}
		if _, err := NewDirectory(st, i.ID()).Drain(t.Context(), DrainRequest{Drain: true}); err != nil || !row(t, st).Draining {
			t.Error("not draining", err)
		}
		stop()
		if r := row(t, st); r.HeartbeatAt != 0 || Live(r, time.Now().UnixMilli()) {
			t.Errorf("stopped: %+v", r)
		}
		if err := i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := row(t, st); r.Draining || r.ReadyAt != 0 || !Live(r, time.Now().UnixMilli()) {
			t.Errorf("started again: %+v", r)
		}
		time.Sleep(ci.InstanceTimeout)
		if Live(row(t, st), time.Now().UnixMilli()) {
			t.Error("a silent instance counts as alive")
		}
	})
}

func runInstance(t *testing.T, i *Instance) (stop func()) {
	t.Helper()
	c := runLoop(t, i.Run)
	synctest.Wait()
	return c
}

func TestIdentity(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		if _, err := EnsureIdentity(t.Context(), st, "Not OK"); err == nil {
			t.Error("a bad name is taken")
		}
		first, err := EnsureIdentity(t.Context(), st, "")
		if err != nil || first.ID == "" || !strings.HasPrefix(first.Name, "cluster-") || len(first.Name) != len("cluster-")+6 {
			t.Fatal(first, err)
		}
		again, err := EnsureIdentity(t.Context(), st, "other-name")
		if err != nil || again != first {
			t.Error(again, err)
		}
	})
}

// XC-109: files of another cluster stop the start with the reason; unclaimed ones are claimed.
func TestXC109ForeignStorage(t *testing.T) {
	blobs, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	ours, theirs := Identity{"id-1", "one"}, Identity{"id-2", "two"}
	for range 2 {
		if err := ClaimStorage(t.Context(), blobs, ours); err != nil {
			t.Fatal(err)
		}
	}
	err = ClaimStorage(t.Context(), blobs, theirs)
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "id-1") || !strings.Contains(err.Error(), "id-2 (two)") {
		t.Errorf("got %v", err)
	}
}
