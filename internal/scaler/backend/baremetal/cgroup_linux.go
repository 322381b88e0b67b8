package baremetal

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kici-go/kici/internal/cgroup"
)

// An agent starts in a cgroup v2 leaf of its own, which holds the agent and everything that the agent starts together, also when
// the agent is killed (D19). The agent makes its jobs' leaves below.

const cgroupPrefix = "kici-"

// cgroupBase finds the folder for this node's leaves below this process's own cgroup, makes it, and holds it: a folder that nobody
// holds and no process is in belongs to a dead node. Where that is not possible it says why.
func cgroupBase(nodeID string) (dir string, held *os.File, err error) {
	own, err := cgroup.Home()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(own, cgroupPrefix+short(nodeID))
	if err := cgroup.Make(dir); err != nil {
		return "", nil, err
	}
	if held, err = os.Open(dir); err != nil {
		return "", nil, err
	}
	_ = syscall.Flock(int(held.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) // taken only by who removes it just now; it is made again when needed
	return dir, held, nil
}

// isNodeFolder matches the folders that cgroupBase makes; jobs of static agents have other names.
func isNodeFolder(name string) bool {
	id, ok := strings.CutPrefix(name, cgroupPrefix)
	return ok && len(id) == 12 && strings.Trim(id, "0123456789abcdef") == ""
}

// removeDeadFolders removes what nodes that were killed have left beside own: folders of nodes that no server holds and that have no
// process in them or below.
func removeDeadFolders(ctx context.Context, own string) (removed int) {
	entries, err := os.ReadDir(filepath.Dir(own))
	if err != nil {
		return 0
	}
	for _, e := range entries {
		dir := filepath.Join(filepath.Dir(own), e.Name())
		if e.IsDir() && isNodeFolder(e.Name()) && dir != own && removeDead(ctx, dir) {
			removed++
		}
	}
	return removed
}

func removeDead(ctx context.Context, dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false // its node lives
	}
	if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err != nil || !bytes.Contains(events, []byte("populated 0")) {
		return false // its agents live
	}
	return cgroup.Remove(ctx, dir) == nil
}

// makeLeaf makes an agent's leaf; a user other than ours gets it, so that the agent can make its jobs' leaves.
func makeLeaf(path string, u *account) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if u == nil {
		return nil
	}
	return giveLeaf(path, u)
}

// giveLeaf gives a user what it takes to make leaves below one, and to end what is in it; not its limits.
func giveLeaf(path string, u *account) error {
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.kill"} {
		if err := os.Chown(filepath.Join(path, name), int(u.uid), int(u.gid)); err != nil {
			return err
		}
	}
	return nil
}

// endLeaf kills everything in a leaf and below, and removes it. found says that there was one.
func endLeaf(ctx context.Context, path string) (found bool, err error) {
	err = cgroup.Kill(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return true, cgroup.Remove(ctx, path)
}
