package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/kici-go/kici/internal/cgroup"
)

// group is a job's leaf of the v2 hierarchy, with a child for each step.
type group struct {
	path string

	mu    sync.Mutex
	kills map[int]int // by step: a killed cgroup is not used again, because the kernel would kill what starts in it
}

// newGroup makes a leaf below this process's own cgroup.
func newGroup(name string) (*group, error) {
	parent, err := cgroup.Own()
	if err != nil {
		return nil, err
	}
	g := &group{path: filepath.Join(parent, name+"-"+strconv.Itoa(os.Getpid()))}
	return g, cgroup.Make(g.path)
}

func (g *group) dir(step int) string {
	if step == anyStep {
		return g.path
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return filepath.Join(g.path, fmt.Sprintf("step-%d.%d", step, g.kills[step]))
}

// retire makes the next process of the step start in a new cgroup.
func (g *group) retire(step int, dir string) {
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
func (g *group) openStep(step int) (*os.File, error) {
	dir := g.dir(step)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the step's cgroup: %w", err)
	}
	return os.Open(dir)
}

// enter moves a process into the cgroup of a step, which is made when it is not there, or into that of the job.
func (g *group) enter(step, pid int) error {
	if step != anyStep {
		dir, err := g.openStep(step)
		if err != nil {
			return err
		}
		defer dir.Close()
	}
	return cgroup.Enter(g.dir(step), pid)
}

// pids of a step or of the whole job, at this moment.
func (g *group) pids(step int) []int { return cgroup.Pids(g.dir(step)) }

// kill ends every process of a step or of the job, and waits until it is so.
func (g *group) kill(ctx context.Context, step int) error {
	dir := g.dir(step)
	err := cgroup.Kill(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	g.retire(step, dir)
	return err
}

// remove deletes the leaf and its children, also those that a privileged step made.
func (g *group) remove(ctx context.Context) error { return cgroup.Remove(ctx, g.path) }
