package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store"
)

// Options of a schedule.
type Options struct {
	Seed         uint64
	Coordinators int    // 1 is one server with a file of its own; more share one
	Dir          string // for its files, on a fast disk; emptied afterwards
	Server       string // URL of a PostgreSQL server: the world is in real time and its database there (real.go)
	Verbose      *os.File
	LogLevel     slog.Level
}

// Result is what a schedule came to.
type Result struct {
	Seed       uint64
	Hash       uint64 // of the trace
	Events     int
	Virtual    time.Duration
	Real       time.Duration
	Violations []string
	Trace      []string // the last of it, when something was violated
	Stats      Stats
}

// Stats say how much a schedule has done.
type Stats struct{ Deliveries, Runs, Jobs, Agents, Commits, Crashes, Reasons, Placements, Asks, Dead int }

func (s Stats) plus(o Stats) Stats {
	return Stats{
		s.Deliveries + o.Deliveries, s.Runs + o.Runs, s.Jobs + o.Jobs, s.Agents + o.Agents, s.Commits + o.Commits, s.Crashes + o.Crashes, s.Reasons + o.Reasons,
		s.Placements + o.Placements, s.Asks + o.Asks, s.Dead + o.Dead,
	}
}

// world is one schedule.
type world struct {
	o     Options
	seed  seed
	dir   string
	plan  plan
	trace *trace
	net   *network
	watch *watch

	coordinators []*coordinator
	repos        map[string]*sourcetest.Fake
	commits      map[string][]string // by source
	postgres     *postgres           // nil in virtual time
	started      start               // of the workload
	settling     atomic.Bool
	ending       atomic.Bool
	paused       atomic.Bool  // a leader has been
	fullUntil    atomic.Int64 // since the trace began: the disk of the only server takes nothing
	lives        sync.WaitGroup
	agents       sync.WaitGroup
	others       sync.WaitGroup

	mu         sync.Mutex
	violations []string
	accepted   map[string]bool   // deliveries
	emitted    map[string]string // ids of events by idempotency key
	discarded  map[string]bool   // events
	statics    map[string]*agentProcess
	runs       map[string]string // run ids by idempotency key
}

// Run plays one seed. It must not be called by two goroutines at once.
func Run(t *testing.T, o Options) (r Result) {
	t.Helper()
	began := time.Now()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(o.Dir) }()
	if o.Server != "" {
		return inRealTime(t, o, began)
	}
	if err := makeTemplate(o.Dir); err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, o.Seed) // tokens and the ids of agents
	synctest.Test(t, func(*testing.T) {
		w := newWorld(o)
		w.play()
		r = w.result()
	})
	r.Real = time.Since(began)
	return r
}

func newWorld(o Options) *world {
	w := &world{
		o: o, seed: seed(o.Seed), dir: o.Dir, repos: map[string]*sourcetest.Fake{}, commits: map[string][]string{},
		accepted: map[string]bool{}, emitted: map[string]string{}, discarded: map[string]bool{}, statics: map[string]*agentProcess{}, runs: map[string]string{},
	}
	w.plan = newPlan(w.seed, max(1, o.Coordinators))
	if o.Server != "" {
		w.plan.inRealTime()
	}
	w.trace = &trace{began: time.Now()}
	if o.Verbose != nil {
		w.trace.out = o.Verbose
	}
	w.net, w.watch = newNetwork(w), newWatch(w)
	for i := range w.plan.coordinators {
		c := &coordinator{w: w, index: i, name: fmt.Sprintf("c%d", i+1), port: 4001 + i, machine: newMachine(w, fmt.Sprintf("m%d", i+1)), offer: w.plan.offer()}
		if w.plan.coordinators > 1 && !w.plan.calm {
			c.skew = w.seed.dice("skew "+c.name).between(-4*time.Second, 4*time.Second)
		}
		w.coordinators = append(w.coordinators, c)
	}
	for i := range w.plan.repos {
		name := fmt.Sprintf("repo%d", i+1)
		f := &sourcetest.Fake{}
		d := w.seed.dice("repo " + name)
		for range 2 {
			files := map[string]string{}
			for j := range 1 + d.below(3) {
				files[fmt.Sprintf(".kici/workflows/w%d.yaml", j)] = workflow(d, fmt.Sprintf("w%d", j), w.plan.statics > 0)
			}
			if d.chance(40) {
				files[".kici/workflows/after.yaml"] = after
			}
			if d.chance(40) {
				files[".kici/workflows/tick.yaml"] = tick
			}
			if d.chance(80) {
				files[".kici/workflows/heard.yaml"] = heard
			}
			if d.chance(70) {
				files[".kici/workflows/heard-too.yaml"] = strings.Replace(heard, "name: heard", "name: heard-too", 1)
			}
			files[".kici/workflows/steady.yaml"] = steady
			w.commits[name] = append(w.commits[name], f.Commit("refs/heads/main", "a commit", files))
		}
		w.repos[name] = f
	}
	return w
}

// play is the whole schedule.
func (w *world) play() {
	defer w.end()
	if err := w.prepare(); err != nil {
		w.violate("harness", "prepare: %v", err)
		return
	}
	for _, c := range w.coordinators {
		w.others.Go(c.run)
	}
	stop := make(chan struct{})
	w.others.Go(func() { w.sample(stop) })
	w.settle(w.work())
	close(stop)
}

