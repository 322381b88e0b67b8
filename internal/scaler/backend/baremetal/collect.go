//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// strayAge is how old an interrupted copy must be before it goes: no copy takes so long.
const strayAge = time.Hour

// Collect implements backend.Collector: interrupted copies of the program in the folder of workspaces that is this node's alone. On a full
// disk, the workspaces of dead agents go as well; the rest of such an agent stays for Delete, which tells what became of it. Folders without
// a record are found by List.
func (b *Backend) Collect(ctx context.Context, c backend.Collect) (out []backend.Collected, err error) {
	found, err := b.strays()
	if c.Full != nil {
		dead, derr := b.deadWork()
		found, err = append(found, dead...), errors.Join(err, derr)
	}
	for _, s := range found {
		if ctx.Err() != nil {
			return out, errors.Join(err, context.Cause(ctx))
		}
		if s.urgent && !c.Full() {
			break // these come last
		}
		gone, cerr := b.collect(s)
		if cerr != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", s.path, cerr))
		} else if gone.Name != "" {
			out = append(out, gone)
		}
	}
	return out, err
}

// found is something that may go.
type found struct {
	path, agent, kind, why string

	at     time.Time
	urgent bool        // only because the disk is full
	needed func() bool // looked at under the agent's lock; nil: never
}

// collect removes one thing, unless somebody has come to need it.
func (b *Backend) collect(f found) (backend.Collected, error) {
	if f.agent != "" {
		defer b.lock(f.agent)()
	}
	if f.needed != nil && f.needed() {
		return backend.Collected{}, nil
	}
	size := treeSize(f.path)
	if err := removeTree(f.path); err != nil {
		return backend.Collected{}, err
	}
	return backend.Collected{Kind: f.kind, Name: f.path, Bytes: size, Why: f.why}, nil
}

func (b *Backend) strays() (out []found, err error) {
	if b.work == "" || b.work != privateRoot(b.host.NodeID) {
		return nil, nil
	}
	if err := makeWorkRoot(b.work); err != nil { // it is no longer what Prepare made
		return nil, err
	}
	folder := filepath.Join(b.work, programFolder)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for leftovers: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && backend.IsPartOfProgram(e.Name()) && b.host.Now().Sub(info.ModTime()) >= strayAge {
			out = append(out, found{
				path: filepath.Join(folder, e.Name()), kind: backend.CollectedProgram, why: "an interrupted copy of the agent's program", at: info.ModTime(),
			})
		}
	}
	return out, nil
}

// deadWork lists the workspaces of this scaler's agents that are dead, the oldest first.
func (b *Backend) deadWork() (out []found, err error) {
	entries, err := os.ReadDir(b.root)
	if err != nil {
		return nil, fmt.Errorf("look for dead agents: %w", err)
	}
	for _, e := range entries {
		id := e.Name()
		if !agentID().MatchString(id) {
			continue
		}
		r, ok, rerr := readRecord(b.dir(id))
		if rerr != nil || !ok || r.Scaler != b.entry.Name || !filepath.IsAbs(r.Work) || filepath.Base(r.Work) != id && filepath.Dir(r.Work) != b.dir(id) {
			continue
		}
		info, ierr := os.Lstat(r.Work)
		if ierr != nil || !info.IsDir() {
			continue
		}
		out = append(out, found{
			path: r.Work, agent: id, kind: backend.CollectedWorkspace, why: "its agent is dead, and the disk is full", at: info.ModTime(), urgent: true,
			needed: func() bool {
				now, ok, err := readRecord(b.dir(id))
				return err != nil || !ok || now.Work != r.Work || !b.provenDead(id, now)
			},
		})
	}
	slices.SortStableFunc(out, func(x, y found) int { return x.at.Compare(y.at) })
	return out, nil
}

// provenDead reports whether nobody runs as this agent for sure. Its lock is held, so it is not being started.
func (b *Backend) provenDead(id string, r record) bool {
	if r.Pid == 0 || r.Boot != b.boot {
		return true
	}
	if p := b.find(id, r); p != nil {
		return p.gone()
	}
	p, err := openProcess(r.Pid, r.Start, func() {})
	if err != nil {
		return errors.Is(err, errNoProcess)
	}
	defer p.close()
	return p.gone()
}

// treeSize is what the files of a tree take, as far as they can be looked at.
func treeSize(path string) (n int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it counts what it sees
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

var _ backend.Collector = (*Backend)(nil)
