package baremetal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/cgroup"
)

// Without systemd an agent's own folders in the cgroup file systems bound it.

// unifiedFolder bounds an agent in its leaf of cgroup v2, by controllers that are delegated to this server's cgroup.
type unifiedFolder struct{ b *Backend }

func (f *unifiedFolder) String() string { return "cgroup v2" }

// plan implements limiter: the agent has its leaf anyway.
func (f *unifiedFolder) plan(id string, r *record) {
	if f.b.cgroups != "" {
		r.Cgroup = filepath.Join(f.b.cgroups, id)
	}
}

func (f *unifiedFolder) hold(_ context.Context, _ string, r *record, l cgroup.Limits) error {
	if f.b.cgroups == "" {
		return errors.New(f.b.noGroup)
	}
	if r.Cgroup == "" {
		return errors.New("the agent has no cgroup")
	}
	for _, dir := range []string{filepath.Dir(f.b.cgroups), f.b.cgroups} {
		if _, err := cgroup.Enable(dir); err != nil {
			return err
		}
	}
	return cgroup.Bound(r.Cgroup, l)
}

// legacyFolders bounds an agent in folders of the v1 hierarchies.
type legacyFolders struct{ b *Backend }

func (f *legacyFolders) String() string { return "cgroup v1" }

// plan implements limiter: beside the leaf of v2 that holds it together, where there is one, the agent gets a folder for each controller.
func (f *legacyFolders) plan(id string, r *record) {
	if f.b.cgroups != "" {
		r.Cgroup = filepath.Join(f.b.cgroups, id)
	}
	place, err := cgroup.PlaceOf(os.Getpid())
	if err != nil {
		return // hold finds no folders, and says so
	}
	r.Folders = map[string]string{}
	for controller, own := range place.Legacy {
		r.Folders[controller] = filepath.Join(own, cgroupPrefix+short(f.b.host.NodeID), id)
	}
}

func (f *legacyFolders) hold(_ context.Context, _ string, r *record, l cgroup.Limits) error {
	if len(r.Folders) == 0 {
		return errors.New("no controller of cgroup v1 is mounted")
	}
	for _, dir := range r.Folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := cgroup.BoundLegacy(r.Folders, l); err != nil {
		return err
	}
	for _, dir := range r.Folders {
		if err := cgroup.Enter(dir, r.Pid); err != nil {
			return err
		}
	}
	return nil
}

// removeFolders removes an agent's folders of v1, which hold no process any more.
func removeFolders(ctx context.Context, r record) (found bool, err error) {
	for _, dir := range r.Folders {
		if _, serr := os.Lstat(dir); errors.Is(serr, fs.ErrNotExist) {
			continue
		}
		found = true
		err = errors.Join(err, cgroup.Remove(ctx, dir))
		_ = os.Remove(filepath.Dir(dir)) // the node's, when it is empty; who needs it makes it again
	}
	return found, err
}

// ours keeps of the folders that a row names those that can be this agent's.
func ours(folders map[string]string, id string) map[string]string {
	out := map[string]string{}
	for controller, dir := range folders {
		node := filepath.Base(filepath.Dir(dir))
		if slices.Contains([]string{"cpu", "memory", "pids"}, controller) && filepath.Base(dir) == id && strings.HasPrefix(node, cgroupPrefix) {
			out[controller] = dir
		}
	}
	return out
}
