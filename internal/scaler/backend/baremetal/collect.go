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
	"github.com/kici-go/kici/internal/service"
)

// Collect implements backend.Collector: interrupted copies of the program in the folder of workspaces that is this node's alone. On a full
// disk, the workspaces of dead agents go as well; the rest of such an agent stays for Delete, which tells what became of it. Folders without
// a record are found by List.
func (b *Backend) Collect(ctx context.Context, c backend.Collect) (out []backend.Collected, err error) {
	if b.work == privateRoot(b.host.NodeID) {
		out, err = backend.CollectParts(filepath.Join(b.work, programFolder), b.host.Now())
	}
	if c.Full == nil {
		return out, err
	}
	dead, derr := b.deadWork(c.Folder)
	err = errors.Join(err, derr)
	for _, w := range dead {
		if ctx.Err() != nil {
			return out, errors.Join(err, context.Cause(ctx))
		}
		if !c.Full() {
			break
		}
		gone, cerr := b.collect(w)
		if cerr != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", w.path, cerr))
		} else if gone.Name != "" {
			out = append(out, gone)
		}
	}
	return out, err
}

// workspace is that of an agent that was dead when it was looked at.
type workspace struct {
	agent, path string
	at          time.Time
}

// collect removes a workspace, unless somebody has come to need it.
func (b *Backend) collect(w workspace) (backend.Collected, error) {
	defer b.lock(w.agent)()
	r, ok, err := readRecord(b.dir(w.agent))
	if err != nil || !ok || r.Work != w.path || !b.provenDead(w.agent, r) {
		return backend.Collected{}, err
	}
	size := treeSize(w.path)
	if err := removeTree(w.path); err != nil {
		return backend.Collected{}, err
	}
	return backend.Collected{Kind: backend.CollectedWorkspace, Name: w.path, Bytes: size, Why: "its agent is dead, and the disk is full"}, nil
}

// deadWork lists the workspaces of this scaler's agents that may be dead, as far as they are on that disk, the oldest first.
func (b *Backend) deadWork(disk string) (out []workspace, err error) {
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
		if ierr != nil || !info.IsDir() || !service.SameDisk(r.Work, disk) {
			continue
		}
		out = append(out, workspace{id, r.Work, info.ModTime()})
	}
	slices.SortStableFunc(out, func(x, y workspace) int { return x.at.Compare(y.at) })
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
