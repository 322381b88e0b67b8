package sim

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/agent"
	"github.com/kici-go/kici/internal/agent/job"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/service"
)

// agentProcess is the real agent (internal/agent) with a script for its jobs, or a liar. It dies, hangs and is cut off as its seed says.
type agentProcess struct {
	m     *machine
	id    string
	actor string
	spec  backend.Spec
	stays bool // a static one, which no node has started

	dead    atomic.Bool
	sends   atomic.Uint64
	rands   atomic.Uint64
	doom    uint64 // the n-th write to the network is its last
	lost    uint64 // at the n-th write it is cut off
	cancel  context.CancelFunc
	mu      sync.Mutex
	scripts map[*script]struct{}
}

// run is the whole life of the process.
func (a *agentProcess) run() {
	w := a.m.w
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	a.cancel, a.scripts = cancel, map[*script]struct{}{}
	a.mu.Unlock()
	defer cancel()
	d := w.seed.dice("agent " + a.actor)
	if service.Sleep(ctx, d.between(5*time.Millisecond, 400*time.Millisecond)) != nil || a.dead.Load() {
		return
	}
	lies := false
	if w.faulty() {
		lies = a.fate(ctx, d)
	}
	var err error
	if lies {
		err = a.lie(ctx)
	} else {
		err = a.serve(ctx)
	}
	w.trace.add("agent %s left", a.actor)
	if err == nil && !lies && !a.stays && !a.dead.Load() {
		a.checkLeft()
	}
	if err != nil && !a.dead.Load() {
		w.trace.note("agent %s: %v", a.actor, err)
	}
	if !a.dead.Load() {
		detail := "exited with 0"
		if err != nil {
			detail = "exited with 1"
		}
		a.exit(detail)
	}
}

// checkLeft: an agent that leaves of its own accord has been told that the end of its job is written, and it is.
func (a *agentProcess) checkLeft() {
	pool, err := a.m.w.openDatabase()
	if err != nil {
		return // no server runs just now
	}
	defer func() { _ = pool.Close() }()
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.scripts {
		select {
		case <-s.finished:
		default:
			continue
		}
		found, err := rows(pool, "SELECT status FROM execution_jobs WHERE id = ? AND attempt = ? AND agent_id = ? AND finished_at IS NULL", s.cfg.Spec.JobID, s.cfg.Spec.Attempt, a.id)
		if err == nil && len(found) > 0 {
			a.m.w.violate("report", "agent %s has left, and job %s, which it has done, is %s", a.actor, s.cfg.Spec.JobID, found[0][0])
		}
	}
}

// fate is what will happen to this agent; it reports whether it is a liar.
func (a *agentProcess) fate(ctx context.Context, d *dice) (lies bool) {
	w := a.m.w
	switch k := d.below(100); {
	case k < 7: // killed at some time
		w.later(ctx, d.between(0, 40*time.Second), func() { a.exit("killed") })
	case k < 12: // killed when it sends something
		a.doom = 1 + d.next()%60
	case k < 18: // … when it has just come, and gets its job
		w.later(ctx, d.between(300*time.Millisecond, 2500*time.Millisecond), func() {
			if d.chance(50) {
				a.exit("killed")
			} else {
				w.net.drop(a.actor, true)
			}
		})
	case k < 21: // cut off for a while
		w.later(ctx, d.between(time.Second, 30*time.Second), func() {
			d := d.between(time.Second, 50*time.Second)
			w.trace.add("stall %s %s", a.actor, d)
			w.net.stall(a.actor, d)
		})
	case k < 25: // its connections break now and then
		for range 1 + d.below(4) {
			w.later(ctx, d.between(0, 30*time.Second), func() { w.net.drop(a.actor, d.chance(60)) })
		}
	case k < 34:
		return !a.stays
	case k < 46: // cut off when it sends something early in its life, for longer than it is waited for
		a.lost = 1 + d.next()%12
	}
	return false
}

func (a *agentProcess) sent() {
	n := a.sends.Add(1)
	if n == a.lost && a.m.w.faulty() {
		a.m.w.trace.add("cut off %s", a.actor)
		a.m.w.net.stall(a.actor, quick(35*time.Second))
		a.m.w.net.drop(a.actor, true)
	}
	if a.doom > 0 && n == a.doom && a.m.w.faulty() {
		go a.exit("killed") // the caller holds locks of its own
	}
}

// exit ends the process, and its machine knows it.
func (a *agentProcess) exit(detail string) {
	if a.stays {
		a.kill()
		return
	}
	a.m.host.Kill(a.id, detail)
}

// static runs an agent that nobody manages: whenever it dies it is started again after a while.
func (w *world) static(id, token string) {
	d := w.seed.dice("static " + id)
	for n := 1; !w.ending.Load(); n++ {
		a := &agentProcess{
			m: w.coordinators[0].machine, id: id, actor: fmt.Sprintf("%s/%d", id, n), stays: true,
			spec: backend.Spec{URL: fmt.Sprintf("ws://127.0.0.1:%d/ws", anyPort), Token: token, Labels: []string{staticLabel}},
		}
		w.mu.Lock()
		w.statics[id] = a
		w.mu.Unlock()
		w.trace.add("static %s starts", a.actor)
		a.run()
		time.Sleep(d.between(time.Second, 12*time.Second))
	}
}

// staticLabel is what only static agents have.
const staticLabel = "metal"

// hire starts the static agents.
func (p *person) hire() bool {
	for i := range p.w.plan.statics {
		a, err := p.insist(http.MethodPost, "/api/v1/agent-tokens", map[string]any{"labels": []string{staticLabel}}, nil)
		if err != nil || a.text("token") == "" {
			p.w.violate("harness", "make a token for a static agent: %v %d %v", err, a.status, a.body)
			return false
		}
		p.w.agents.Go(func() { p.w.static(fmt.Sprintf("static-%d", i+1), a.text("token")) })
	}
	return true
}

// kill is a SIGKILL: what it still does is seen by nobody.
func (a *agentProcess) kill() {
	if a.dead.Swap(true) {
		return
	}
	a.m.w.trace.add("agent %s dies", a.actor)
	a.m.w.net.kill(a.actor, true)
	a.mu.Lock()
	cancel := a.cancel
	for s := range a.scripts {
		s.die()
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (a *agentProcess) rand(n int64) int64 {
	return int64(a.m.w.seed.at(a.actor+" rand", a.rands.Add(1)) % uint64(n))
}

// serve is the real agent.
func (a *agentProcess) serve(ctx context.Context) error {
	w := a.m.w
	return agent.Main(ctx, agent.Config{
		URL: a.spec.URL, Token: a.spec.Token, AgentID: a.id, Labels: a.spec.Labels, Managed: !a.stays, Version: "sim",
		WorkDir: filepath.Join(w.dir, "agents", a.actor), JobHeartbeat: quick(10 * time.Second), ReconnectWindow: quick(40 * time.Second),
		HTTP: w.net.client(a.actor, a.sent), Now: time.Now, Log: w.trace.logger(a.actor, w.o.LogLevel), Rand: a.rand,
		Perform: func(c job.Config) agent.Performer { return newScript(a, c) },
	})
}
