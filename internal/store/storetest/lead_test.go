package storetest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/store"
)

// takeOver raises the term, as a new leader does.
func takeOver(ctx context.Context, s *store.Store) (term int64, err error) {
	err = s.Write(ctx, func(tx *store.Tx) error {
		if err := tx.SeedLeaderTerm(ctx); err != nil {
			return err
		}
		term, err = tx.TakeLeaderTerm(ctx)
		return err
	})
	return term, err
}

func TestXC100OldTermIsRefused(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		lead := func(term int64, org string) error { return s.Lead(ctx, term, addOrg(ctx, org)) }
		for _, term := range []int64{0, -1, 1} {
			if err := lead(term, "nobody leads"); !errors.Is(err, store.ErrNotLeader) {
				t.Errorf("term %d before any leader: %v", term, err)
			}
		}
		first, err := takeOver(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := lead(first, "first"); err != nil {
			t.Error(err)
		}
		second, err := takeOver(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := lead(first, "old term"); !errors.Is(err, store.ErrNotLeader) {
			t.Error(err)
		}
		if err := lead(second, "second"); err != nil {
			t.Error(err)
		}
		if ids := orgIDs(t, s); len(ids) != 2 {
			t.Error(ids)
		}
	})
}

// D29: a takeover may not commit between a leader's check of its term and its commit. Reading the term without a lock
// passes every other test and fails this one.
func TestTakeoverWaitsForLeaderWrite(t *testing.T) {
	s := PostgreSQLDatabase(t).Open(t) // SQLite has one writer
	ctx := t.Context()
	term, err := takeOver(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	took := make(chan error, 1)
	if err := s.Lead(ctx, term, func(tx *store.Tx) error {
		go func() {
			_, err := takeOver(ctx, s)
			took <- err
		}()
		select {
		case err := <-took:
			t.Errorf("a takeover committed in the middle of a leader write (%v)", err)
			took <- err
		case <-time.After(300 * time.Millisecond):
		}
		return tx.InsertOrg(ctx, "of the old term", 1)
	}); err != nil {
		t.Error(err)
	}
	if err := <-took; err != nil {
		t.Error(err)
	}
	if err := s.Lead(ctx, term, addOrg(ctx, "late")); !errors.Is(err, store.ErrNotLeader) {
		t.Error(err)
	}
}

// The other way round: a leader write that begins during a takeover waits for it and is refused.
func TestLeaderWriteWaitsForTakeover(t *testing.T) {
	s := PostgreSQLDatabase(t).Open(t) // SQLite has one writer
	ctx := t.Context()
	term, err := takeOver(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	write(t, s, func(tx *store.Tx) error {
		if _, err := tx.TakeLeaderTerm(ctx); err != nil {
			return err
		}
		go func() { wrote <- s.Lead(ctx, term, addOrg(ctx, "late")) }()
		select {
		case err := <-wrote:
			t.Errorf("a leader write ended during the takeover: %v", err)
			wrote <- err
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	})
	if err := <-wrote; !errors.Is(err, store.ErrNotLeader) {
		t.Error(err)
	}
}

func TestNotifyAcrossProcesses(t *testing.T) {
	d := PostgreSQLDatabase(t)
	one, two := d.Open(t), d.Open(t)
	waitListening(t, two)
	sub := two.Subscribe(store.TopicRuns, "r")
	write(t, one, func(tx *store.Tx) error { tx.Notify(store.TopicRuns, "r"); return nil })
	waitSignal(t, sub)
}

func TestXC33ListenerReconnects(t *testing.T) {
	d := PostgreSQLDatabase(t)
	one, two := d.Open(t), d.Open(t)
	waitListening(t, two)
	sub := two.Subscribe(store.TopicRuns, "r")
	if err := administer(d.Config.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE 'LISTEN%'`); err != nil {
		t.Fatal(err)
	}
	waitSignal(t, sub) // something may have been missed
	waitListening(t, two)
	if two.Stats().Reconnects == 0 {
		t.Error("no reconnect was counted")
	}
	write(t, one, func(tx *store.Tx) error { tx.Notify(store.TopicRuns, "r"); return nil })
	waitSignal(t, sub)
}

// XC-141: connections that the server has closed are replaced without an error to anybody.
func TestXC141LostConnections(t *testing.T) {
	d := PostgreSQLDatabase(t)
	s := d.Open(t)
	ctx := t.Context()
	write(t, s, addOrg(ctx, "before"))
	attempts := 0
	write(t, s, func(tx *store.Tx) error {
		attempts++
		if attempts == 1 {
			if err := administer(d.Config.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
				t.Error(err)
			}
		}
		return tx.InsertOrg(ctx, "during", 1)
	})
	if attempts < 2 {
		t.Errorf("%d attempts", attempts)
	}
	var wg sync.WaitGroup
	for range 10 { // many open connections
		wg.Go(func() { write(t, s, func(tx *store.Tx) error { time.Sleep(50 * time.Millisecond); return nil }) })
	}
	wg.Wait()
	for range 3 {
		if err := administer(d.Config.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Error(err)
		}
		for range 3 {
			if _, err := s.Read().Orgs(ctx); err != nil {
				t.Errorf("read: %v", err)
			}
			if _, err := s.Read().ClusterMeta(ctx, "none"); !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("read one: %v", err)
			}
			if err := s.Snapshot(ctx, func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("snapshot: %v", err)
			}
			if err := s.Ping(ctx); err != nil {
				t.Errorf("ping: %v", err)
			}
		}
	}
	if ids := orgIDs(t, s); len(ids) != 2 {
		t.Error(ids)
	}
}

// Deadlocks are repeated, not reported.
func TestDeadlockIsRetried(t *testing.T) {
	s := PostgreSQLDatabase(t).Open(t)
	ctx := t.Context()
	write(t, s, addOrg(ctx, "a"))
	write(t, s, addOrg(ctx, "b"))
	lockBoth := func(first, second string, mine, other chan struct{}) error {
		attempts := 0
		return s.Write(ctx, func(tx *store.Tx) error {
			attempts++
			if _, err := tx.LockOrg(ctx, first); err != nil {
				return err
			}
			if attempts == 1 {
				close(mine)
				<-other
			}
			_, err := tx.LockOrg(ctx, second)
			return err
		})
	}
	one, two := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- lockBoth("a", "b", one, two) }()
	if err := errors.Join(lockBoth("b", "a", two, one), <-ended); err != nil {
		t.Error(err)
	}
	if s.Stats().Retries == 0 {
		t.Error("no retry was counted")
	}
}

func waitListening(t *testing.T, s *store.Store) {
	t.Helper()
	for range 500 {
		if s.Stats().Listening {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the listener did not connect")
}

func waitSignal(t *testing.T, sub *store.Subscription) {
	t.Helper()
	select {
	case <-sub.C():
	case <-time.After(time.Minute):
		t.Fatal("no notification")
	}
}
