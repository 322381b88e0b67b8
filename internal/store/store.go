package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kici-go/kici/internal/store/db"
)

// Config says where the store is and whose clock it uses.
type Config struct {
	URL string           // postgres://…; "" is the SQLite file <Dir>/kici.db
	Dir string           // data directory; used by SQLite only
	Now func() time.Time // process clock, tx.Now on SQLite; nil is time.Now
	Log *slog.Logger     // nil discards

	// AsIs refuses a schema that is not this program's with ErrOtherSchema, instead of bringing it up to date.
	AsIs bool

	// BeforeCommit and AfterCommit are called around every commit that changed something: the crash harness dies there.
	BeforeCommit, AfterCommit func()
	Faults                    Faults // of the simulation
	// Unsynced lets SQLite answer before the disk has the commit. Only for tests and simulation: it breaks "accepted
	// means durable" when the machine (not the process) stops.
	Unsynced bool
}

// FileName is the SQLite file's name in the data directory.
const FileName = "kici.db"

func (c Config) path() string { return filepath.Join(c.Dir, FileName) }

// engine is what differs between SQLite and PostgreSQL.
type engine interface {
	// write runs fn durably. term > 0 makes it a leader write.
	write(ctx context.Context, term int64, fn func(*Tx) error) ([]note, error)
	snapshot(ctx context.Context, fn func(*Tx) error) error
	// publish passes notes to other processes; delivery inside this one is the hub's.
	publish([]note)
	ping(ctx context.Context) error
	close() error
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	engine  engine
	reads   *db.Queries
	hub     *hub
	faults  Faults
	stats   *stats
	dialect Dialect
}

// Dialect names the engine.
type Dialect string

// The two engines.
const (
	SQLite     Dialect = "sqlite"
	PostgreSQL Dialect = "postgres"
)

// Open opens the store and brings its schema up to date. A schema newer than this binary is ErrNewerSchema.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("component", "store")
	s := &Store{hub: newHub(c.Faults), faults: c.Faults, stats: &stats{}}
	open := s.openSQLite
	if c.URL != "" {
		open = s.openPostgres
	}
	if err := open(ctx, c); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// Close lets writes in progress end, refuses later ones with ErrClosed and closes every connection.
func (s *Store) Close() error { return s.engine.close() }

// Dialect tells which engine this is, for messages and metrics.
func (s *Store) Dialect() Dialect { return s.dialect }

// Read gives the queries outside a transaction: each sees the latest committed state. Never call it inside Write.
func (s *Store) Read() *db.Queries { return s.reads }

// Snapshot runs fn on one consistent, read-only view.
func (s *Store) Snapshot(ctx context.Context, fn func(*Tx) error) error {
	if err := s.faults.enter(ctx); err != nil {
		return err
	}
	return s.engine.snapshot(ctx, fn)
}

// Write runs fn in a transaction and returns nil when its changes are durable. Any error means that none of them are
// there, except when the connection to PostgreSQL broke during the commit itself.
func (s *Store) Write(ctx context.Context, fn func(*Tx) error) error {
	return s.write(ctx, 0, fn)
}

// Lead is a Write under a leader's term: it fails with ErrNotLeader, changing nothing, when the term is not the newest
// (D29). While it runs no takeover can commit.
func (s *Store) Lead(ctx context.Context, term int64, fn func(*Tx) error) error {
	if term <= 0 {
		return ErrNotLeader
	}
	s.faults.lead()
	return s.write(ctx, term, fn)
}

func (s *Store) write(ctx context.Context, term int64, fn func(*Tx) error) error {
	if err := s.faults.enter(ctx); err != nil {
		return err
	}
	notes, err := s.engine.write(ctx, term, fn)
	s.stats.wrote(err)
	if err != nil {
		return err
	}
	s.announce(notes)
	return nil
}

// Subscribe returns wake-ups for one key of a topic, or for all of them when key is "".
func (s *Store) Subscribe(t Topic, key string) *Subscription { return s.hub.subscribe(note{t, key}) }

// Publish notifies outside any transaction. An empty key wakes every subscriber of the topic.
func (s *Store) Publish(t Topic, key string) { s.announce([]note{{t, key}}) }

func (s *Store) announce(notes []note) {
	if len(notes) == 0 {
		return
	}
	s.hub.deliver(notes)
	s.engine.publish(notes)
}

// Ping tells whether the store can be read now.
func (s *Store) Ping(ctx context.Context) error { return s.engine.ping(ctx) }

// Stats returns counters since Open.
func (s *Store) Stats() Stats { return s.stats.snapshot() }

var errNoTx = errors.New("the transaction has ended")
