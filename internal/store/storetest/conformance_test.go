package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func write(t testing.TB, s *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := s.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func addOrg(ctx context.Context, id string) func(*store.Tx) error {
	return func(tx *store.Tx) error { return tx.InsertOrg(ctx, id, tx.Now()) }
}

func orgIDs(t testing.TB, s *store.Store) []string {
	t.Helper()
	orgs, err := s.Read().Orgs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, o := range orgs {
		ids = append(ids, o.ID)
	}
	return ids
}

// Requests that share a commit do not share their fate.
func TestWriteIsolation(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				err := s.Write(ctx, func(tx *store.Tx) error {
					if err := tx.InsertOrg(ctx, fmt.Sprintf("org-%03d", i), tx.Now()); err != nil {
						return err
					}
					switch i % 4 {
					case 1:
						return errBoom
					case 2:
						panic("boom")
					case 3:
						_, err := tx.LockOrg(ctx, "missing")
						return err
					}
					return nil
				})
				if want := i%4 == 0; (err == nil) != want {
					t.Errorf("write %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		want := []string{}
		for i := 0; i < 200; i += 4 {
			want = append(want, fmt.Sprintf("org-%03d", i))
		}
		if diff := cmp.Diff(want, orgIDs(t, s)); diff != "" {
			t.Error(diff)
		}
	})
}

// A failed statement loses the transaction on both engines, even when the function looks away.
func TestFailedStatementLosesTransaction(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		link := func(tx *store.Tx) error { return tx.InsertLoginLink(ctx, "hash", "no such token", 1) }
		err := s.Write(ctx, func(tx *store.Tx) error {
			if err := tx.InsertOrg(ctx, "lost", 1); err != nil {
				t.Error(err)
			}
			if err := link(tx); err == nil {
				t.Error("foreign keys are not enforced")
			}
			if err := tx.InsertOrg(ctx, "after", 1); err == nil {
				t.Error("statement ran after a failed one")
			}
			return nil
		})
		if err == nil || !strings.Contains(strings.ToUpper(err.Error()), "FOREIGN KEY") {
			t.Errorf("error must be the first statement's: %v", err)
		}
		if ids := orgIDs(t, s); len(ids) != 0 {
			t.Errorf("rows of a lost transaction: %v", ids)
		}
		write(t, s, addOrg(ctx, "next"))
	})
}

func TestUniqueViolation(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		put := func(tx *store.Tx) error { return tx.InsertWebSession(ctx, "same", []byte("x"), 1) }
		write(t, s, put)
		if err := s.Write(ctx, put); !store.IsUnique(err) {
			t.Errorf("IsUnique(%v) = false", err)
		}
		if err := s.Write(ctx, func(*store.Tx) error { return errBoom }); store.IsUnique(err) {
			t.Error("any error is unique")
		}
	})
}

// Many insert the same key at once: one of them is told that it was first.
func TestUniqueRace(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		write(t, s, addOrg(ctx, "o"))
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				write(t, s, func(tx *store.Tx) error {
					n, err := tx.InsertIdempotencyKey(ctx, db.InsertIdempotencyKeyParams{OrgID: "o", Key: "k", Result: fmt.Sprint(i)})
					won.Add(n)
					return err
				})
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d inserts won", won.Load())
		}
	})
}

func TestCancelledWrites(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		ran := false
		err := s.Write(ctx, func(tx *store.Tx) error { // cancelled in the middle
			ran = true
			if err := tx.InsertOrg(ctx, "half", 1); err != nil {
				return err
			}
			cancel()
			return tx.InsertOrg(ctx, "other half", 1)
		})
		if !ran || !errors.Is(err, context.Canceled) {
			t.Errorf("ran %v, err %v", ran, err)
		}
		err = s.Write(ctx, func(*store.Tx) error { t.Error("ran"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if ids := orgIDs(t, s); len(ids) != 0 {
			t.Error(ids)
		}
		write(t, s, addOrg(t.Context(), "works again"))
	})
}

// testing.T.FailNow in a transaction function ends the goroutine that runs it.
func TestGoexitInTransaction(t *testing.T) {
	s := SQLite(t)
	ctx := t.Context()
	err := s.Write(ctx, func(tx *store.Tx) error {
		_ = tx.InsertOrg(ctx, "lost", 1)
		runtime.Goexit()
		return nil
	})
	if err == nil {
		t.Error("no error")
	}
	write(t, s, addOrg(ctx, "next"))
	if diff := cmp.Diff([]string{"next"}, orgIDs(t, s)); diff != "" {
		t.Error(diff)
	}
}

func TestTxEndsWithItsFunction(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		var kept *store.Tx
		write(t, s, func(tx *store.Tx) error { kept = tx; return nil })
		if err := kept.InsertOrg(t.Context(), "late", 1); err == nil {
			t.Error("an ended transaction writes")
		}
	})
}

