package machinepool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
)

func open(dir, instance string) *Pools {
	return New(Options{Dirs: []string{dir}, Instance: instance, Boot: "boot", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

func boxOfFour() map[string]ci.Resources { return map[string]ci.Resources{"box": cpu(4)} }

// Whoever comes first gets the room, whatever the others do, and what is given back is there for them.
func TestSharedByServers(t *testing.T) {
	dir := t.TempDir()
	var got sync.Map
	var all sync.WaitGroup
	for s := range 3 {
		p := open(dir, fmt.Sprint("server-", s))
		for a := range 3 {
			all.Go(func() {
				agent := fmt.Sprintf("agent-%d-%d", s, a)
				err := p.Reserve(t.Context(), "box", cpu(4), agent, cpu(1))
				if err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
				got.Store(agent, err == nil)
			})
		}
	}
	all.Wait()
	n, mine := 0, map[string]Claim{}
	got.Range(func(agent, ok any) bool {
		if ok.(bool) {
			n++
			if strings.HasPrefix(agent.(string), "agent-0") {
				mine[agent.(string)] = Claim{Pool: "box", Ask: cpu(1)}
			}
		}
		return true
	})
	if n != 4 {
		t.Errorf("%d got room for 4", n)
	}
	p := open(dir, "server-0")
	use, err := p.Settle(t.Context(), boxOfFour(), mine)
	if err != nil || use["box"].Own.CPUMilli+use["box"].Others.CPUMilli != 4000 || use["box"].Own.CPUMilli != int64(1000*len(mine)) {
		t.Errorf("%+v %v", use, err)
	}
	if use, err = p.Settle(t.Context(), boxOfFour(), nil); err != nil || use["box"].Own != (ci.Resources{}) {
		t.Errorf("%+v %v", use, err)
	}
}

// A pool that is no longer configured keeps what its agents reserved, and no longer (MG-11).
func TestDroppedPool(t *testing.T) {
	dir := t.TempDir()
	p := open(dir, "me")
	if err := p.Reserve(t.Context(), "box", cpu(4), "a", cpu(1)); err != nil {
		t.Fatal(err)
	}
	other := map[string]ci.Resources{"new": cpu(9)}
	for _, c := range []struct {
		live map[string]Claim
		want string
	}{{map[string]Claim{"a": {Pool: "new", Ask: cpu(1)}}, "box"}, {nil, ""}} {
		if _, err := open(dir, "me").Settle(t.Context(), other, c.live); err != nil {
			t.Fatal(err)
		}
		files, err := p.files()
		if err != nil {
			t.Fatal(err)
		}
		in := ""
		for pool, l := range files {
			if len(l.Reservations) > 0 {
				in += pool
			}
		}
		if in != c.want {
			t.Errorf("reserved in %q, want %q", in, c.want)
		}
	}
}

func TestXS16CorruptFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"not JSON": "{", "another version": `{"version":7}`, "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, "box.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		use, err := open(dir, "me").Settle(t.Context(), boxOfFour(), map[string]Claim{"a": {Pool: "box", Ask: cpu(1)}})
		if err != nil || use["box"].Own != cpu(1) {
			t.Errorf("%s: %+v %v", name, use, err)
		}
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "box.json.corrupt-*")); len(aside) == 0 {
		t.Error("nothing was set aside")
	}
}

// The lock of a process that died is broken after a while; one that is held makes others wait, and they can give up.
func TestXS15LockOfTheDead(t *testing.T) {
	dir := t.TempDir()
	lockDir := filepath.Join(dir, "box.lock")
	if err := os.Mkdir(lockDir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := open(dir, "me")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Reserve(ctx, "box", cpu(4), "a", cpu(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock that is held: %v", err)
	}
	old := time.Now().Add(-staleAfter - time.Second)
	if err := os.Chtimes(lockDir, old, old); err != nil {
		t.Fatal(err)
	}
	if err := p.Reserve(t.Context(), "box", cpu(4), "a", cpu(1)); err != nil {
		t.Errorf("a lock of the dead: %v", err)
	}
	if _, err := os.Stat(lockDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock stays: %v", err)
	}
}

// A server that dies while it holds a pool holds up nobody: what it has left beside its lock is known to be of the dead. A directory that
// somebody else makes in its place is respected.
func TestXS15HolderIsKilled(t *testing.T) {
	dir := t.TempDir()
	pool := filepath.Join(dir, "box")
	if _, err := lock(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(pool+".flock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := os.Stat(pool + ".lock")
	if err != nil || !isNoted(f, info) {
		t.Fatalf("the directory is not noted: %v", err)
	}
	if err := takeDirectory(pool+".lock", f); err != nil { // as the next holder of the lock does
		t.Errorf("what a dead server left: %v", err)
	}
	old := time.Now().Add(-time.Second)
	if err := os.Chtimes(pool+".lock", old, old); err != nil {
		t.Fatal(err)
	}
	if err := takeDirectory(pool+".lock", f); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory of somebody else: %v", err)
	}
}

func TestDirectories(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOME": "/home/ci"}[name] }
	if got := Directories("/x", env); len(got) != 1 || got[0] != "/x" {
		t.Error(got)
	}
	if got := Directories("", env); got[0] != "/var/lib/kici/scaler-ledger" || got[1] != "/home/ci/.local/state/kici/scaler-ledger" {
		t.Error(got)
	}
	dir := filepath.Join(t.TempDir(), "new")
	p := open(dir, "me")
	if _, err := p.Settle(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("a folder was made that nobody needs")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"cap":{"maxCpu":4},"reservations":[{"instanceId":"me","bootId":"boot","agentId":"a","cpus":1.5,"memBytes":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "box.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := read(path)
		if err != nil {
			return
		}
		l.settle(me, cpu(4), map[string]ci.Resources{"a": cpu(1)}, 1)
		if l.settle(me, cpu(4), map[string]ci.Resources{"a": cpu(1)}, 2) {
			t.Error("it does not come to rest")
		}
	})
}
