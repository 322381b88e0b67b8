package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/kici-go/kici/internal/store"
)

// ServerVariable names the environment variable with the URL of a PostgreSQL server where databases may be created.
const ServerVariable = "KICI_TEST_POSTGRES"

// Making a database costs half a second, emptying one some milliseconds. So the server keeps numbered databases, and a
// test holds the advisory lock of the one that it uses; the lock ends with its connection, whatever happens to the test.
const (
	lockClass    = 740155
	databasesMax = 64
)

// Server is the URL of the test server. Without one it skips the test.
func Server(t testing.TB) string {
	t.Helper()
	server := os.Getenv(ServerVariable)
	if server == "" {
		if slices.Contains(strings.Split(os.Getenv("KICI_TEST_REQUIRE"), ","), "postgres") { // D26: this machine may not skip
			t.Fatalf("%s is not set, and KICI_TEST_REQUIRE names postgres", ServerVariable)
		}
		t.Skipf("SKIPPED on PostgreSQL: %s is not set", ServerVariable)
	}
	return server
}

// PostgreSQLDatabase lends the test an empty, migrated database of the test server. Without a server it skips the test.
func PostgreSQLDatabase(t testing.TB) *Database {
	t.Helper()
	server := Server(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lease, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to test server: %v", err)
	}
	t.Cleanup(func() { _ = lease.Close(context.Background()) })
	number, err := claim(ctx, lease)
	if err != nil {
		t.Fatalf("claim test database: %v", err)
	}
	name, err := ensureDatabase(ctx, lease, server, number)
	if err != nil {
		t.Fatalf("make test database: %v", err)
	}
	return &Database{Config: store.Config{URL: withDatabase(server, name), Dir: t.TempDir()}}
}

func claim(ctx context.Context, lease *pgx.Conn) (number int, err error) {
	for number = range databasesMax {
		var mine bool
		err := lease.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", lockClass, number).Scan(&mine)
		if err != nil || mine {
			return number, err
		}
	}
	return 0, fmt.Errorf("all %d are in use", databasesMax)
}

// ensureDatabase makes or empties the claimed database, and drops those of the same number with another schema.
func ensureDatabase(ctx context.Context, lease *pgx.Conn, server string, number int) (string, error) {
	hash, err := schemaHash()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("kici_test_%s_%d", hash, number)
	rows, err := lease.Query(ctx, "SELECT datname FROM pg_database WHERE datname LIKE $1", fmt.Sprintf(`kici\_test\_%%\_%d`, number))
	if err != nil {
		return "", err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	exists := false
	for _, old := range found {
		if old == name {
			exists = true
			continue
		}
		if _, err := lease.Exec(ctx, "DROP DATABASE "+pgx.Identifier{old}.Sanitize()+" WITH (FORCE)"); err != nil {
			return "", err
		}
	}
	if !exists {
		if _, err := lease.Exec(ctx, "CREATE DATABASE "+name); err != nil {
			return "", err
		}
	}
	return name, reset(ctx, withDatabase(server, name))
}

// reset migrates the database if need be, ends what an earlier test left connected, and deletes every row.
func reset(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: database})
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'")
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	statements := []string{"SET session_replication_role = replica"} // whatever order foreign keys would want
	for _, table := range tables {
		statements = append(statements, "DELETE FROM "+pgx.Identifier{table}.Sanitize())
	}
	_, err = conn.Exec(ctx, strings.Join(statements, ";"))
	return err
}

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

// administer runs one statement on a connection of its own.
func administer(database, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
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
