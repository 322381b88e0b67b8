package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/kici-go/kici/internal/store"
)

// ServerVariable names the environment variable with the URL of a PostgreSQL server where databases may be created.
const ServerVariable = "KICI_TEST_POSTGRES"

// PostgreSQLDatabase makes an empty, migrated database on the test server and drops it at the end. Without a server it
// skips the test.
func PostgreSQLDatabase(t testing.TB) *Database {
	t.Helper()
	server := os.Getenv(ServerVariable)
	if server == "" {
		t.Skipf("SKIPPED on PostgreSQL: %s is not set", ServerVariable)
	}
	template, err := postgresTemplate()
	if err != nil {
		t.Fatalf("make template database: %v", err)
	}
	name := "kici_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := createDatabase(server, name, template); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		if err := administer(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	return &Database{Config: store.Config{URL: withDatabase(server, name), Dir: t.TempDir()}}
}

// postgresTemplate returns the name of a migrated database for this schema, which processes share.
var postgresTemplate = sync.OnceValues(func() (string, error) {
	server := os.Getenv(ServerVariable)
	hash, err := schemaHash()
	if err != nil {
		return "", err
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(740155)"); err != nil { // released with the connection
		return "", err
	}
	name := "kici_template_" + hash
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil {
		return "", err
	}
	if exists {
		return name, nil
	}
	making := name + "_making"
	for _, q := range []string{"DROP DATABASE IF EXISTS " + making, "CREATE DATABASE " + making} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return "", err
		}
	}
	s, err := store.Open(ctx, store.Config{URL: withDatabase(server, making)})
	if err != nil {
		return "", err
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	return name, patiently(func() error {
		_, err := conn.Exec(ctx, "ALTER DATABASE "+making+" RENAME TO "+name)
		return err
	})
})

func schemaHash() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(store.Migrations(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(store.Migrations(), path)
		fmt.Fprintf(h, "%s\n%s", path, text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:12], err
}

func createDatabase(server, name, template string) error {
	return patiently(func() error { return administer(server, "CREATE DATABASE "+name+" TEMPLATE "+template) })
}

// patiently repeats what PostgreSQL refuses while a closed connection to the template is still being cleaned up.
func patiently(fn func() error) (err error) {
	for range 50 {
		if err = fn(); err == nil || !strings.Contains(err.Error(), "55006") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func administer(server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Path = "/" + name
	return u.String()
}
