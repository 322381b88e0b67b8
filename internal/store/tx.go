package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/kici-go/kici/internal/store/db"
)

// Tx is one transaction. It ends with the function that received it and must not be kept.
type Tx struct {
	*db.Queries
	conn  *txConn
	clock func() (int64, error)
	now   int64
	notes []note
}

func newTx(conn *txConn, clock func() (int64, error)) *Tx {
	return &Tx{Queries: db.New(conn), conn: conn, clock: clock}
}

// Now is the transaction's instant: the process clock on SQLite, the database's on PostgreSQL. It is read when first
// asked for and does not move afterwards.
func (tx *Tx) Now() int64 {
	if tx.now != 0 {
		return tx.now
	}
	now, err := tx.clock()
	if err != nil {
		tx.conn.fail(fmt.Errorf("read database clock: %w", err))
	}
	tx.now = now
	return now
}

// Notify wakes subscribers once the transaction is durable. An empty key wakes every subscriber of the topic.
func (tx *Tx) Notify(t Topic, key string) { tx.notes = addNote(tx.notes, note{t, key}) }

// run calls fn, contains its panic and returns the transaction's verdict: a failed statement loses it even when fn
// returned nil.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in transaction: %v\n%s", p, debug.Stack())
		}
		if tx.conn.failed != nil && (err == nil || isRefusal(err)) {
			err = tx.conn.failed
		}
		tx.conn.over = true
	}()
	return fn(tx)
}

// checkTerm fences a leader write. FOR SHARE (stripped on SQLite, which has one writer) holds a takeover back until this
// transaction ends; a plain subselect does not (D29).
func (tx *Tx) checkTerm(ctx context.Context, term int64) error {
	current, err := tx.LeaderTermForShare(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotLeader
	}
	if err != nil {
		return fmt.Errorf("read leader term: %w", err)
	}
	if current != term {
		return ErrNotLeader
	}
	return nil
}
