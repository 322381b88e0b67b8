package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	discard = slog.New(slog.DiscardHandler)
	env     = service.Env{Now: time.Now, NewID: ci.NewID}
)

// candidate is a leader that runs until it is stopped.
type candidate struct {
	*Leader
	stop func()
}

func campaign(t *testing.T, l *Leader) *candidate {
	t.Helper()
	return &candidate{l, runLoop(t, l.Run)}
}

// runLoop runs a loop until it is stopped, at the latest at the end of the test.
func runLoop(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func leads(l *candidate) bool {
	_, leading := l.Term()
	return leading
}

// inBubble runs fn in virtual time with one SQLite store.
func inBubble(t *testing.T, fn func(t *testing.T, st *store.Store)) {
	t.Helper()
	storetest.SQLiteDatabase(t) // makes the template outside
	synctest.Test(t, func(t *testing.T) { fn(t, storetest.SQLite(t)) })
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLeaderKeepsItsTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		l := campaign(t, NewLeader(st, "one", env, discard))
		wait(time.Second)
		first, leading := l.Term()
		if !leading || first != 1 {
			t.Fatalf("term %d, leading %v", first, leading)
		}
		changed := l.Changed()
		for range 1000 { // more than an hour
			wait(4 * time.Second)
			if term, leading := l.Term(); term != first || !leading {
				t.Fatalf("term %d, leading %v", term, leading)
			}
		}
		select {
		case <-changed:
			t.Error("renewing is no change")
		default:
		}
	})
}

// A restart of the same instance does not wait for its own old lease.
func TestRestartTakesNewTermAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		old := NewLeader(st, "one", env, discard)
		if _, err := old.campaign(t.Context()); err != nil { // and dies
			t.Fatal(err)
		}
		l := campaign(t, NewLeader(st, "one", env, discard))
		wait(time.Millisecond)
		if term, leading := l.Term(); term != 2 || !leading {
			t.Errorf("term %d, leading %v", term, leading)
		}
		err := st.Lead(t.Context(), 1, func(*store.Tx) error { return nil })
		if !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("the old life still writes: %v", err)
		}
	})
}

// On SQLite whoever starts leads. The older object is fenced at once and does not fight back while the newer one renews.
func TestNewestServerOfAFileLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		one := campaign(t, NewLeader(st, "one", env, discard))
		wait(time.Second)
		two := campaign(t, NewLeader(st, "two", env, discard))
		wait(time.Millisecond)
		if leads(one) || !leads(two) {
			t.Errorf("one leads %v, two leads %v", leads(one), leads(two))
		}
		for range 100 {
			wait(time.Second)
			if leads(one) || !leads(two) {
				t.Fatalf("one leads %v, two leads %v", leads(one), leads(two))
			}
		}
		two.stop()
		wait(time.Millisecond)
		if term, leading := one.Term(); !leading || term != 3 {
			t.Errorf("released, but term %d, leading %v", term, leading)
		}
	})
}

func TestXC99LeaderWithoutStoreStopsInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		l := campaign(t, NewLeader(st, "one", env, discard))
		wait(time.Second)
		ended := make(chan time.Time, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		duties := make(chan error, 1)
		go func() {
			duties <- l.While(ctx, func(ctx context.Context, term int64) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), store.ErrNotLeader) {
					t.Error(context.Cause(ctx))
				}
				ended <- time.Now()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		lost := time.Now()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		wait(LeaseLife)
		if leads(l) {
			t.Error("still leads after the lease")
		}
		select {
		case at := <-ended:
			if took := at.Sub(lost); took >= LeaseLife {
				t.Errorf("duties ran for %s", took)
			}
		default:
			t.Error("duties still run")
		}
		cancel()
		if err := <-duties; err != nil {
			t.Error(err)
		}
	})
}

// While runs a duty once a term, again after a failure, and never two at once.
func TestWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, st *store.Store) {
		l := campaign(t, NewLeader(st, "one", env, discard))
		ctx, cancel := context.WithCancel(t.Context())
		var terms []int64
		running := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.While(ctx, func(ctx context.Context, term int64) error {
				running++
				defer func() { running-- }()
				if running > 1 {
					t.Error("two at once")
				}
				terms = append(terms, term)
				if len(terms) == 1 {
					return errors.New("first try fails")
				}
				<-ctx.Done()
				return nil
			})
		}()
		wait(5 * time.Second)
		other := NewLeader(st, "two", env, discard)
		if _, err := other.campaign(t.Context()); err != nil { // takes the term, never renews
			t.Fatal(err)
		}
		wait(LeaseLife + time.Second)
		cancel()
		<-done
		if len(terms) != 3 || terms[0] != 1 || terms[1] != 1 || terms[2] != 3 {
			t.Errorf("ran in terms %v", terms)
		}
	})
}

