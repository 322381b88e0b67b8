// Package read turns rows into the types that people see: runs, jobs, reasons, agents, scalers, the queue, sources,
// deliveries and logs. The API and the dashboard both read through it, so that they cannot tell different stories. It
// changes nothing. Every method takes the Scope of the caller and shows nothing outside it. A page costs a fixed number of
// queries, whatever its length.
package read

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Scope is what the caller may see: one organisation, and in it one routing key or, when that is empty, all.
type Scope struct{ OrgID, RoutingKey string }

// The errors that callers tell apart.
var (
	ErrNotFound  = errors.New("not found")
	ErrForbidden = errors.New("belongs to another routing key") // ADM-5: 403, not 404
	ErrInvalid   = errors.New("invalid request")
)

// LogRef names the log of one attempt of a job.
type LogRef struct {
	RunID, JobID string
	Attempt      int
}

// LogReader reads step logs. A cursor is opaque; "" is the start. A log that does not exist, or not yet, is empty.
type LogReader interface {
	ReadLines(ctx context.Context, ref LogRef, step int, cursor string, limit int) (lines []client.LogLine, next string, err error)
	// SeekLine gives the cursor from which a line (from 1) follows and how many lines stand before it; both are of the end when the
	// log has fewer lines.
	SeekLine(ctx context.Context, ref LogRef, step int, line int64) (cursor string, before int64, err error)
	SearchLines(ctx context.Context, ref LogRef, step int, q LogQuery) (LogFound, error)
}

// LogQuery asks for the lines that contain a text, whatever its case, from a cursor on or, backward, before it.
type LogQuery struct {
	Text     string
	Cursor   string
	Backward bool
	Limit    int // clamped to 1…logs.MaxMatches
}

// LogFound is the lines that were found. Done says that nothing is left in the query's direction; else the search, which also ends
// after a while (2 s), goes on at Next. Searched is how many lines stand before Next.
type LogFound struct {
	Lines    []client.LogLine
	Next     string
	Searched int64
	Done     bool
}

// database is the part of the store that reads use.
type database interface {
	Snapshot(ctx context.Context, f func(*store.Tx) error) error
}

// Config is what Reads needs besides the store.
type Config struct {
	Now     func() time.Time
	BaseURL func() string // of the dashboard, without a trailing slash: https://ci.example.org/kici
	Logs    LogReader
}

// Reads answers questions.
type Reads struct {
	db   database
	conf Config
}

// New returns a Reads over st.
func New(st database, c Config) *Reads { return &Reads{db: st, conf: c} }

func (r *Reads) now() int64 { return r.conf.Now().UnixMilli() }

// view runs f on one consistent view of the store.
func (r *Reads) view(ctx context.Context, f func(*db.Queries) error) error {
	return r.db.Snapshot(ctx, func(tx *store.Tx) error { return f(tx.Queries) })
}

// RunURL is the address of a run's page.
func (r *Reads) RunURL(id string) string { return r.conf.BaseURL() + "/runs/" + id }

// Limits of a page (ADM-8: clamped, never refused).
const (
	DefaultLimit = 20
	MaxLimit     = 100
	MaxLogLimit  = 2000
)

func clamp(n, def, most int) int {
	if n <= 0 {
		return def
	}
	return min(n, most)
}

// position is where a page starts: strictly beyond (at, id).
type position struct {
	at int64
	id string
}

const maxInt64 = int64(^uint64(0) >> 1)

func (p position) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.at, 36) + "." + p.id))
}

// parseCursor reads a cursor; "" gives start. A cursor that we did not make is ErrInvalid.
func parseCursor(s string, start position) (position, error) {
	if s == "" {
		return start, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	at, id, ok := strings.Cut(string(b), ".")
	n, numErr := strconv.ParseInt(at, 36, 64)
	if err != nil || !ok || numErr != nil {
		return position{}, fmt.Errorf("%w: the cursor is not one that this server gave", ErrInvalid)
	}
	return position{n, id}, nil
}

var newest = position{maxInt64, ""}

// cut shortens rows, of which limit+1 were asked for, to a page and gives the cursor of the next one.
func cut[T any](rows []T, limit int, pos func(T) position) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], pos(rows[limit-1]).cursor()
}

func notFound(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s %w", what, ErrNotFound)
	}
	return err
}

func (s Scope) check(routingKey, what string) error {
	if s.RoutingKey != "" && s.RoutingKey != routingKey {
		return fmt.Errorf("%s %w", what, ErrForbidden)
	}
	return nil
}

func timePtr(t sql.NullInt64) *client.Time {
	if !t.Valid {
		return nil
	}
	v := client.TimeOf(t.Int64)
	return &v
}

// span is to-from in ms, up to now while to is open; nil when it has not begun.
func span(from, to sql.NullInt64, now int64) *int64 {
	if !from.Valid {
		return nil
	}
	d := now - from.Int64
	if to.Valid {
		d = to.Int64 - from.Int64
	}
	d = max(d, 0)
	return &d
}
