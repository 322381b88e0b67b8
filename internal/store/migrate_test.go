package store

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// emptyPostgres creates a database without a schema.
func emptyPostgres(t *testing.T) string {
	t.Helper()
	server := os.Getenv("KICI_TEST_POSTGRES")
	if server == "" {
		t.Skip("SKIPPED on PostgreSQL: KICI_TEST_POSTGRES is not set")
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := "kici_empty_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	run := func(statement string) {
		ctx := context.Background() // also after the test
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Error(err)
		}
	}
	run("CREATE DATABASE " + name)
	t.Cleanup(func() { run("DROP DATABASE " + name + " WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}

func TestXC142NodesThatStartTogether(t *testing.T) {
	database := emptyPostgres(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := Open(t.Context(), Config{URL: database})
			if err != nil {
				t.Error(err)
				return
			}
			if n := countOrgs(t, s); n != 0 {
				t.Error(n)
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	newer := withFuture(t)
	if err := migratePostgres(t.Context(), config, schema{files: newer}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{URL: database}); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("a newer schema gave %v", err)
	}
}

// withFuture is the embedded schema and a migration that this binary does not know.
func withFuture(t *testing.T) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{"9999_future.sql": {Data: []byte("-- +goose Up\nCREATE TABLE future (id TEXT);\n")}}
	entries, err := fs.ReadDir(Migrations(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(Migrations(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = &fstest.MapFile{Data: text}
	}
	return files
}
