// Package exec starts the processes of a job and ends all of them again (D19). It is the only room of the agent that
// executes anything but git.
//
// Every step runs in a session of its own. All processes of a job form a Tree, held together in one of these ways:
//
//   - "cgroup": a cgroup v2 leaf for the job with a child for each step; cgroup.kill ends it at once, whatever it forks.
//   - "subreaper": where no leaf can be made, this process adopts orphans (PR_SET_CHILD_SUBREAPER), stops every
//     descendant it finds in /proc again and again until there is no new one, and then kills them all.
//   - "job object": on Windows, a job object for each step; what its processes start is in it as well.
//   - "process group": on systems without any, the step's process group.
//
// Under "cgroup" the walk of "subreaper" runs as well, for processes that a privileged step moved out of its cgroup.
//
// If the agent itself is killed (SIGKILL), the kernel kills the steps' first processes (PR_SET_PDEATHSIG), and what
// they have forked is found by StateFile, which names the cgroup and the environment entry that every process of the
// job inherited: CleanUp, called by the next agent in the same work directory or by the node, ends it.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/sandbox"
)

// The ways to hold a tree together, as reported in wire.JobStatus.KillMethod.
const (
	MethodCgroup    = "cgroup"
	MethodSubreaper = "subreaper"
	MethodJob       = "job object"
	MethodGroup     = "process group"
)

// killTimeout bounds how long Kill looks for survivors.
const killTimeout = 10 * time.Second

// Options describe a job's tree.
type Options struct {
	JobID     string
	StateFile string // written while the tree exists; "" for none
	Exclusive bool   // this process runs nothing but this job: every orphan it adopts is the job's
	NoCgroup  bool   // do not try to make a cgroup
	Log       *slog.Logger
}

// Spec is one process to run: the first of a step.
type Spec struct {
	Step   int // names the step's part of the tree; the same number may be used again for a retry
	Argv   []string
	Dir    string
	Env    []string // whole environment; Argv[0] is looked up in its PATH
	Stdout io.Writer
	Stderr io.Writer
}

// Result is how a process ended.
type Result struct {
	ExitCode int    // 128+n when a signal ended it
	Signal   string // its name, "" otherwise
	Limit    string // which limit of the agent's cgroup was hit meanwhile, in words; "" for none
}

// ErrNotFound is wrapped when Argv[0] is not on the PATH of Spec.Env.
var ErrNotFound = errors.New("program not found")

// Tree is the processes of one job. Its methods are safe for concurrent use; Run is called for one step at a time.
type Tree struct {
	opts    Options
	group   *group // nil when the method is another
	limits  *limits
	held           // what else holds processes together on this system; guarded by mu
	started uint64 // when this process did: nothing of the job is older

	begin sync.Mutex   // held while a process starts inside of box, and while a step is killed
	box   *sandbox.Box // nil: steps run on the machine as it is

	mu    sync.Mutex
	roots map[int]int // pid of a step's first process that is not reaped yet, or of the box's → step
	pipes []*pipe
}

