//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// exitPatience is how long the exit of a process may take that has closed the pipe with its token.
const exitPatience = 2 * time.Second

// Create implements backend.Backend. The order makes every crash harmless: the directory with the record, the leaf, the process,
// its pid in the record, its limits, and only then the token. A process whose parent died before reads no token and leaves.
func (b *Backend) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if !agentID().MatchString(s.AgentID) {
		return backend.Instance{}, fmt.Errorf("%w: agent id %q", backend.ErrRefused, s.AgentID)
	}
	set, ok := b.sets[s.LabelSet]
	if !ok {
		return backend.Instance{}, fmt.Errorf("%w: scaler %s has no label set [%s]", backend.ErrRefused, b.entry.Name, s.LabelSet)
	}
	defer b.lock(s.AgentID)()
	old, found, err := readRecord(b.dir(s.AgentID))
	switch {
	case err != nil:
		return backend.Instance{}, fmt.Errorf("%w: %w", backend.ErrInfra, err)
	case found:
		if inst := b.instance(ctx, s.AgentID, old); inst.Running && old.Ready {
			return inst, nil
		}
		if _, err := b.end(ctx, s.AgentID, old, 0); err != nil {
			return backend.Instance{}, fmt.Errorf("%w: end an interrupted start: %w", backend.ErrInfra, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return backend.Instance{}, err
	}
	r, err := b.start(ctx, s, set)
	if err != nil {
		return backend.Instance{}, b.undo(s.AgentID, r, err)
	}
	return backend.Instance{AgentID: s.AgentID, Launch: r.encode(), Running: true, Detail: fmt.Sprintf("pid %d", r.Pid)}, nil
}

// undo removes what a failed start left; what it cannot remove stays for Delete.
func (b *Backend) undo(id string, r record, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	if _, err := b.end(ctx, id, r, 0); err != nil {
		b.log.Warn("undo a failed start", "agent_id", id, "err", err)
	}
	return cause
}

func (b *Backend) start(ctx context.Context, s backend.Spec, set backend.Set) (record, error) {
	r := b.plan(s.AgentID)
	dir := b.dir(s.AgentID)
	if err := r.create(dir); err != nil {
		return r, fmt.Errorf("%w: make agent directory: %w", backend.ErrInfra, err)
	}
	if err := b.makeWork(r.Work); err != nil {
		return r, fmt.Errorf("%w: make agent work directory: %w", backend.ErrInfra, err)
	}
	b.makeRoom(s.AgentID, &r)
	token, give, err := os.Pipe()
	if err != nil {
		return r, hostError(err)
	}
	defer give.Close() // also after it was closed: a failed start must not leave the agent waiting
	p, err := b.run(&r, b.launch(s, set, r.Work), filepath.Join(dir, logFile), token)
	_ = token.Close()
	if err != nil {
		return r, err
	}
	b.mu.Lock()
	b.keep(s.AgentID, p)
	b.mu.Unlock()
	r.Pid, r.Start = p.pid, p.start
	if err := r.write(dir); err != nil {
		return r, fmt.Errorf("%w: write agent record: %w", backend.ErrInfra, err)
	}
	if err := b.hold(ctx, s.AgentID, &r, s.Limits); err != nil {
		return r, err
	}
	if err := ctx.Err(); err != nil { // cancelled meanwhile (BM-14)
		return r, err
	}
	if err := handOver(ctx, give, s.Token, p); err != nil {
		var died *backend.Died
		if errors.As(err, &died) {
			died.Tail = tail(filepath.Join(dir, logFile))
		}
		return r, err
	}
	r.Ready = true
	if err := r.write(dir); err != nil {
		return r, fmt.Errorf("%w: write agent record: %w", backend.ErrInfra, err)
	}
	return r, nil
}

// handOver gives the agent its token and closes the pipe, so that the agent reads to the end. Where nobody reads, the exit tells more
// than the broken pipe.
func handOver(ctx context.Context, give *os.File, token string, p *process) error {
	_, err := io.WriteString(give, token+"\n")
	if err = errors.Join(err, give.Close()); err == nil {
		return nil
	}
	if brokenPipe(err) && p.wait(exitPatience, ctx.Done()) {
		return &backend.Died{Detail: p.exit()}
	}
	return fmt.Errorf("%w: hand over the token: %w", backend.ErrGuest, err)
}

func (b *Backend) launch(s backend.Spec, set backend.Set, work string) launch {
	b.mu.Lock()
	binary := b.program
	b.mu.Unlock()
	if own := set.Options.String(keyBinary); own != "" {
		binary = own
	}
	u := b.user
	if u != nil {
		if info, err := os.Stat(u.home); err != nil || !info.IsDir() {
			copied := *u
			copied.home = work // nobody has none, and much fails without
			u = &copied
		}
	}
	return plan(launchInput{
		binary: binary, spec: s, setEnv: set.Env, mode: set.Options.String("backpressureMode"), environ: b.host.Environ,
		goos: runtime.GOOS, workDir: work, user: u, box: confinementOf(b.entry, set, b.host.Dir),
	})
}

// makeWork makes the agent's own directory: 0700, and of the user that the agent runs as.
func (b *Backend) makeWork(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if b.user == nil {
		return nil
	}
	return os.Lchown(path, int(b.user.uid), int(b.user.gid))
}

// run starts the process in a session of its own, with its output in a file and the token's pipe as descriptor 3. Where it cannot
// be started in its leaf it starts without.
func (b *Backend) run(r *record, l launch, output string, token *os.File) (*process, error) {
	out, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: open agent output: %w", backend.ErrInfra, err)
	}
	defer out.Close()
	id := filepath.Base(filepath.Dir(output))
	pid, err := b.exec(id, r, l, outputs{out, token})
	if err != nil {
		return nil, hostError(err)
	}
	// Nobody but us can reap it, so pid and start time belong together.
	start, err := startTime(pid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrGuest, err)
	}
	exited := func() {}
	if output != os.DevNull { // a trial's end is nobody's business
		exited = func() { b.exited(id) }
	}
	p, err := openProcess(pid, start, exited)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrInfra, err)
	}
	return p, nil
}

// outputs are what a process inherits: where its output goes, and the end of the pipe that its token comes from.
type outputs struct{ out, token *os.File }

// hostError tells what policy needs to know of a start that failed: most refusals would come again (BM-11).
func hostError(err error) error {
	for kind, errs := range map[error][]error{backend.ErrNoCapacity: noCapacity, backend.ErrInfra: passing} {
		for _, e := range errs {
			if errors.Is(err, e) {
				return fmt.Errorf("%w: %w", kind, err)
			}
		}
	}
	return fmt.Errorf("%w: %w", backend.ErrRefused, err)
}
