package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/app"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
)

// coordinator is a place where a server runs, dies and starts again.
type coordinator struct {
	w       *world
	index   int
	name    string
	port    int
	skew    time.Duration // of its clock
	machine *machine

	mu    sync.Mutex
	life  *life // the present one; nil between two
	offer offer // what its scalers.yaml says
}

// life is one process of a coordinator, from its start to its end.
type life struct {
	c     *coordinator
	n     int
	actor string
	dir   string
	doom  doom

	dead   atomic.Bool
	cancel context.CancelFunc
	over   chan struct{} // closed when the process is gone, however
	once   sync.Once
	server *app.Server
	ready  atomic.Bool
	pause  atomic.Pointer[pause]

	commits, sends, ids, wakes, publishes atomic.Uint64

	mu     sync.Mutex
	parts  map[int]uint64    // wake-ups of each subscriber
	places map[uint64]uint64 // calls of each place of the program
}

// doom says where a life ends by itself.
type doom struct {
	commit uint64        // at its n-th commit; 0 is never
	before bool          // just before it instead of just after
	hang   time.Duration // … after the disk has let it wait for so long
	send   uint64        // at its n-th write to the network
	loud   bool          // its connections are reset, instead of falling silent as with the machine
}

func (d doom) String() string {
	switch {
	case d.commit > 0 && d.before:
		return fmt.Sprintf("before commit %d", d.commit)
	case d.commit > 0:
		return fmt.Sprintf("after commit %d", d.commit)
	case d.send > 0:
		return fmt.Sprintf("at send %d", d.send)
	}
	return "none"
}

var (
	errDead      = errors.New("the process is dead")
	errPartition = errors.New("the database cannot be reached")
	errDisk      = errors.New("the disk is full")
	errUnknown   = errors.New("the connection broke during the commit")
)

// isFault reports whether an error is of our own making, however late it comes.
func isFault(err error) bool {
	return errors.Is(err, errDead) || errors.Is(err, errPartition) || errors.Is(err, errDisk) || errors.Is(err, errUnknown)
}

