// Package storetest opens real stores for tests: SQLite always, PostgreSQL where KICI_TEST_POSTGRES names a server. A
// migrated template is made once and copied for every test, which costs milliseconds.
package storetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kici-go/kici/internal/store"
)

// Database is one test's own database. It can be opened several times, as by several processes or after a crash.
type Database struct {
	Config store.Config // what Open uses; a test may change it before
}

// Open opens the database and closes it at the end of the test.
func (d *Database) Open(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), d.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

// SQLite opens an empty store of its own for the test. It does not wait for the disk: a test about durability uses
// SQLiteDatabase and sets Unsynced to false.
func SQLite(t testing.TB) *store.Store {
	t.Helper()
	return SQLiteDatabase(t).Open(t)
}

// SQLiteDatabase makes a temporary data directory that holds a migrated, empty database.
func SQLiteDatabase(t testing.TB) *Database {
	t.Helper()
	image, err := sqliteTemplate()
	if err != nil {
		t.Fatalf("make template database: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.FileName), image, 0o600); err != nil {
		t.Fatal(err)
	}
	return &Database{Config: store.Config{Dir: dir, Unsynced: true}}
}

var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "kici-template-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := store.Open(context.Background(), store.Config{Dir: dir, Unsynced: true})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, store.FileName)) // closing has folded the WAL into it
})

// Each runs fn as a subtest with an empty store on every engine. Without KICI_TEST_POSTGRES that engine's subtest says
// that it is skipped.
func Each(t *testing.T, fn func(t *testing.T, s *store.Store)) {
	t.Helper()
	EachDatabase(t, func(t *testing.T, d *Database) { fn(t, d.Open(t)) })
}

// EachDatabase is Each for tests that open the database themselves.
func EachDatabase(t *testing.T, fn func(t *testing.T, d *Database)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { fn(t, SQLiteDatabase(t)) })
	t.Run("postgres", func(t *testing.T) { fn(t, PostgreSQLDatabase(t)) })
}