// fast is a leader with a lease short enough for real time, and long enough that a busy machine renews it.
func fast(st *store.Store, id string) *Leader {
	l := NewLeader(st, id, env, discard)
	l.life, l.renew, l.margin = 5*time.Second, 500*time.Millisecond, 300*time.Millisecond
	return l
}

func eventually(t *testing.T, what string, fn func() bool) {
	t.Helper()
	for range 6000 {
		if fn() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func TestTwoLeadersOnPostgreSQL(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	oneStore, twoStore := d.Open(t), d.Open(t)
	one := campaign(t, fast(oneStore, "one"))
	eventually(t, "one leads", func() bool { return leads(one) })
	two := campaign(t, fast(twoStore, "two"))
	for range 100 {
		if leads(two) {
			t.Fatal("two leads beside one")
		}
		time.Sleep(10 * time.Millisecond)
	}
	one.stop() // releases, so two need not wait
	eventually(t, "two leads", func() bool { return leads(two) })
	if term, _ := two.Term(); term != 2 {
		t.Errorf("term %d", term)
	}
}

// XC-100: a leader that is paused for longer than its lease finds its term refused, and believes in it no longer.
func TestXC100PausedLeader(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	oneStore, twoStore := d.Open(t), d.Open(t)
	one := fast(oneStore, "one")
	if _, err := one.campaign(t.Context()); err != nil { // leads, and never renews
		t.Fatal(err)
	}
	term, leading := one.Term()
	if !leading {
		t.Fatal("one does not lead")
	}
	two := campaign(t, fast(twoStore, "two"))
	eventually(t, "two leads", func() bool { return leads(two) })
	if _, still := one.Term(); still {
		t.Error("the paused leader believes in its lease")
	}
	if err := oneStore.Lead(t.Context(), term, func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("the paused leader wrote: %v", err)
	}
	if _, err := one.campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, leading := one.Term(); leading {
		t.Error("two lead")
	}
}

// Many candidates, of which one is stopped again and again: never two terms at once, never the same term twice.
func TestElections(t *testing.T) {
	storetest.EachDatabase(t, func(t *testing.T, d *storetest.Database) {
		st := d.Open(t)
		seen := map[int64]string{}
		for round := range 3 {
			var all []*candidate
			for _, id := range []string{"a", "b", "c"} {
				all = append(all, campaign(t, fast(st, id)))
			}
			var leader *candidate
			eventually(t, "one leads", func() bool {
				leader = nil
				for _, c := range all {
					if leads(c) {
						leader = c
					}
				}
				return leader != nil
			})
			term, _ := leader.Term()
			if by, twice := seen[term]; twice {
				t.Errorf("round %d: term %d of %s was %s's before", round, term, leader.id, by)
			}
			seen[term] = leader.id
			for _, c := range all {
				c.stop()
			}
		}
	})
}

// XC-81: a node whose clock is wrong by minutes neither steals the lease nor calls anybody dead.
func TestXC81WrongClocks(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	st := d.Open(t)
	one := campaign(t, fast(st, "one"))
	eventually(t, "one leads", func() bool { return leads(one) })
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		wrong := fast(st, "wrong")
		wrong.env.Now = func() time.Time { return time.Now().Add(off) }
		c := campaign(t, wrong)
		for range 80 {
			time.Sleep(10 * time.Millisecond)
			if leads(c) || !leads(one) {
				t.Fatalf("clock off by %s: one leads %v, wrong leads %v", off, leads(one), leads(c))
			}
		}
		c.stop()
	}
	i := NewInstance(st, Info{InstanceID: "one"}, discard)
	if err := i.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := row(t, st); time.Since(time.UnixMilli(r.HeartbeatAt)).Abs() > time.Minute {
		t.Errorf("heartbeat at %d", r.HeartbeatAt)
	}
}

func TestReplaceable(t *testing.T) {
	const now = int64(10_000_000)
	self := db.ClusterInstance{InstanceID: "one", ReadyAt: 1, HeartbeatAt: now, Draining: true}
	two := db.ClusterInstance{InstanceID: "two", ReadyAt: 1, HeartbeatAt: now - 12_000}
	for name, c := range map[string]struct {
		change func(self, two *db.ClusterInstance)
		want   bool
	}{
		"another is there":         {func(*db.ClusterInstance, *db.ClusterInstance) {}, true},
		"it does not drain":        {func(self, _ *db.ClusterInstance) { self.Draining = false }, false},
		"the other drains too":     {func(_, two *db.ClusterInstance) { two.Draining = true }, false},
		"the other only starts":    {func(_, two *db.ClusterInstance) { two.ReadyAt = 0 }, false},
		"the other is silent":      {func(_, two *db.ClusterInstance) { two.HeartbeatAt = now - 20_000 }, false},
		"the other has stopped":    {func(_, two *db.ClusterInstance) { two.HeartbeatAt = 0 }, false},
		"its own row is not there": {func(self, _ *db.ClusterInstance) { self.InstanceID = "old" }, false},
	} {
		a, b := self, two
		c.change(&a, &b)
		if got := replaceable([]db.ClusterInstance{a, b}, "one", now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// up makes an instance that is there and ready.
func up(t *testing.T, st *store.Store, id string) *Instance {
	t.Helper()
	i := NewInstance(st, Info{InstanceID: id, Name: id}, discard)
	if err := errors.Join(i.Start(t.Context()), i.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	return i
}

// A leader that drains leaves leading to another at once, takes it back when nobody is left, and leads on alone.
func TestDrainingLeaderHandsOver(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	oneStore, twoStore := d.Open(t), d.Open(t)
	long := func(st *store.Store, id string) *candidate { // so long that nothing here happens by waiting
		l := NewLeader(st, id, env, discard)
		l.life, l.renew = time.Hour, 20*time.Minute
		return campaign(t, l)
	}
	up(t, oneStore, "one")
	one := long(oneStore, "one")
	eventually(t, "one leads", func() bool { return leads(one) })
	dir := NewDirectory(oneStore, "one")
	drain := func(id string, on bool) {
		t.Helper()
		if _, err := dir.Drain(t.Context(), DrainRequest{Target: id, Drain: on}); err != nil {
			t.Fatal(err)
		}
	}
	drain("one", true)
	time.Sleep(50 * time.Millisecond) // it has looked, and there is nobody
	if !leads(one) {
		t.Fatal("nobody leads")
	}
	drain("one", false)
	up(t, twoStore, "two")
	two := long(twoStore, "two")
	drain("one", true)
	eventually(t, "two leads", func() bool { return leads(two) && !leads(one) })
	if term, _ := two.Term(); term != 2 {
		t.Errorf("term %d", term)
	}
	two.stop() // without saying good-bye: its row looks alive
	time.Sleep(50 * time.Millisecond)
	if leads(one) {
		t.Error("who drains took the lease while another looked alive")
	}
}

// When nobody takes what a draining leader left, it leads on after a life of the lease, and does not try again soon.
func TestNobodyTakesOver(t *testing.T) {
	d := storetest.PostgreSQLDatabase(t)
	st := d.Open(t)
	up(t, st, "one")
	up(t, st, "two") // and dies at once
	l := NewLeader(st, "one", env, discard)
	clock := time.Now()
	l.env.Now = func() time.Time { return clock }
	try := func() bool {
		t.Helper()
		if _, err := l.campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, leading := l.Term()
		return leading
	}
	if !try() {
		t.Fatal("it does not lead")
	}
	if _, err := NewDirectory(st, "one").Drain(t.Context(), DrainRequest{Drain: true}); err != nil {
		t.Fatal(err)
	}
	if try() {
		t.Fatal("it does not stand back")
	}
	clock = clock.Add(LeaseLife / 2)
	if try() {
		t.Error("it took the lease back at once")
	}
	for _, later := range []time.Duration{LeaseLife, LeaseLife, LeaseLife} {
		clock = clock.Add(later)
		if !try() {
			t.Errorf("nobody leads, %s later", later)
		}
	}
	clock = clock.Add(ci.InstanceTimeout)
	if try() {
		t.Error("it never stands back again")
	}
}
