package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func openDir(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func addOrg(s *Store, id string) error {
	ctx := context.Background()
	return s.Write(ctx, func(tx *Tx) error { return tx.InsertOrg(ctx, id, tx.Now()) })
}

func countOrgs(t *testing.T, s *Store) int {
	t.Helper()
	orgs, err := s.Read().Orgs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return len(orgs)
}

func TestStripLocking(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT 1 FOR UPDATE":                        "SELECT 1",
		"SELECT 1\n  FOR\tUPDATE  SKIP\n LOCKED":     "SELECT 1",
		"select x from t for share;":                 "select x from t;",
		"SELECT 1 LIMIT 1 FOR UPDATE OF j NOWAIT":    "SELECT 1 LIMIT 1",
		"SELECT 1 FOR NO KEY UPDATE":                 "SELECT 1",
		"UPDATE t SET a = (SELECT 1 FOR UPDATE) + 1": "UPDATE t SET a = (SELECT 1) + 1",
		"SELECT for_update FROM t":                   "SELECT for_update FROM t",
		"SELECT 'x' AS for_updates":                  "SELECT 'x' AS for_updates",
	} {
		if got := StripLocking(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestOddDirectories(t *testing.T) {
	for _, name := range []string{"with space", "a?b=c", "100%", "%41", "hash#tag", "ünïcode", "a;b&c", "'quote\""} {
		dir := filepath.Join(t.TempDir(), name)
		s := openDir(t, dir)
		if err := addOrg(s, "o"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		info, err := os.Stat(filepath.Join(dir, FileName))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s: mode %o", name, mode)
		}
		if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
			t.Errorf("%s: made something beside the directory: %v", name, entries)
		}
	}
}

// A crash image (database and WAL, copied while the server runs) holds every write that was accepted before.
func TestXC2CrashImageHoldsAcceptedWrites(t *testing.T) {
	dir, image := t.TempDir(), t.TempDir()
	s := openDir(t, dir)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 25 {
				if err := addOrg(s, fmt.Sprintf("o-%d-%d", c, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	copyDatabase(t, dir, image)
	if got := countOrgs(t, openDir(t, image)); got != 200 {
		t.Errorf("%d of 200 rows survived", got)
	}
}

func copyDatabase(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(filepath.Join(from, FileName+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, FileName+suffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The process dies while it writes (here: its image is taken from inside the commit). The half-written commit is gone,
// everything before it is there.
func TestCrashInCommit(t *testing.T) {
	dir := t.TempDir()
	var s *Store
	var images []string
	accepted := map[string]int{}
	take := func(want int) {
		image := t.TempDir()
		copyDatabase(t, dir, image)
		images = append(images, image)
		accepted[image] = want
	}
	done, armed := 0, false
	c := Config{Dir: dir}
	c.BeforeCommit = func() {
		if armed {
			take(done)
		}
	}
	c.AfterCommit = func() {
		if armed {
			done++
			take(done)
		}
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	armed = true
	for i := range 5 {
		if err := addOrg(s, fmt.Sprint("o", i)); err != nil {
			t.Fatal(err)
		}
	}
	armed = false
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(images) != 10 {
		t.Errorf("%d images", len(images))
	}
	for _, image := range images {
		if got := countOrgs(t, openDir(t, image)); got != accepted[image] {
			t.Errorf("image has %d rows, want %d", got, accepted[image])
		}
	}
}

func TestXC143NewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), pool, SQLite, schema{files: withFuture(t)}); err != nil {
		t.Fatal(err)
	}
	_ = pool.Close()
	_, err = Open(t.Context(), Config{Dir: dir})
	if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "9999") || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("got %v", err)
	}
}

func TestNotADatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Dir: dir})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	text, _ := os.ReadFile(filepath.Join(dir, FileName))
	if !strings.HasPrefix(string(text), "not a database") {
		t.Error("the file was changed")
	}
}

// Requests that wait while another runs share one commit.
func TestGroupCommit(t *testing.T) {
	s := openDir(t, t.TempDir())
	waiting := s.engine.(*sqliteEngine).requests
	var wg sync.WaitGroup
	const others = 50
	if err := s.Write(t.Context(), func(*Tx) error {
		for i := range others {
			wg.Go(func() {
				if err := addOrg(s, fmt.Sprint("o", i)); err != nil {
					t.Error(err)
				}
			})
		}
		for len(waiting) < others {
			runtime.Gosched()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if st := s.Stats(); st.Writes != others+1 || st.Commits != 1 || st.LargestGroup != others+1 {
		t.Errorf("%+v", st)
	}
}

// Some requests of a group fail: the others are durable all the same, in one commit.
func TestFailuresInAGroupAreTheirOwn(t *testing.T) {
	s := openDir(t, t.TempDir())
	waiting := s.engine.(*sqliteEngine).requests
	var wg sync.WaitGroup
	const others = 40
	errBoom := errors.New("boom")
	var once sync.Once
	ask := func() {
		for i := range others {
			wg.Go(func() {
				err := s.Write(t.Context(), func(tx *Tx) error {
					if err := tx.InsertOrg(t.Context(), fmt.Sprint("o", i), tx.Now()); err != nil || i%10 != 7 {
						return err
					}
					return errBoom
				})
				if (i%10 == 7) != errors.Is(err, errBoom) {
					t.Errorf("request %d: %v", i, err)
				}
			})
		}
		for len(waiting) < others {
			runtime.Gosched()
		}
	}
	if err := s.Write(t.Context(), func(*Tx) error { once.Do(ask); return nil }); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := countOrgs(t, s); n != others-4 {
		t.Errorf("%d rows", n)
	}
	if st := s.Stats(); st.Writes != others+1-4 || st.Commits != 1 {
		t.Errorf("%+v", st)
	}
}

// When the commit itself fails nobody is told otherwise, and the next one works.
func TestFailedCommitFailsEverybody(t *testing.T) {
	s := openDir(t, t.TempDir())
	w := s.engine.(*sqliteEngine).writer
	fail := true
	w.before = func() {
		if fail { // takes the transaction away under the group's feet
			_, _ = w.conn.ExecContext(context.Background(), "ROLLBACK")
		}
	}
	if err := addOrg(s, "lost"); err == nil {
		t.Error("no error")
	}
	fail = false
	if err := addOrg(s, "kept"); err != nil {
		t.Error(err)
	}
	if n := countOrgs(t, s); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			s, err := Open(b.Context(), Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range clients {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := addOrg(s, fmt.Sprint("o", i)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
			st := s.Stats()
			b.ReportMetric(float64(st.Writes)/float64(st.Commits), "group")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := Open(b.Context(), Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := addOrg(s, "o"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Read().Orgs(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// As many snapshots as there are connections meet statements that nobody has prepared yet: none of them may wait for a connection
// that another one holds.
func TestSnapshotsPrepareOnTheirOwnConnection(t *testing.T) {
	s := openDir(t, t.TempDir())
	n := 2 * max(4, 2*runtime.GOMAXPROCS(0))
	var held, wg sync.WaitGroup
	held.Add(n / 2)
	var first atomic.Int64
	for range n {
		wg.Go(func() {
			err := s.Snapshot(t.Context(), func(tx *Tx) error {
				if first.Add(1) <= int64(n/2) {
					held.Done()
					held.Wait() // until every connection is taken
				}
				_, err := tx.Orgs(t.Context())
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the snapshots wait for each other")
	}
	if kept := len(s.engine.(*sqliteEngine).prepared.cache.stmts); kept != 1 {
		t.Errorf("%d statements were kept for the next snapshot, want 1", kept)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := b.Context()
	for b.Loop() {
		if err := s.Snapshot(ctx, func(tx *Tx) error {
			_, err := tx.Orgs(ctx)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// A program that must not migrate leaves a database that is not of its version alone.
func TestAsIsMigratesNothing(t *testing.T) {
	c := Config{Dir: t.TempDir(), AsIs: true}
	for range 2 {
		if _, err := Open(t.Context(), c); !errors.Is(err, ErrOtherSchema) || !strings.Contains(err.Error(), "version 0") {
			t.Fatalf("an empty database: %v", err)
		}
	}
	for _, asIs := range []bool{false, true} {
		c.AsIs = asIs
		st, err := Open(t.Context(), c)
		if err != nil {
			t.Fatalf("as is %t: %v", asIs, err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}
