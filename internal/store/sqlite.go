package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/kici-go/kici/internal/store/db"
	"modernc.org/sqlite"
)

// sqliteEngine is one writing connection, owned by the writer's goroutine, and a pool of reading ones.
type sqliteEngine struct {
	*writer
	readPool *sql.DB
	prepared *prepared
	now      func() time.Time
}

func (s *Store) openSQLite(ctx context.Context, c Config) error {
	if err := makeFile(c.path()); err != nil {
		return err
	}
	write, err := openPool(c, "journal_mode(WAL)")
	if err != nil {
		return err
	}
	write.SetMaxOpenConns(1)
	if err := migrate(ctx, write, SQLite, schema{asIs: c.AsIs}); err != nil {
		_ = write.Close()
		return explain(err, c.path())
	}
	read, err := openPool(c, "query_only(1)")
	if err != nil {
		_ = write.Close()
		return err
	}
	readers := max(4, 2*runtime.GOMAXPROCS(0))
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	w, err := newWriter(ctx, write, c, s.stats)
	if err != nil {
		_ = errors.Join(write.Close(), read.Close())
		return explain(err, c.path())
	}
	stmts := &prepared{prepare: read.PrepareContext, raw: read, cache: newStmtCache()}
	s.engine = &sqliteEngine{writer: w, readPool: read, prepared: stmts, now: c.Now}
	s.reads, s.dialect = db.New(&reader{db: stmts, gate: c.Faults.Enter, detach: true}), SQLite
	s.stats.listening.Store(true)
	return nil
}

// makeFile creates the database file so that only its owner may read it; SQLite gives its side files the same mode.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%w: %w; choose a directory that can be written (--data-dir)", ErrReadOnly, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w; choose a directory that can be written (--data-dir)", ErrReadOnly, err)
	}
	return f.Close()
}

func openPool(c Config, pragmas ...string) (*sql.DB, error) {
	synchronous := "synchronous(FULL)"
	if c.Unsynced {
		synchronous = "synchronous(OFF)"
	}
	q := url.Values{"_pragma": append([]string{
		"busy_timeout(5000)", "foreign_keys(1)", synchronous, "temp_store(MEMORY)", "journal_size_limit(67108864)",
	}, pragmas...)}
	dsn := "file:" + (&url.URL{Path: c.path()}).EscapedPath() + "?" + q.Encode()
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetConnMaxLifetime(0)
	return pool, nil
}

// explain says what an operator can do about an error of opening.
func explain(err error, path string) error {
	err = classify(err)
	switch {
	case errors.Is(err, ErrFull):
		return fmt.Errorf("%w; free some space for %s: nothing accepted is lost", err, path)
	case errors.Is(err, ErrReadOnly):
		return fmt.Errorf("%w; %s and its directory must be writable (--data-dir)", err, path)
	case errors.Is(err, ErrCorrupt):
		return fmt.Errorf("%w; move %s away and restore a backup", err, path)
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("%w; another process uses %s", err, path)
	}
	return err
}

func (e *sqliteEngine) clock() (int64, error) { return e.now().UnixMilli(), nil }

func (e *sqliteEngine) write(ctx context.Context, term int64, fn func(*Tx) error) ([]note, error) {
	r := &request{ctx: ctx, term: term, fn: fn, done: make(chan struct{})}
	if err := e.submit(r); err != nil {
		return nil, err
	}
	<-r.done
	return r.notes, r.err
}

func (e *sqliteEngine) snapshot(ctx context.Context, fn func(*Tx) error) error {
	v := &view{cache: e.prepared.cache}
	err := e.look(ctx, v, fn)
	for _, query := range v.missed { // for the next time, now that no connection is held
		if _, perr := e.prepared.get(ctx, query); perr != nil { //nolint:sqlclosecheck // kept in the cache
			break
		}
	}
	return classify(err)
}

// look runs fn in one read transaction.
func (e *sqliteEngine) look(ctx context.Context, v *view, fn func(*Tx) error) error {
	conn, err := e.readPool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if v.tx, err = conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
		return err
	}
	defer func() { _ = v.tx.Rollback() }()
	return newTx(&txConn{db: v, detach: true}, e.clock).run(fn)
}

func (e *sqliteEngine) publish(notes []note) {
	if e.faults.Publish == nil {
		return
	}
	for _, n := range notes {
		e.faults.Publish(n.topic, n.key)
	}
}

func (e *sqliteEngine) ping(ctx context.Context) error { return classify(e.readPool.PingContext(ctx)) }

func (e *sqliteEngine) close() error {
	if !e.stop() {
		return nil
	}
	return errors.Join(e.readPool.Close(), e.writer.closePool())
}