// run lives one life after the other until the world ends.
func (c *coordinator) run() {
	from := filepath.Join(c.w.dir, c.name+".0")
	for n := 1; !c.w.ending.Load(); n++ {
		l := &life{c: c, n: n, actor: fmt.Sprintf("%s.%d", c.name, n), over: make(chan struct{}), parts: map[int]uint64{}, places: map[uint64]uint64{}}
		l.dir = filepath.Join(c.w.dir, l.actor)
		l.doom = c.w.plan.doom(c.w, l)
		if err := copyDir(from, l.dir); err != nil {
			c.w.violate("harness", "copy data: %v", err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		l.cancel = cancel
		c.mu.Lock()
		c.life = l
		err := l.writeScalers()
		c.mu.Unlock()
		if err != nil {
			c.w.violate("harness", "write scalers: %v", err)
		}
		c.w.trace.add("start %s doom %s", l.actor, l.doom)
		c.w.lives.Go(func() {
			defer cancel()
			err := l.live(ctx)
			c.w.trace.note("end %s dead %v", l.actor, l.dead.Load())
			if err != nil {
				c.w.trace.note("%s ended: %v", l.actor, err)
			}
			if err != nil && !l.dead.Load() && !c.w.faulty() && !isFault(err) {
				c.w.violate("server", "%s ended by itself: %v", l.actor, err)
			}
			l.finish()
		})
		<-l.over
		c.mu.Lock()
		c.life = nil
		c.mu.Unlock()
		from = l.dir
		if l.dead.Load() {
			from = l.dir + ".image"
		}
		if c.w.ending.Load() {
			return
		}
		time.Sleep(c.w.seed.dice("restart "+l.actor).between(200*time.Millisecond, 15*time.Second))
	}
}

func (l *life) finish() { l.once.Do(func() { close(l.over) }) }

// crash ends the process here and now: nothing that it still does reaches a disk that counts, a wire or a machine. It may be called by
// any goroutine of it, and does not wait.
func (l *life) crash(why string) {
	if l.dead.Swap(true) {
		return
	}
	l.c.w.trace.add("crash %s %s", l.actor, why)
	l.c.w.watch.crashed()
	if err := copyDir(l.dir, l.dir+".image"); err != nil {
		l.c.w.violate("harness", "take image: %v", err)
	}
	l.c.w.net.kill(l.actor, l.doom.loud)
	l.cancel()
	l.finish()
}

// live runs the server.
func (l *life) live(ctx context.Context) error {
	s, err := app.NewServer(ctx, l.options())
	if err != nil {
		return fmt.Errorf("new server: %w", err)
	}
	l.server = s
	go func() {
		select {
		case <-s.Started():
			l.ready.Store(true)
			l.c.w.trace.add("ready %s", l.actor)
		case <-ctx.Done():
		}
	}()
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("run server: %w", err)
	}
	return nil
}

func (l *life) options() app.Options {
	w := l.c.w
	storage := ""
	if w.plan.coordinators > 1 {
		storage = filepath.Join(w.dir, "blobs")
	}
	rnd := func(n int64) int64 { return int64(w.seed.at(l.actor+" rand", l.wakes.Add(1)) % uint64(n)) }
	return app.Options{
		DatabaseURL: w.postgres.address(), DataDir: l.dir, StorageDir: storage, Port: l.c.port, PublicURL: fmt.Sprintf("http://127.0.0.1:%d", l.c.port), OnStop: app.OnStopKeep,
		AgentURL: fmt.Sprintf("ws://127.0.0.1:%d/ws", w.agentPort(l.c)), ScalerConfig: filepath.Join(l.dir, scalersFile), MachineLedgerDir: w.ledgerDir(), AllowRoot: true,
		Executable: "/sim/kici", SecretKey: strings.Repeat("ab", 32), AdminToken: adminToken, ClusterName: "sim",
		Tune: tune, Log: w.trace.logger(l.actor, w.o.LogLevel), Now: l.now, NewID: l.newID,
		StoreHooks: func(c *store.Config) {
			c.Unsynced, c.Faults = true, l.faults()
			if w.plan.coordinators > 1 && w.postgres == nil {
				c.Dir, c.Now = w.sharedDir(), w.databaseNow
			}
		},
		Outside: app.Outside{
			Listen:  func(context.Context) (net.Listener, error) { return w.net.listen(l, l.c.port), nil },
			Kinds:   []backend.Kind{l.c.machine.kind(l)},
			Sources: map[string]ingress.Factory{"local": func(c source.Config) (source.Source, error) { return w.openSource(l, c) }},
			Rand:    rnd,
		},
	}
}

func (l *life) now() time.Time { return l.pause.Load().clock(time.Now()).Add(l.c.skew) }

// pause is a time in which a process did not run and its clock stood still, as that of a virtual machine that is moved to another
// host. Afterwards the clock is behind for some time.
type pause struct{ from, until, corrected time.Time }

func (p *pause) clock(now time.Time) time.Time {
	switch {
	case p == nil || !now.Before(p.corrected):
		return now
	case now.Before(p.until):
		return p.from
	}
	return now.Add(-p.until.Sub(p.from))
}

// lead comes before every leader write. Some come late, so that what they were decided on has changed. One leader is paused in the
// middle of it, so that another has followed it when it goes on.
func (l *life) lead() {
	w := l.c.w
	if h := l.callOf("lead"); w.faulty() && h>>16%7 == 0 {
		time.Sleep(upTo(h>>30, 3*time.Second))
	}
	if w.plan.pause == 0 || w.started.pending() || !w.faulty() || w.started.since() < w.plan.pauseAt || w.paused.Swap(true) {
		return
	}
	now := time.Now()
	l.pause.Store(&pause{from: now, until: now.Add(w.plan.pause), corrected: now.Add(w.plan.pause + 4*time.Second)})
	w.trace.add("pause %s for %s", l.actor, w.plan.pause)
	w.net.stall(l.actor, w.plan.pause)
}

// wait is for the end of a pause. What was in the middle of something goes on a little sooner or later.
func (p *pause) wait(ctx context.Context, h uint64) error {
	if p == nil || !time.Now().Before(p.until) {
		return nil
	}
	return service.Sleep(ctx, time.Until(p.until)+upTo(h, time.Second))
}

// newID is a UUIDv7 of the life's own clock and chance.
func (l *life) newID() string {
	n := l.ids.Add(1)
	h := l.c.w.seed.at(l.actor+" id", n)
	return uuid7(l.now().UnixMilli(), n, h)
}

func uuid7(ms int64, n, h uint64) string {
	return fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", uint64(ms)>>16, uint64(ms)&0xffff, n&0xfff, 0x8000|h>>50, h&0xffffffffffff)
}

// sent comes before everything that this process writes to the network.
func (l *life) sent() {
	if n := l.sends.Add(1); n == l.doom.send && !l.c.w.settling.Load() {
		l.crash("at a send")
	}
}

func (l *life) faults() store.Faults {
	w := l.c.w
	f := store.Faults{Lead: l.lead, Enter: l.enter, Commit: l.commit, Committed: l.committed, Wake: l.wake}
	if w.plan.coordinators > 1 && w.postgres == nil {
		f.Publish = l.publish
	}
	return f
}

// enter is the way to the database.
func (l *life) enter(ctx context.Context) error {
	w := l.c.w
	if l.dead.Load() {
		return errDead
	}
	if until := w.plan.partition(w, l); time.Now().Before(until) {
		if err := service.Sleep(ctx, min(time.Until(until), 5*time.Second)); err != nil {
			return err
		}
		if time.Now().Before(until) {
			return errPartition
		}
	}
	h := l.callOf("enter")
	if err := l.pause.Load().wait(ctx, h>>7); err != nil {
		return err
	}
	d := 5*time.Microsecond + time.Duration(h%60_000)
	if w.faulty() && h>>32%w.plan.slowOneIn == 0 {
		d += upTo(h>>40, 2*time.Second)
		defer l.dieOf(h)
	}
	time.Sleep(d)
	if l.dead.Load() {
		return errDead
	}
	return nil
}

// dieOf ends the process in some of the calls that take long: nobody may have been told of what they were to write.
func (l *life) dieOf(h uint64) {
	if l.n < 6 && h>>20%6 == 0 {
		l.crash("in a slow call")
	}
}

// callOf is the chance of this call of its place in the program: whichever of two that come at the same instant is first (timers of
// one instant fire in any order), each has its own.
func (l *life) callOf(what string) uint64 {
	var pcs [24]uintptr
	place := uint64(0)
	for _, pc := range pcs[:runtime.Callers(3, pcs[:])] {
		place = mix(place ^ uint64(pc))
	}
	l.mu.Lock()
	l.places[place]++
	n := l.places[place]
	l.mu.Unlock()
	return mix(l.c.w.seed.at(l.actor+what, n) ^ place)
}

func (l *life) commit(terms []int64) error {
	if l.dead.Load() {
		return errDead
	}
	n := l.commits.Add(1)
	if l.doomed(n) && l.doom.before {
		time.Sleep(l.doom.hang)
		l.crash("before a commit")
		return errDead
	}
	if w := l.c.w; w.plan.full(w, l) {
		w.trace.add("commit %s %d fails", l.actor, n)
		return errDisk
	}
	l.c.w.watch.fence(l, terms)
	return nil
}

// doomed reports whether the n-th commit is the last of this life.
func (l *life) doomed(n uint64) bool { return n == l.doom.commit && !l.c.w.settling.Load() }

func (l *life) committed(terms []int64) error {
	w := l.c.w
	n := l.commits.Load()
	w.trace.add("commit %s %d", l.actor, n)
	w.watch.committed(l, terms)
	if l.doomed(n) && !l.doom.before {
		l.crash("after a commit")
		return errDead
	}
	h := w.seed.at(l.actor+" commit", n)
	time.Sleep(20*time.Microsecond + time.Duration(h%300_000))
	if w.plan.coordinators > 1 && w.faulty() && h>>40%150 == 0 {
		w.trace.add("ambiguous %s %d", l.actor, n)
		return errUnknown
	}
	return nil
}

// wake delivers a wake-up to one subscriber.
func (l *life) wake(t store.Topic, _ string, subscriber int, deliver func()) {
	w := l.c.w
	l.mu.Lock()
	l.parts[subscriber]++
	n := l.parts[subscriber]
	l.mu.Unlock()
	h := w.seed.at(fmt.Sprintf("%s wake %s %d", l.actor, t, subscriber), n)
	d := time.Microsecond + time.Duration(h%50_000)
	if w.faulty() {
		switch h >> 20 % 100 {
		case 0, 1, 2, 3, 4, 5, 6, 7: // lost
			return
		case 8, 9, 10, 11:
			d += upTo(h>>30, 3*time.Second)
		case 12, 13, 14: // twice
			time.AfterFunc(d+upTo(h>>30, time.Second), deliver)
		}
	}
	time.AfterFunc(d, deliver)
}

// publish carries a notification to the other coordinators.
func (l *life) publish(t store.Topic, key string) {
	w := l.c.w
	n := l.publishes.Add(1)
	for _, c := range w.coordinators {
		if c == l.c {
			continue
		}
		h := w.seed.at(l.actor+" publish "+c.name, n)
		if w.faulty() && h%100 < 5 {
			continue
		}
		time.AfterFunc(50*time.Microsecond+time.Duration(h%400_000), func() {
			if other := c.current(); other != nil && other.ready.Load() && !other.dead.Load() {
				other.server.Store().Receive(t, key)
			}
		})
	}
}

func (c *coordinator) current() *life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
}

// copyDir copies the files that a process would find after a restart.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		into := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(into, 0o700)
		}
		if rel == "server.lock" || strings.HasSuffix(rel, "-shm") || !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		return os.WriteFile(into, data, 0o600)
	})
}