func TestDurableAfterReopen(t *testing.T) {
	EachDatabase(t, func(t *testing.T, d *Database) {
		d.Config.Unsynced = false
		s := d.Open(t)
		for i := range 20 {
			write(t, s, addOrg(t.Context(), fmt.Sprintf("o%02d", i)))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := orgIDs(t, d.Open(t)); len(got) != 20 {
			t.Error(got)
		}
	})
}

func TestClosed(t *testing.T) {
	EachDatabase(t, func(t *testing.T, d *Database) {
		s := d.Open(t)
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if err := s.Write(t.Context(), func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
		if err := s.Ping(t.Context()); err == nil {
			t.Error("a closed store answers")
		}
		if _, err := s.Read().Orgs(t.Context()); err == nil {
			t.Error("a closed store reads")
		}
	})
}

// Writes accepted before Close are done; those after are refused; none hangs.
func TestCloseWhileWriting(t *testing.T) {
	EachDatabase(t, func(t *testing.T, d *Database) {
		s := d.Open(t)
		var done atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if s.Write(context.Background(), addOrg(context.Background(), fmt.Sprintf("o-%d-%d", w, i))) != nil {
						return
					}
					done.Add(1)
				}
			})
		}
		for done.Load() < 50 {
			runtime.Gosched()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got := len(orgIDs(t, d.Open(t))); int64(got) < done.Load() {
			t.Errorf("%d of %d accepted writes are there", got, done.Load())
		}
	})
}

func TestNotify(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		one, other := s.Subscribe(store.TopicRuns, "1"), s.Subscribe(store.TopicRuns, "2")
		all, elsewhere := s.Subscribe(store.TopicRuns, ""), s.Subscribe(store.TopicLogs, "1")
		check := func(what string, want ...*store.Subscription) {
			t.Helper()
			for name, sub := range map[string]*store.Subscription{"one": one, "other": other, "all": all, "elsewhere": elsewhere} {
				expected := false
				for _, w := range want {
					expected = expected || w == sub
				}
				if got := signalled(sub); got != expected {
					t.Errorf("%s: subscription %s signalled: %v", what, name, got)
				}
			}
		}
		_ = s.Write(ctx, func(tx *store.Tx) error { tx.Notify(store.TopicRuns, "1"); return errBoom })
		check("rolled back")
		write(t, s, func(tx *store.Tx) error {
			tx.Notify(store.TopicRuns, "1")
			tx.Notify(store.TopicRuns, "1")
			if signalled(one) {
				t.Error("signalled before the commit")
			}
			return nil
		})
		check("committed", one, all)
		for range 3 {
			s.Publish(store.TopicLogs, "1")
		}
		check("published, coalesced", elsewhere)
		s.Publish(store.TopicRuns, "")
		check("without a key", one, other, all)
		one.Close()
		one.Close()
		s.Publish(store.TopicRuns, "1")
		check("closed", all)
	})
}

func signalled(s *store.Subscription) bool {
	select {
	case <-s.C():
		return true
	default:
		return false
	}
}

