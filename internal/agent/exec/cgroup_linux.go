package exec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cgroup is a job's leaf of the v2 hierarchy, with a child for each step. No controller is enabled in it: it only holds
// processes together.
type cgroup struct {
	path string

	mu    sync.Mutex
	kills map[int]int // by step: a killed cgroup is not used again, because the kernel would kill what starts in it
}

var errNoCgroup = errors.New("no usable cgroup v2 hierarchy")

// newCgroup makes a leaf below this process's own cgroup, wherever the v2 hierarchy is mounted.
func newCgroup(name string) (*cgroup, error) {
	parent, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	g := &cgroup{path: filepath.Join(parent, name+"-"+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(g.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	// Without cgroup.kill (before Linux 5.14), or where it may not be written, the walk is the better method.
	f, err := os.OpenFile(filepath.Join(g.path, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		_ = g.remove()
		return nil, err
	}
	return g, f.Close()
}

// ownCgroup returns the directory of this process's cgroup in the v2 hierarchy.
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
		root, mount, ok := cgroup2Mount(lines.Text())
		if !ok || own == "" {
			continue
		}
		rel, err := filepath.Rel(root, own)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue // this mount does not show our part of the hierarchy
		}
		return filepath.Join(mount, rel), nil
	}
	return "", errNoCgroup
}

// cgroup2Mount reads "36 35 98:0 /root /mount options … - fstype source options".
func cgroup2Mount(line string) (root, mount string, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields := strings.Fields(before)
	if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
		return "", "", false
	}
	return unescapeMount(fields[3]), unescapeMount(fields[4]), true
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (g *cgroup) dir(step int) string {
	if step == anyStep {
		return g.path
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return filepath.Join(g.path, fmt.Sprintf("step-%d.%d", step, g.kills[step]))
}

// retire makes the next process of the step start in a new cgroup.
func (g *cgroup) retire(step int, dir string) {
	if step == anyStep {
		return
	}
	_ = syscall.Rmdir(dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kills == nil {
		g.kills = map[int]int{}
	}
	g.kills[step]++
}

// openStep makes the step's child and opens it, for a process to be started in.
func (g *cgroup) openStep(step int) (*os.File, error) {
	dir := g.dir(step)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the step's cgroup: %w", err)
	}
	return os.Open(dir)
}

// pids of a step or of the whole job, at this moment.
func (g *cgroup) pids(step int) []int {
	var out []int
	_ = filepath.WalkDir(g.dir(step), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a cgroup that went away holds nothing
		}
		data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out
}

// kill ends every process of a step or of the job, and waits until it is so.
func (g *cgroup) kill(ctx context.Context, step int) error {
	dir := g.dir(step)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("kill the job's cgroup: %w", err)
	}
	defer g.retire(step, dir)
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil || bytes.Contains(events, []byte("populated 0")) {
			return nil //nolint:nilerr // gone is dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the job's cgroup is still populated: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// remove deletes the leaf and its children, also those that a privileged step made.
func (g *cgroup) remove() error {
	var dirs []string
	err := filepath.WalkDir(g.path, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := removeCgroup(dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup tolerates the moment in which the kernel still counts the dead.
func removeCgroup(dir string) error {
	for try := 0; ; try++ {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || try == 50 {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(2 * time.Millisecond)
	}
}
