package baremetal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// system is what holds agents together on Linux: leaves of cgroup v2, and whatever enforces limits.
type system struct {
	cgroups  string              // folder of agents' leaves, '' = none
	held     *os.File            // the folder, locked while this backend is open
	noGroup  string              // why there is none
	managers map[string]*manager // of systemd, by kind
	enforced *enforcement        // nil until Prepare has found one; guarded by mu of agents
}

func (a *agents) openSystem() {
	a.managers = newManagers(a.host.Environ)
	var err error
	if a.cgroups, a.held, err = cgroupBase(a.host.NodeID); err != nil {
		a.noGroup = err.Error()
	} else if n := removeDeadFolders(context.Background(), a.cgroups); n > 0 {
		a.log.Info("removed empty cgroups of dead nodes", "count", n)
		a.host.Leaks.Removed(n, backend.Cgroup)
	}
}

func (a *agents) closeSystem() {
	if a.cgroups != "" {
		_ = os.Remove(a.cgroups) // it goes when it is empty; who needs it makes it again
	}
	if a.held != nil {
		_ = a.held.Close()
		a.held = nil
	}
	for _, m := range a.managers {
		m.close()
	}
}

// systemSentences says what this system does not protect here.
func (b *Backend) systemSentences() (out []string) {
	if b.cgroups == "" && !b.inScopes() {
		out = append(out, "no cgroup can be made here ("+b.noGroup+"): what a dead agent leaves is found by its environment, which a job can hide")
	}
	return append(out, b.limitSentences()...)
}

// examineSystem says what holds agents together here and bounds them.
func (b *Backend) examineSystem() ([]string, error) {
	held := "held together by cgroups"
	if b.cgroups == "" && !b.inScopes() {
		held = "found by their environment (no cgroup can be made)"
	}
	if !b.entry.Options.Bool(keyCgroups) {
		return []string{held, "limits are not enforced"}, nil
	}
	e := b.enforces()
	if e == nil {
		return []string{held}, errors.New("no way to enforce limits was found (enforceCgroups)")
	}
	text := "limits by " + e.String()
	if len(e.missing) > 0 {
		text += ", without " + strings.Join(e.missing, " and ")
	}
	return []string{held, text}, nil
}

// unready says why nothing can be started yet.
func (b *Backend) unready() error {
	if b.entry.Options.Bool(keyCgroups) && b.enforces() == nil {
		return fmt.Errorf("%w: how limits can be enforced is not known yet", backend.ErrNotReady)
	}
	return nil
}

// planSystem adds to a record what undoing a start takes on this system.
func (b *Backend) planSystem(id string, r *record) {
	if b.cgroups != "" {
		r.Cgroup = filepath.Join(b.cgroups, id)
	}
	if e := b.enforces(); e != nil {
		e.plan(id, r)
	}
}

// strayLeaves finds what this node has in the cgroup file systems and that belongs to no known agent, by agent.
func (b *Backend) strayLeaves(known map[string]bool) map[string]backend.Instance {
	records, busy := map[string]record{}, map[string]bool{}
	look := func(folder string, note func(r *record, dir string)) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return // it is made with the first agent
		}
		for _, e := range entries {
			id, dir := e.Name(), filepath.Join(folder, e.Name())
			if !e.IsDir() || known[id] || !agentID().MatchString(id) {
				continue
			}
			r, ok := records[id]
			if !ok {
				r = b.plan(id)
				r.Unit, r.Manager, r.Cgroup, r.Folders = "", "", "", map[string]string{}
			}
			note(&r, dir)
			records[id], busy[id] = r, busy[id] || populated(dir)
		}
	}
	if b.cgroups != "" {
		look(b.cgroups, func(r *record, dir string) { r.Cgroup = dir })
	}
	if place, err := cgroup.PlaceOf(os.Getpid()); err == nil {
		for controller, own := range place.Legacy {
			look(filepath.Join(own, cgroupPrefix+short(b.host.NodeID)), func(r *record, dir string) { r.Folders[controller] = dir })
		}
	}
	out := map[string]backend.Instance{}
	for id, r := range records {
		inst := b.remnant(id, "a cgroup without a record", backend.Cgroup)
		inst.Launch = r.encode()
		if busy[id] {
			inst.Detail, inst.Holds = "processes in a cgroup without a record", append(inst.Holds, backend.Process)
		}
		out[id] = inst
	}
	return out
}

// populated reports whether there are processes in a folder, or below one of cgroup v2.
func populated(dir string) bool {
	if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil {
		return bytes.Contains(events, []byte("populated 1"))
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && len(bytes.TrimSpace(procs)) > 0
}

// knownSystem takes from a row what can only be this agent's.
func (b *Backend) knownSystem(id string, known record, r *record) {
	if filepath.Base(known.Cgroup) == id && strings.HasPrefix(filepath.Base(filepath.Dir(known.Cgroup)), cgroupPrefix) {
		r.Cgroup = known.Cgroup
	}
	if b.managers[known.Manager] != nil && known.Unit == unitName(id) {
		r.Unit, r.Manager = known.Unit, known.Manager
	}
	r.Folders = ours(known.Folders, id)
}

// makeRoom makes what an agent is started in.
func (b *Backend) makeRoom(id string, r *record) {
	if r.Cgroup == "" {
		return
	}
	if err := makeLeaf(r.Cgroup, b.user); err != nil {
		b.log.Warn("agent starts without a cgroup", "agent_id", id, "err", err)
		r.Cgroup = ""
	}
}