// NewTree prepares the tree of a job. Close must be called.
func NewTree(o Options) (*Tree, error) {
	t := &Tree{opts: o, roots: map[int]int{}, started: StartTime(os.Getpid()), limits: newLimits()}
	becomeSubreaper()
	if !o.NoCgroup {
		g, err := newGroup("kici-job-" + shortID(o.JobID))
		if err != nil {
			o.Log.Debug("no cgroup for the job", "job_id", o.JobID, "err", err)
		}
		t.group = g
	}
	if err := t.writeState(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Method says how the tree is held together.
func (t *Tree) Method() string {
	if t.group != nil {
		return MethodCgroup
	}
	return walkMethod
}

// Env is what every process of a step must have in its environment, so that the walk knows it again.
func (t *Tree) Env(step int) []string { return markers(t.opts.JobID, step) }

const anyStep = -1

func markers(jobID string, step int) []string {
	m := []string{"KICI_JOB_ID=" + jobID}
	if step != anyStep {
		m = append(m, fmt.Sprintf("KICI_STEP=%d", step))
	}
	return m
}

// Run runs a process to its end and returns when its output has been read, or, when something it left behind holds
// the output open, shortly after. ctx is looked at only before the start: to end a step early, use Terminate and Kill.
func (t *Tree) Run(ctx context.Context, s Spec) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	path, err := lookPath(s.Argv[0], s.Env, s.Dir)
	if err != nil {
		return Result{}, err
	}
	s.Env = append(s.Env[:len(s.Env):len(s.Env)], t.Env(s.Step)...)
	out, err := newPipe(s.Stdout)
	if err != nil {
		return Result{}, err
	}
	errs, err := newPipe(s.Stderr)
	if err != nil {
		out.abandon()
		return Result{}, err
	}
	hit := t.limits.watch()
	wait, err := t.start(path, s, out.w, errs.w)
	if err != nil {
		out.abandon()
		errs.abandon()
		if why := hit(); why != "" {
			return Result{}, fmt.Errorf("start %s: %s; %w", s.Argv[0], why, err)
		}
		return Result{}, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	out.begin()
	errs.begin()
	t.mu.Lock()
	t.pipes = append(t.pipes, out, errs)
	t.mu.Unlock()
	stopReaping := t.reapOrphans()
	res, err := wait()
	stopReaping()
	out.settle()
	errs.settle()
	res.Limit = hit()
	return res, err
}

// start starts the first process of a step; wait waits for its end.
func (t *Tree) start(path string, s Spec, stdout, stderr *os.File) (wait func() (Result, error), err error) {
	if t.box != nil {
		return t.startInside(path, s, stdout, stderr)
	}
	attr, done, err := t.attributes(s.Step)
	if err != nil {
		return nil, err
	}
	defer done()
	cmd := &osexec.Cmd{Path: path, Args: s.Argv, Dir: s.Dir, Env: s.Env, Stdout: stdout, Stderr: stderr, SysProcAttr: attr}
	t.mu.Lock() // no walk may see the process before it is in roots
	defer t.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := t.held.begun(cmd, s.Step); err != nil {
		return nil, err
	}
	t.roots[cmd.Process.Pid] = s.Step
	offerToKill(cmd.Process.Pid)
	return func() (Result, error) {
		err := cmd.Wait()
		t.mu.Lock()
		delete(t.roots, cmd.Process.Pid)
		t.mu.Unlock()
		return result(cmd, err)
	}, nil
}

func result(cmd *osexec.Cmd, err error) (Result, error) {
	if _, exited := errors.AsType[*osexec.ExitError](err); err != nil && !exited {
		return Result{}, err
	}
	if name, code := signalOf(cmd.ProcessState); name != "" {
		return Result{ExitCode: code, Signal: name}, nil
	}
	return Result{ExitCode: cmd.ProcessState.ExitCode()}, nil
}

// Close kills what is left and removes the cgroup and the state file.
func (t *Tree) Close() {
	defer t.leaveBox()
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := t.Kill(ctx); err != nil {
		t.opts.Log.Warn("processes of the job are left", "job_id", t.opts.JobID, "err", err)
	}
	if t.group != nil {
		if err := t.group.remove(ctx); err != nil {
			t.opts.Log.Warn("remove the job's cgroup", "job_id", t.opts.JobID, "err", err)
			return // the state file stays: somebody else may clean up
		}
	}
	t.mu.Lock()
	pipes := t.pipes
	t.pipes = nil
	t.mu.Unlock()
	for _, p := range pipes {
		p.abandon()
	}
	if t.opts.StateFile != "" {
		_ = os.Remove(t.opts.StateFile)
	}
}

// shortID keeps the random end of a UUIDv7 and only what is safe in a file name.
func shortID(id string) string {
	id = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, id)
	return id[max(0, len(id)-12):]
}

// LookPath finds a program as a step with this environment would.
func LookPath(name string, env []string) (string, error) { return lookPath(name, env, "") }

func lookPath(name string, env []string, dir string) (string, error) {
	if filepath.Base(name) != name {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := executable(name); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNotFound, name, err)
		}
		return name, nil
	}
	for _, d := range filepath.SplitList(variable(env, "PATH")) {
		for _, n := range candidates(name, env) {
			if p := filepath.Join(d, n); filepath.IsAbs(d) && executable(p) == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s is not on the PATH", ErrNotFound, name)
}

// variable finds one of an environment, where the last of equals wins.
func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if n, value, ok := strings.Cut(env[i], "="); ok && sameName(n, name) {
			return value
		}
	}
	return ""
}
