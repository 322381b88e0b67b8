package store

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kici-go/kici/internal/store/db"
)

// txConn is a transaction's connection. After the first failed statement it refuses the others, so that both engines
// behave alike: PostgreSQL refuses them itself.
type txConn struct {
	db     db.DBTX
	detach bool        // SQLite: an interrupted statement rolls everybody's transaction back, so contexts are only looked at before
	onFail func(error) // nil, or told of every failed statement
	failed error
	over   bool
}

var errRefused = errors.New("an earlier statement of the transaction failed")

func isRefusal(err error) bool { return errors.Is(err, errRefused) || errors.Is(err, context.Canceled) }

func (c *txConn) fail(err error) {
	if err == nil {
		return
	}
	if c.failed == nil {
		c.failed = err
	}
	if c.onFail != nil {
		c.onFail(err)
	}
}

// enter returns the context to use for one statement, or why there must be none.
func (c *txConn) enter(ctx context.Context) (context.Context, error) {
	switch {
	case c.over:
		return ctx, errNoTx
	case c.failed != nil:
		return ctx, errRefused
	case ctx.Err() != nil:
		c.fail(ctx.Err())
		return ctx, ctx.Err()
	case c.detach:
		return context.WithoutCancel(ctx), nil
	}
	return ctx, nil
}

func (c *txConn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	res, err := c.db.ExecContext(ctx, query, storable(args)...)
	c.fail(err)
	return res, err
}

func (c *txConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := c.db.QueryContext(ctx, query, storable(args)...)
	c.fail(err)
	return rows, err
}

func (c *txConn) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, err := c.enter(ctx)
	if err != nil {
		ctx = cancelled() // a Row with an error of our own cannot be made
	}
	row := c.db.QueryRowContext(ctx, query, storable(args)...)
	if err == nil {
		c.fail(row.Err())
	}
	return row
}

func (c *txConn) PrepareContext(context.Context, string) (*sql.Stmt, error) {
	return nil, errors.New("statements are prepared by the store")
}

// reader is the DBTX of reads outside a transaction.
type reader struct {
	db     db.DBTX
	gate   func(context.Context) error // nil, or waits until a connection is free
	detach bool                        // SQLite: watching a context costs several times the read
	stale  func(error) bool            // nil, or whether the query met a dead connection and may be sent again
}

// staleTries is more than there are connections, all of which may have died together.
const staleTries = 25

func (r *reader) again(err error, attempt int) bool {
	return err != nil && r.stale != nil && r.stale(err) && attempt < staleTries
}

func (r *reader) enter(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return ctx, err
	}
	if r.gate != nil {
		if err := r.gate(ctx); err != nil {
			return ctx, err
		}
	}
	if r.detach {
		ctx = context.WithoutCancel(ctx)
	}
	return ctx, nil
}

func (r *reader) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("rows are changed in Write")
}

func (r *reader) PrepareContext(context.Context, string) (*sql.Stmt, error) {
	return nil, errors.New("statements are prepared by the store")
}

func (r *reader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	args = storable(args)
	for attempt := 1; ; attempt++ {
		rows, err := r.db.QueryContext(ctx, query, args...)
		if !r.again(err, attempt) {
			return rows, err
		}
	}
}

func (r *reader) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, err := r.enter(ctx)
	if err != nil {
		ctx = cancelled()
	}
	args = storable(args)
	for attempt := 1; ; attempt++ {
		row := r.db.QueryRowContext(ctx, query, args...)
		if !r.again(row.Err(), attempt) {
			return row
		}
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// prepared is a DBTX that prepares every SQL text once. Preparing costs SQLite as much as running (D27).
type prepared struct {
	prepare func(context.Context, string) (*sql.Stmt, error)
	raw     db.DBTX // the same connection, for a Row that carries the error of preparing
	cache   *stmtCache
}

type stmtCache struct {
	mu    sync.RWMutex
	stmts map[string]*sql.Stmt
}

func newStmtCache() *stmtCache { return &stmtCache{stmts: map[string]*sql.Stmt{}} }

func (p *prepared) get(ctx context.Context, query string) (*sql.Stmt, error) {
	stmt := p.cache.get(query)
	if stmt == nil {
		made, err := p.prepare(context.WithoutCancel(ctx), StripLocking(query))
		if err != nil {
			return nil, err
		}
		p.cache.mu.Lock()
		if stmt = p.cache.stmts[query]; stmt == nil {
			stmt = made
			p.cache.stmts[query] = made
		} else {
			_ = made.Close() //nolint:sqlclosecheck // only the loser of a race is closed
		}
		p.cache.mu.Unlock()
	}
	return stmt, nil
}

func (c *stmtCache) get(query string) *sql.Stmt {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.stmts[query]
}

func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := p.get(ctx, query) //nolint:sqlclosecheck // kept in the cache
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := p.get(ctx, query) //nolint:sqlclosecheck // kept in the cache
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := p.get(ctx, query) //nolint:sqlclosecheck // kept in the cache
	if err != nil {
		return p.raw.QueryRowContext(ctx, StripLocking(query), args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

func (p *prepared) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return p.get(ctx, query)
}

var locking = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\s+FOR\s+(NO\s+KEY\s+)?(UPDATE|SHARE)(\s+OF\s+\w+)?(\s+SKIP\s+LOCKED|\s+NOWAIT)?\b`)
})

// StripLocking removes the row locks that SQLite neither knows nor needs.
func StripLocking(query string) string { return locking().ReplaceAllString(query, "") }

// storable replaces what PostgreSQL refuses in text (NUL, invalid UTF-8), on both engines alike, because outsiders
// choose branch names and programs choose their last words.
func storable(args []any) []any {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = CleanText(v)
		case sql.NullString:
			v.String = CleanText(v.String)
			args[i] = v
		}
	}
	return args
}

// CleanText returns s as the store keeps it: valid UTF-8 without NUL.
func CleanText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
