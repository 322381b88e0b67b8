package store

import (
	"context"
	"database/sql"
	"errors"
)

// view is the DBTX of one snapshot on SQLite. It uses the pool's prepared statements, and prepares what is new on its own
// connection: if it asked the pool for another one while it holds one, as many snapshots as there are connections would wait for
// each other for ever.
type view struct {
	tx     *sql.Tx
	cache  *stmtCache
	missed []string // prepared for this snapshot only
}

func (v *view) get(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := v.cache.get(query); stmt != nil { //nolint:sqlclosecheck // kept in the cache
		return v.tx.StmtContext(ctx, stmt), nil
	}
	stmt, err := v.tx.PrepareContext(ctx, StripLocking(query)) // closed with the transaction
	if err == nil {
		v.missed = append(v.missed, query)
	}
	return stmt, err
}

func (v *view) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := v.get(ctx, query) //nolint:sqlclosecheck // closed with the transaction
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (v *view) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := v.get(ctx, query) //nolint:sqlclosecheck // closed with the transaction
	if err != nil {
		return v.tx.QueryRowContext(ctx, StripLocking(query), args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

func (v *view) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("rows are changed in Write")
}

func (v *view) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return v.get(ctx, query)
}
