package machinepool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
)

// maxFile bounds what is read of a pool's file, in bytes.
const maxFile = 8 << 20

// Options of New.
type Options struct {
	Dirs     []string // the first that is there is it; else the first that can be made (ML-2). See Directories
	Instance string   // who reserves, the same after a restart (ML-7)
	Boot     string   // this boot of the machine; '' where there is no such thing
	Now      func() time.Time
	Log      *slog.Logger
}

// Pools are the machine pools of this machine, as one node sees them. It is safe for concurrent use, by several processes too.
type Pools struct {
	dirs []string
	o    owner
	now  func() time.Time
	log  *slog.Logger
}

// New returns the pools of a directory, which is made when the first of them is used.
func New(o Options) *Pools {
	return &Pools{dirs: o.Dirs, o: owner{o.Instance, o.Boot, os.Getpid()}, now: o.Now, log: o.Log.With("component", "machine pool")}
}

// Directories are where the pools of this machine may be: the folder that is set, else the usual places.
func Directories(set string, getenv func(string) string) []string {
	if set != "" {
		return []string{set}
	}
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(getenv("HOME"), ".local", "state")
	}
	usual := []string{"/var/lib/kici/scaler-ledger", filepath.Join(state, "kici", "scaler-ledger"), filepath.Join(os.TempDir(), "kici-scaler-ledger")}
	return slices.DeleteFunc(usual, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// directory is the one in use, ” when there is none yet.
func (p *Pools) directory() string {
	for _, dir := range p.dirs {
		if writable(dir) {
			return dir
		}
	}
	return ""
}

// makeDirectory is directory, which it makes.
func (p *Pools) makeDirectory() (string, error) {
	if dir := p.directory(); dir != "" {
		return dir, nil
	}
	var errs []error
	for _, dir := range p.dirs {
		err := os.MkdirAll(dir, 0o770)
		if err == nil && writable(dir) {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no folder for machine pools; set KICI_MACHINE_LEDGER_DIR to one that can be written: %w", errors.Join(errs...))
}

// writable reports whether a folder is there and can be written.
func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return false
	}
	_ = f.Close()
	return os.Remove(f.Name()) == nil
}

// Claim is what a live agent of this node holds, and of which pool if it has no reservation yet; ” is none.
type Claim struct {
	Pool string
	Ask  ci.Resources
}

// Reserve takes room of a pool for an agent, or returns ErrFull. It is repeatable.
func (p *Pools) Reserve(ctx context.Context, pool string, limit ci.Resources, agent string, ask ci.Resources) error {
	_, err := p.change(ctx, pool, func(l *ledger) (bool, error) {
		l.Cap, l.Version = limitsOf(limit), version
		return true, l.reserve(p.o, limit, agent, ask, p.now().UnixMilli())
	})
	return err
}

// Settle compares the reservations of this node with its live agents, in every pool that has some and in those of limits: what has no agent
// goes, what has no reservation gets one, and an agent keeps the pool in which it reserved whatever is configured today (MG-11). It
// returns how much is in use of each pool of limits.
func (p *Pools) Settle(ctx context.Context, limits map[string]ci.Resources, live map[string]Claim) (map[string]Use, error) {
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	reserved := map[string]string{} // by agent, its pool
	for pool, l := range files {
		for _, r := range l.Reservations {
			if r.InstanceID == p.o.instance {
				reserved[r.AgentID] = pool
			}
		}
	}
	want := map[string]map[string]ci.Resources{}
	for pool := range limits {
		want[pool] = map[string]ci.Resources{}
	}
	for _, pool := range reserved {
		if want[pool] == nil {
			want[pool] = map[string]ci.Resources{}
		}
	}
	for agent, c := range live {
		pool, ok := reserved[agent]
		if !ok {
			pool = c.Pool
		}
		if want[pool] != nil {
			want[pool][agent] = c.Ask
		}
	}
	out := map[string]Use{}
	var errs []error
	for _, pool := range slices.Sorted(maps.Keys(want)) {
		limit, configured := limits[pool]
		if l := files[pool]; !configured && l != nil {
			limit = ci.Resources{CPUMilli: int64(l.Cap.MaxCPU * 1000), MemBytes: l.Cap.MaxMemory}
		}
		l, err := p.change(ctx, pool, func(l *ledger) (bool, error) { return l.settle(p.o, limit, want[pool], p.now().UnixMilli()), nil })
		if err != nil {
			errs = append(errs, fmt.Errorf("machine pool %s: %w", pool, err))
			continue
		}
		if configured {
			out[pool] = l.use(p.o)
		}
	}
	return out, errors.Join(errs...)
}

// files reads all pools. A file is replaced at once, so no lock is needed to read it.
func (p *Pools) files() (map[string]*ledger, error) {
	out := map[string]*ledger{}
	dir := p.directory()
	if dir == "" {
		return out, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("machine pools: %w", err)
	}
	for _, e := range entries {
		if pool, ok := strings.CutSuffix(e.Name(), ".json"); ok && !e.IsDir() {
			if l, err := read(filepath.Join(dir, e.Name())); err == nil { // what cannot be read is set aside by who writes it
				out[pool] = l
			}
		}
	}
	return out, nil
}

// change reads a pool under its lock, lets fn change it, and writes it if fn says so.
func (p *Pools) change(ctx context.Context, pool string, fn func(*ledger) (bool, error)) (*ledger, error) {
	dir, err := p.makeDirectory()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, pool+".json")
	unlock, err := lock(ctx, filepath.Join(dir, pool))
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	defer unlock()
	l, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l = &ledger{}
	case errors.Is(err, errCorrupt):
		aside := fmt.Sprintf("%s.corrupt-%d", path, p.now().UnixMilli())
		p.log.Error("the file of a machine pool cannot be read; it is set aside and made anew", "pool", pool, "aside", aside, "err", err)
		if err := os.Rename(path, aside); err != nil {
			return nil, err
		}
		l = &ledger{}
	case err != nil:
		return nil, err
	}
	changed, err := fn(l)
	if err != nil || !changed {
		return l, err
	}
	return l, l.write(path)
}

var errCorrupt = errors.New("it is not a machine pool's")

func read(path string) (*ledger, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	var l ledger
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", errCorrupt, maxFile)
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if l.Version != version {
		return nil, fmt.Errorf("%w: version %d", errCorrupt, l.Version)
	}
	return &l, nil
}

func (l *ledger) write(path string) error {
	if l.Reservations == nil {
		l.Reservations = []reservation{}
	}
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o660), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return service.SyncDir(filepath.Dir(path))
}