// prepare lays out the files of every coordinator.
func (w *world) prepare() error {
	for _, c := range w.coordinators {
		dir := filepath.Join(w.dir, c.name+".0")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		id := w.instanceID(c)
		for name, text := range map[string]string{"instance_id": id + "\n", scalersFile: w.plan.offer().text()} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
		into := filepath.Join(dir, store.FileName)
		if w.postgres != nil {
			if err := os.MkdirAll(filepath.Join(w.dir, "blobs"), 0o700); err != nil {
				return err
			}
			continue
		}
		if w.plan.coordinators > 1 {
			into = filepath.Join(w.sharedDir(), store.FileName)
			if err := errors.Join(os.MkdirAll(w.sharedDir(), 0o700), os.MkdirAll(filepath.Join(w.dir, "blobs"), 0o700)); err != nil {
				return err
			}
		}
		if err := copyFile(filepath.Join(w.dir, templateName), into); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) instanceID(c *coordinator) string {
	return uuid7(w.trace.began.UnixMilli(), uint64(c.index), w.seed.at("instance "+c.name, 0))
}

func (w *world) sharedDir() string { return filepath.Join(w.dir, "db") }

// ledgerDir has the machine pools of the one machine on which all servers are.
func (w *world) ledgerDir() string { return filepath.Join(w.dir, "machine") }

// agentPort is where agents of a coordinator's node connect: there, or at a balancer.
func (w *world) agentPort(c *coordinator) int {
	if w.plan.coordinators > 1 && w.seed.at("balanced "+c.name, 0)%2 == 0 {
		return anyPort
	}
	return c.port
}

// database is the path of what is committed.
func (w *world) database() string {
	if w.plan.coordinators > 1 {
		return filepath.Join(w.sharedDir(), store.FileName)
	}
	c := w.coordinators[0]
	if l := c.current(); l != nil {
		return filepath.Join(l.dir, store.FileName)
	}
	return ""
}

// faulty reports whether things may break now.
func (w *world) faulty() bool {
	return !w.plan.calm && !w.settling.Load() && !w.started.pending() && w.started.since() < w.plan.faultsFor
}

// latency is how long the n-th thing of a way takes.
func (w *world) latency(way string, n uint64) time.Duration {
	h := w.seed.at(way, n)
	d := 40*time.Microsecond + time.Duration(h%400_000)
	if w.faulty() && h>>32%100 == 0 {
		d += upTo(h>>40, 3*time.Second)
	}
	return d
}

// later does something after a while, unless ctx ends or faults are over before.
func (w *world) later(ctx context.Context, d time.Duration, do func()) {
	w.others.Go(func() {
		if service.Sleep(ctx, d) == nil && w.faulty() {
			do()
		}
	})
}

func (w *world) violate(what, format string, args ...any) {
	text := what + ": " + fmt.Sprintf(format, args...)
	w.mu.Lock()
	if len(w.violations) < 20 {
		w.violations = append(w.violations, text)
	}
	w.mu.Unlock()
	w.trace.note("VIOLATION %s", text)
}

// end stops everything and waits until nothing runs.
func (w *world) end() {
	w.settling.Store(true)
	w.ending.Store(true)
	for _, c := range w.coordinators {
		if l := c.current(); l != nil {
			l.cancel()
		}
		c.machine.clear()
	}
	for _, a := range w.present() {
		a.kill()
	}
	w.others.Wait()
	w.lives.Wait()
	w.agents.Wait()
	w.watch.close()
}

// present are the processes of the static agents.
func (w *world) present() []*agentProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.statics))
}

func (w *world) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Result{
		Seed: w.o.Seed, Hash: w.trace.sum(), Events: w.trace.count, Virtual: time.Since(w.trace.began), Violations: w.violations, Stats: w.watch.stats(),
	}
	if len(w.violations) > 0 {
		r.Trace = w.trace.last(keptLines)
	}
	return r
}

// openSource gives a life the repository in memory.
func (w *world) openSource(l *life, c source.Config) (source.Source, error) {
	f := w.repos[c.Name]
	if f == nil {
		return nil, fmt.Errorf("there is no repository %s", c.Name)
	}
	f.Configure(c, "main")
	return &repository{Fake: f, w: w, name: l.actor + " " + c.Name}, nil
}

// repository is a Fake that is not always there.
type repository struct {
	*sourcetest.Fake
	w    *world
	name string
	n    atomic.Uint64
}

// Files implements source.Source.
func (r *repository) Files(ctx context.Context, sha string) ([]source.File, error) {
	h := r.w.seed.at("files "+r.name, r.n.Add(1))
	wait := time.Millisecond + upTo(h, 5*time.Millisecond)
	if r.w.faulty() && h>>42%100 < 6 {
		wait = quick(15*time.Second) + upTo(h, 25*time.Second)
	}
	if err := service.Sleep(ctx, wait); err != nil {
		return nil, err
	}
	if r.w.faulty() && h>>32%100 < 10 {
		return nil, fmt.Errorf("the repository is down: %w", source.ErrUnreachable)
	}
	return r.Fake.Files(ctx, sha)
}

// Resolve implements source.Source.
func (r *repository) Resolve(ctx context.Context, ref string) (source.Commit, error) {
	h := r.w.seed.at("resolve "+r.name, r.n.Add(1))
	if err := service.Sleep(ctx, time.Millisecond+upTo(h, 5*time.Millisecond)); err != nil {
		return source.Commit{}, err
	}
	if r.w.faulty() && h>>32%100 < 25 {
		return source.Commit{}, fmt.Errorf("the repository is down: %w", source.ErrUnreachable)
	}
	return r.Fake.Resolve(ctx, ref)
}
