package baremetal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An agent starts in a cgroup v2 leaf of its own: no controller is enabled in it, it only holds the agent and everything that
// the agent starts together, also when the agent is killed (D19). The agent makes its jobs' leaves below.

// cgroupBase finds the folder for this node's leaves below this process's own cgroup, and makes it. Where that is not possible
// it says why.
func cgroupBase(nodeID string) (string, error) {
	own, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	base := filepath.Join(own, cgroupPrefix+short(nodeID))
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	// Without cgroup.kill (before Linux 5.14), or where it may not be written, a leaf is of no use.
	f, err := os.OpenFile(filepath.Join(base, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	return base, f.Close()
}

const cgroupPrefix = "kici-"

func short(id string) string {
	id = strings.ReplaceAll(id, "-", "")
	return id[max(0, len(id)-12):] // the random end of a UUIDv7
}

var errNoCgroup = errors.New("there is no cgroup v2 hierarchy")

// ownCgroup returns the folder of this process's cgroup in the v2 hierarchy, wherever that is mounted.
func ownCgroup(mountinfo, self string) (string, error) {
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	own := ""
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			own = strings.TrimSuffix(rest, "\n")
		}
	}
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 36 35 98:0 /root /mount options … - fstype source options
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") || own == "" {
			continue
		}
		rel, err := filepath.Rel(fields[3], own)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue // this mount does not show our part
		}
		return filepath.Join(fields[4], rel), nil
	}
	return "", errNoCgroup
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
	err = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("kill cgroup: %w", err)
	}
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
		if err != nil || bytes.Contains(events, []byte("populated 0")) {
			break
		}
		if err := sleep(ctx, pause); err != nil {
			return true, fmt.Errorf("cgroup %s still has processes %v: %w", path, leafPids(path), err)
		}
	}
	return true, removeLeaf(ctx, path)
}

func leafPids(path string) []int {
	var out []int
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			data, _ := os.ReadFile(p)
			for f := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(f); err == nil {
					out = append(out, pid)
				}
			}
		}
		return nil // what went away meanwhile holds nothing
	})
	return out
}

// removeLeaf removes a leaf and what was made below it, deepest first. The kernel may count the dead for a moment.
func removeLeaf(ctx context.Context, path string) error {
	var dirs []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return ignoreMissing(err)
	})
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		for try := 0; ; try++ {
			err := unix.Rmdir(dirs[i])
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || try == 100 || sleep(ctx, 2*time.Millisecond) != nil {
				return fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
			}
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
