// Package storetest opens real stores for tests: SQLite always, PostgreSQL where KICI_TEST_POSTGRES names a server. A
// migrated template is made once a process and copied for every test, which costs a few milliseconds.
package storetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kici-go/kici/internal/store"
)

// SQLite opens an empty store of its own for the test and closes it at the end. It does not wait for the disk: use
// Open with Unsynced false for a test about durability.
func SQLite(t testing.TB) *store.Store {
	t.Helper()
	return Open(t, store.Config{Unsynced: true})
}

// Open is SQLite with a configuration of the test's own. An empty Dir becomes a temporary one with a migrated database.
func Open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = Dir(t)
	}
	s, err := store.Open(context.Background(), c)
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

// Dir makes a temporary data directory that holds a migrated, empty SQLite database.
func Dir(t testing.TB) string {
	t.Helper()
	image, err := template()
	if err != nil {
		t.Fatalf("make template database: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.FileName), image, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "kici-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := store.Open(context.Background(), store.Config{Dir: dir, Unsynced: true})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	return os.ReadFile(filepath.Join(dir, store.FileName)) // closing has folded the WAL into it
})

// Each runs fn as a subtest on every engine that is there.
func Each(t *testing.T, fn func(t *testing.T, s *store.Store)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, SQLite(t)) })
}
