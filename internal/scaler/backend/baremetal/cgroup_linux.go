package baremetal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kici-go/kici/internal/cgroup"
)

// An agent starts in a cgroup v2 leaf of its own, which holds the agent and everything that the agent starts together, also when
// the agent is killed (D19). The agent makes its jobs' leaves below.

const cgroupPrefix = "kici-"

// cgroupBase finds the folder for this node's leaves below this process's own cgroup, and makes it. Where that is not possible
// it says why.
func cgroupBase(nodeID string) (string, error) {
	own, err := cgroup.Own()
	if err != nil {
		return "", err
	}
	base := filepath.Join(own, cgroupPrefix+short(nodeID))
	if err := cgroup.Make(base); err != nil {
		return "", err
	}
	return base, nil
}

func short(id string) string {
	id = strings.ReplaceAll(id, "-", "")
	return id[max(0, len(id)-12):] // the random end of a UUIDv7
}

// makeLeaf makes an agent's leaf; a user other than ours gets it, so that the agent can make its jobs' leaves.
func makeLeaf(path string, u *account) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if u == nil {
		return nil
	}
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
