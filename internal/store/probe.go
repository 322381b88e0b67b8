package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// Probed is what a look at a database finds.
type Probed struct {
	Dialect Dialect
	Schema  int64 // version; 0 for a database that no server has used yet
	Wanted  int64 // the version that this binary knows
	NowMs   int64 // the database's clock
	Leader  string
	LeaseMs int64 // when the leader's lease ends, 0 for none
}

// Probe looks at a database and changes nothing in it, not even its schema. ErrNotExist (fs) says that there is no SQLite file.
func Probe(ctx context.Context, c Config) (Probed, error) {
	p := Probed{Dialect: SQLite, Wanted: newestMigration()}
	var pool *sql.DB
	clock := `SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`
	if c.URL != "" {
		config, err := pgx.ParseConfig(c.URL)
		if err != nil {
			return p, fmt.Errorf("read database URL: %w", err)
		}
		setDefault(config, "application_name", "kici-probe")
		setDefault(config, "default_transaction_read_only", "on")
		p.Dialect, clock, pool = PostgreSQL, pgClockQuery, stdlib.OpenDB(*config)
	} else {
		if _, err := os.Stat(c.path()); err != nil {
			return p, err
		}
		how := "?mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(2000)"
		if _, err := os.Stat(c.path() + "-wal"); errors.Is(err, fs.ErrNotExist) {
			how += "&immutable=1" // nobody has it open: SQLite need not make its side files, which would be this user's
		}
		connector, err := sqlite.NewConnector("file:" + (&url.URL{Path: c.path()}).EscapedPath() + how)
		if err != nil {
			return p, err
		}
		pool = sql.OpenDB(connector)
	}
	defer func() { _ = pool.Close() }()
	if err := pool.QueryRowContext(ctx, clock).Scan(&p.NowMs); err != nil {
		return p, err
	}
	err := pool.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&p.Schema)
	if err != nil {
		if ctx.Err() != nil {
			return p, err
		}
		return p, nil // no such table: nobody has used it
	}
	err = pool.QueryRowContext(ctx, `SELECT holder, expires_at FROM leader_lease`).Scan(&p.Leader, &p.LeaseMs)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return p, err
}

// newestMigration is the highest number of the embedded files.
func newestMigration() (newest int64) {
	names, _ := fs.Glob(Migrations(), "*.sql") // the pattern is right
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}
