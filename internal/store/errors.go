package store

import (
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Errors that callers tell apart.
var (
	ErrNotLeader   = errors.New("not the leader: a newer term exists")
	ErrClosed      = errors.New("the store is closed")
	ErrFull        = errors.New("no space left for the database")
	ErrReadOnly    = errors.New("the database cannot be written")
	ErrCorrupt     = errors.New("the database file is damaged or not a database")
	ErrBusy        = errors.New("the database is busy")
	ErrNewerSchema = errors.New("the database was made by a newer kici")
	ErrOtherSchema = errors.New("the database is not of this version of kici")
)

// IsUnique tells whether err is a unique or primary key violation.
func IsUnique(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "23505"
	}
	return false
}

// classify adds the sentinel that a driver's error stands for.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func kindOf(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return sqliteKind(e.Code())
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "53100":
			return ErrFull
		case "25006":
			return ErrReadOnly
		case "53300", "55P03", "57014":
			return ErrBusy
		}
	}
	return nil
}

func sqliteKind(code int) error {
	if code == sqlite3.SQLITE_IOERR_SHMSIZE { // the shared memory file could not grow
		return ErrFull
	}
	switch code & 0xff {
	case sqlite3.SQLITE_FULL:
		return ErrFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return ErrReadOnly
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrCorrupt
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ErrBusy
	}
	return nil
}

// endsTransaction tells whether SQLite may have rolled the whole transaction back by itself after err.
func endsTransaction(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_TOOBIG:
		return false
	}
	return true
}

// retryable tells whether PostgreSQL wants the same transaction again.
func retryable(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// lostConnection tells whether the link to PostgreSQL broke, rather than a statement.
func lostConnection(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return len(e.Code) == 5 && (e.Code[:2] == "08" || e.Code[:3] == "57P")
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return pgconn.SafeToRetry(err) || errors.As(err, &network) || errors.As(err, &connect) || isClosedPipe(err)
}
