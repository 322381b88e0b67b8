package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/kici-go/kici/internal/store/db"
)

// DB-33: connections, how long to wait for one, how long a statement may take, and how often a transaction is repeated.
const (
	pgConnections   = 20
	pgAcquire       = 5 * time.Second
	pgStatement     = "30000" // ms
	pgIdleInTx      = "10000" // ms: a stopped process must not hold back a takeover for longer
	pgTransaction   = 60 * time.Second
	pgAttempts      = 10
	pgClockQuery    = `SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)`
	pgNotifyQuery   = `SELECT pg_notify($1, $2)`
	pgNotifyChannel = "kici"
)

// pgEngine runs each Write in a transaction of its own.
type pgEngine struct {
	pool          *sql.DB
	before, after func()
	faults        Faults
	stats         *stats
	log           *slog.Logger
	link          *pgLink

	closed atomic.Bool
}

func (s *Store) openPostgres(ctx context.Context, c Config) error {
	config, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return fmt.Errorf("read database URL: %w", err)
	}
	setDefault(config, "application_name", "kici")
	if err := migratePostgres(ctx, config.Copy(), schema{asIs: c.AsIs}); err != nil {
		return err
	}
	forQueries := config.Copy()
	setDefault(forQueries, "statement_timeout", pgStatement)
	setDefault(forQueries, "idle_in_transaction_session_timeout", pgIdleInTx)
	pool := stdlib.OpenDB(*forQueries)
	pool.SetMaxOpenConns(pgConnections)
	pool.SetMaxIdleConns(pgConnections)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := pool.PingContext(ctx); err != nil {
		_ = pool.Close()
		return err
	}
	e := &pgEngine{pool: pool, before: c.BeforeCommit, after: c.AfterCommit, faults: c.Faults, stats: s.stats, log: c.Log}
	e.link = startLink(config, e, s.hub, c.Log)
	s.engine, s.reads, s.dialect = e, db.New(&reader{db: pool, gate: e.gate, stale: lostConnection}), PostgreSQL
	return nil
}

func setDefault(c *pgx.ConnConfig, name, value string) {
	if _, given := c.RuntimeParams[name]; !given {
		c.RuntimeParams[name] = value
	}
}

func migratePostgres(ctx context.Context, config *pgx.ConnConfig, m schema) error {
	pool := stdlib.OpenDB(*config)
	defer func() { _ = pool.Close() }()
	return migrate(ctx, pool, PostgreSQL, m)
}

// acquire takes a connection, waiting no longer than pgAcquire for it.
func (e *pgEngine) acquire(ctx context.Context) (*sql.Conn, error) {
	wait, cancel := context.WithTimeoutCause(ctx, pgAcquire, ErrBusy)
	defer cancel()
	if e.closed.Load() {
		return nil, ErrClosed
	}
	conn, err := e.pool.Conn(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, fmt.Errorf("%w: no free connection within %s: %w", ErrBusy, pgAcquire, err)
	}
	return conn, err
}

func (e *pgEngine) write(ctx context.Context, term int64, fn func(*Tx) error) ([]note, error) {
	for attempt := 1; ; attempt++ {
		notes, again, err := e.writeOnce(ctx, term, fn)
		if err == nil {
			return notes, nil
		}
		if !again || attempt == pgAttempts || pause(ctx, attempt) != nil {
			return nil, classify(err)
		}
		e.stats.retries.Add(1)
	}
}

// pause waits a little, longer each time, never in step with others.
func pause(ctx context.Context, attempt int) error {
	most := min(time.Duration(1<<attempt)*2*time.Millisecond, 500*time.Millisecond)
	t := time.NewTimer(rand.N(most))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// writeOnce reports with an error whether the same transaction may be tried again: it has certainly not been committed.
func (e *pgEngine) writeOnce(ctx context.Context, term int64, fn func(*Tx) error) (notes []note, again bool, err error) {
	conn, err := e.acquire(ctx)
	if err != nil {
		return nil, lostConnection(err), err
	}
	defer func() { _ = conn.Close() }()
	// Cancelling ends a transaction between two statements, never in the middle of a commit.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgTransaction)
	defer cancel()
	sqlTx, err := conn.BeginTx(whole, nil)
	if err != nil {
		return nil, lostConnection(err), err
	}
	defer func() { _ = sqlTx.Rollback() }()
	tx := newTx(&txConn{db: sqlTx}, func() (int64, error) { return pgClock(ctx, sqlTx) })
	err = tx.run(func(tx *Tx) error {
		if term > 0 {
			if err := tx.checkTerm(ctx, term); err != nil {
				return err
			}
		}
		return fn(tx)
	})
	if err != nil {
		return nil, retryable(err) || lostConnection(err), err
	}
	if e.before != nil {
		e.before()
	}
	if err := e.faults.commit([]int64{term}); err != nil {
		return nil, false, err
	}
	if err := sqlTx.Commit(); err != nil {
		return nil, retryable(err), fmt.Errorf("commit: %w", err)
	}
	e.stats.committed(1)
	if e.after != nil {
		e.after()
	}
	return tx.notes, false, e.faults.committed([]int64{term})
}

func pgClock(ctx context.Context, q db.DBTX) (now int64, err error) {
	err = q.QueryRowContext(ctx, pgClockQuery).Scan(&now)
	return now, err
}

func (e *pgEngine) snapshot(ctx context.Context, fn func(*Tx) error) error {
	conn, sqlTx, err := e.beginSnapshot(ctx)
	for attempt := 1; err != nil && lostConnection(err) && attempt < staleTries && pause(ctx, min(attempt, 4)) == nil; attempt++ {
		conn, sqlTx, err = e.beginSnapshot(ctx)
	}
	if err != nil {
		return classify(err)
	}
	defer func() { _ = conn.Close() }()
	defer func() { _ = sqlTx.Rollback() }()
	view := newTx(&txConn{db: sqlTx}, func() (int64, error) { return pgClock(ctx, sqlTx) })
	return classify(view.run(fn))
}

func (e *pgEngine) beginSnapshot(ctx context.Context) (*sql.Conn, *sql.Tx, error) {
	conn, err := e.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	sqlTx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, sqlTx, nil
}

func (e *pgEngine) publish(notes []note) { e.link.send(notes) }

func (e *pgEngine) ping(ctx context.Context) error {
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.PingContext(ctx)
}

func (e *pgEngine) close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.link.stop()
	return e.pool.Close()
}

// gate waits, not without bound, until a connection is free.
func (e *pgEngine) gate(ctx context.Context) error {
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

func isClosedPipe(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED)
}