func TestNow(t *testing.T) {
	EachDatabase(t, func(t *testing.T, d *Database) {
		fixed := time.UnixMilli(1_234_567)
		d.Config.Now = func() time.Time { return fixed }
		s := d.Open(t)
		for _, run := range []func(context.Context, func(*store.Tx) error) error{s.Write, s.Snapshot} {
			if err := run(t.Context(), func(tx *store.Tx) error {
				first := tx.Now()
				fixed = fixed.Add(time.Second)
				if s.Dialect() == store.PostgreSQL {
					time.Sleep(3 * time.Millisecond) // the database's clock is real
				}
				if tx.Now() != first {
					t.Error("Now moves within a transaction")
				}
				if off := time.Since(time.UnixMilli(first)).Abs(); (off > time.Minute) != (s.Dialect() == store.SQLite) {
					t.Errorf("Now is of the wrong clock: %d", first)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// A snapshot sees one moment, whatever is written meanwhile, and cannot write.
func TestSnapshot(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		write(t, s, addOrg(ctx, "a"))
		if err := s.Snapshot(ctx, func(tx *store.Tx) error {
			before, err := tx.Orgs(ctx)
			if err != nil {
				return err
			}
			write(t, s, addOrg(ctx, "b"))
			after, err := tx.Orgs(ctx)
			if len(before) != 1 || len(after) != 1 {
				t.Errorf("saw %d, then %d rows", len(before), len(after))
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if err := s.Snapshot(ctx, addOrg(ctx, "c")); err == nil {
			t.Error("a snapshot wrote")
		}
		if err := s.Read().InsertOrg(ctx, "d", 1); err == nil {
			t.Error("a read wrote")
		}
		if err := s.Snapshot(ctx, func(*store.Tx) error { return errBoom }); !errors.Is(err, errBoom) {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"a", "b"}, orgIDs(t, s)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRoundTrips(t *testing.T) {
	Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		t.Run("bytes", func(t *testing.T) {
			for i, data := range [][]byte{{}, {0}, []byte("text"), []byte("12"), {0xff, 0xfe, 0}} {
				key := fmt.Sprint("b", i)
				write(t, s, func(tx *store.Tx) error { return tx.InsertWebSession(ctx, key, data, int64(i)) })
				row, err := s.Read().WebSession(ctx, key)
				if err != nil || string(row.Data) != string(data) {
					t.Errorf("wrote %q, read %q, %v", data, row.Data, err)
				}
			}
		})
		t.Run("integers and booleans", func(t *testing.T) {
			for _, v := range []int64{0, -1, 1 << 40, math.MaxInt64, math.MinInt64} {
				write(t, s, func(tx *store.Tx) error {
					if err := tx.StartInstance(ctx, db.StartInstanceParams{InstanceID: "i", Name: "12", Now: v}); err != nil {
						return err
					}
					_, err := tx.SetInstanceDraining(ctx, v < 0, "i")
					return err
				})
				row, err := s.Read().ClusterInstance(ctx, "i")
				if err != nil || row.HeartbeatAt != v || row.Draining != (v < 0) || row.Name != "12" {
					t.Errorf("%d: %+v, %v", v, row, err)
				}
			}
		})
		t.Run("null", func(t *testing.T) {
			write(t, s, func(tx *store.Tx) error {
				if err := tx.InsertOrg(ctx, "o", 1); err != nil {
					return err
				}
				for id, key := range map[string]sql.NullString{"null": {}, "empty": {Valid: true}, "set": {Valid: true, String: "x"}} {
					if _, err := tx.InsertAdminToken(ctx, db.InsertAdminTokenParams{ID: id, OrgID: "o", TokenHash: id, RoutingKey: key}); err != nil {
						return err
					}
				}
				return nil
			})
			for id, want := range map[string]sql.NullString{"null": {}, "empty": {Valid: true}, "set": {Valid: true, String: "x"}} {
				row, err := s.Read().AdminToken(ctx, id)
				if err != nil || row.RoutingKey != want || row.ExpiresAt.Valid {
					t.Errorf("%s: %+v, %v", id, row, err)
				}
			}
			if _, err := s.Read().AdminToken(ctx, "none"); !errors.Is(err, sql.ErrNoRows) {
				t.Error(err)
			}
		})
		t.Run("text", func(t *testing.T) {
			for i, text := range []string{"", "12", "1e3", "Grüße 🎉", "a\x00b", "bad \xff\xfe utf-8", "$1 ? :x -- ' \""} {
				key := fmt.Sprint("t", i)
				write(t, s, func(tx *store.Tx) error { return tx.SetClusterMeta(ctx, key, text) })
				got, err := s.Read().ClusterMeta(ctx, key)
				if err != nil || got != store.CleanText(text) {
					t.Errorf("wrote %q, read %q, %v", text, got, err)
				}
			}
		})
	})
}
