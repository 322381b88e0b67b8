package baremetal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kici-go/kici/internal/cgroup"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// Under enforceCgroups an agent waits for its token outside of every limit and is moved under them before it gets it: it has done
// nothing of a job until then. Which way works here is found by trying it with a process that never gets a token.

// limiter puts agents under their limits in one way.
type limiter interface {
	fmt.Stringer
	// plan adds to a record what undoing hold takes.
	plan(id string, r *record)
	// hold puts the process of the record, which waits for its token, under limits. It may add to the record.
	hold(ctx context.Context, id string, r *record, l cgroup.Limits) error
}

// enforcement is a way that works here.
type enforcement struct {
	limiter
	missing []string // what it cannot bound here
}

// limitsOf are an agent's limits. Its processes and threads are bounded whatever its job asks for.
func (b *Backend) limitsOf(r ci.Resources) cgroup.Limits {
	l := cgroup.Limits{CPUMilli: r.CPUMilli, MemBytes: r.MemBytes, Tasks: b.entry.Options.Int(keyTasks)}
	if l.Tasks == 0 {
		l.Tasks = defaultTasks
	}
	return l
}

// enforces returns the way in which this scaler's limits are enforced; nil when they are not.
func (b *Backend) enforces() *enforcement {
	if !b.entry.Options.Bool(keyCgroups) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enforced
}

// hold puts a started agent under its limits and looks whether the kernel has taken them.
func (b *Backend) hold(ctx context.Context, id string, r *record, want ci.Resources) error {
	e := b.enforces()
	if e == nil {
		return nil
	}
	missing, err := held(ctx, e.limiter, id, r, b.limitsOf(want))
	if err != nil {
		return fmt.Errorf("%w: put the agent under its limits by %s: %w", backend.ErrInfra, e, err)
	}
	for _, name := range missing {
		if !slices.Contains(e.missing, name) {
			return fmt.Errorf("%w: the %s limit was set by %s and does not hold", backend.ErrInfra, name, e)
		}
	}
	return nil
}

// held puts a process under limits and names those that do not hold.
func held(ctx context.Context, way limiter, id string, r *record, l cgroup.Limits) (missing []string, err error) {
	if err := way.hold(ctx, id, r, l); err != nil {
		return nil, err
	}
	place, err := cgroup.PlaceOf(r.Pid)
	if err != nil {
		return nil, err
	}
	return l.Missing(place.Meter().Limits()), nil
}

// prepareLimits finds out how limits can be enforced here. What holds all of them wins, then what holds most. Where nothing holds any,
// the scaler is not ready: it was told to enforce them.
func (b *Backend) prepareLimits(ctx context.Context) error {
	if !b.entry.Options.Bool(keyCgroups) {
		return nil
	}
	var best *enforcement
	var tried []string
	for _, way := range b.limiters() {
		missing, err := b.try(ctx, way)
		if err == nil && len(missing) == len(trial.Missing(cgroup.Limits{})) {
			err = errors.New("the kernel takes no limit")
		}
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", way, err))
			continue
		}
		if best == nil || len(missing) < len(best.missing) {
			best = &enforcement{way, missing}
		}
		if len(missing) == 0 {
			break
		}
	}
	if best == nil {
		return fmt.Errorf("enforceCgroups: no limit can be enforced here (%s); run the server under systemd, or in a cgroup of its own with the "+
			"controllers cpu, memory and pids delegated to it, or set enforceCgroups to false", strings.Join(tried, "; "))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.enforced == nil || b.enforced.String() != best.String() {
		b.log.Info("limits of agents are enforced", "by", best.String(), "not", best.missing)
	}
	b.enforced = best
	return nil
}

// limiters are the ways to try, the best first.
func (b *Backend) limiters() []limiter {
	var out []limiter
	for _, m := range b.managersHere() {
		out = append(out, &scopes{m, b})
	}
	return append(out, &unifiedFolder{b}, &legacyFolders{b})
}

// trial are the limits that a way is tried with: small, so that no host refuses them.
var trial = cgroup.Limits{CPUMilli: 1000, MemBytes: 256 << 20, Tasks: 256}

// trialURL makes the settings of a trial's process complete, so that it comes to wait for its token. Nobody is called.
const trialURL = "ws://127.0.0.1:1/ws"

// try starts an agent that never gets a token, puts it under limits and reads back what holds. Nothing of it stays.
func (b *Backend) try(ctx context.Context, way limiter) (missing []string, err error) {
	id := fmt.Sprintf("probe-%s-%d", short(b.host.NodeID), os.Getpid())
	r := record{Boot: b.boot, Ready: true}
	way.plan(id, &r)
	if r.Cgroup != "" {
		if err := makeLeaf(r.Cgroup, nil); err != nil {
			return nil, err
		}
	}
	token, give, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer give.Close()
	l := b.launch(backend.Spec{AgentID: id, URL: trialURL, Labels: []string{"trial"}}, backend.Set{}, "/")
	p, err := b.run(&r, l, os.DevNull, token)
	_ = token.Close()
	if err == nil {
		r.Pid, r.Start = p.pid, p.start
		missing, err = held(ctx, way, id, &r, trial)
		err = errors.Join(err, p.signal(unix.SIGKILL))
		p.wait(killPatience, ctx.Done())
		p.close()
	}
	_, uerr := b.endLeft(ctx, id, r)
	return missing, errors.Join(err, uerr)
}

// limitSentences says plainly what of the limits is not enforced (BM-3).
func (b *Backend) limitSentences() []string {
	if !b.entry.Options.Bool(keyCgroups) {
		return []string{"cpu and memory limits are not enforced (enforceCgroups is off): a job can use all of this machine"}
	}
	if e := b.enforces(); e != nil && len(e.missing) > 0 {
		return []string{fmt.Sprintf("enforceCgroups: limits of %s cannot be enforced here by %s", strings.Join(e.missing, " and "), e)}
	}
	return nil
}

// inScopes reports whether agents are held together by units of systemd.
func (b *Backend) inScopes() bool {
	e := b.enforces()
	if e == nil {
		return false
	}
	_, ok := e.limiter.(*scopes)
	return ok
}

// blame says which limit a dead agent has hit, as far as that is still known; ” when none.
func (b *Backend) blame(ctx context.Context, r record) string {
	if r.Boot != b.boot {
		return ""
	}
	place := cgroup.Place{Unified: r.Cgroup, Legacy: r.Folders} // a leaf stays until Delete, with its counters
	meter := place.Meter()
	if why := meter.Limits().Blame(cgroup.Count{}, meter.Count()); why != "" {
		return why
	}
	if m := b.managers[r.Manager]; m != nil && r.Unit != "" && m.unitResult(ctx, r.Unit) == "oom-kill" {
		return "out of memory"
	}
	return ""
}
