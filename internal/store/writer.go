package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// maxGroup bounds how many requests share one commit, and so how long the first of them waits for the others.
const maxGroup = 64

// slowRequest is how long a transaction function may take before the log says so.
const slowRequest = time.Second

// request is one Write that waits for the writer.
type request struct {
	ctx  context.Context
	term int64
	fn   func(*Tx) error

	notes []note
	err   error
	done  chan struct{} // closed when notes and err are final
}

func (r *request) finish(err error) {
	r.err = err
	if err != nil {
		r.notes = nil
	}
	close(r.done)
}

// writer owns the writing connection. Its goroutine takes the requests that wait and commits them as one group.
type writer struct {
	pool          *sql.DB
	conn          *sql.Conn
	stmts         *prepared
	now           func() time.Time
	before, after func()
	faults        Faults
	stats         *stats
	log           *slog.Logger

	requests chan *request
	quit     chan struct{}
	ended    chan struct{}

	mu      sync.RWMutex // held for reading while a request is handed over
	stopped bool
}

func newWriter(ctx context.Context, pool *sql.DB, c Config, st *stats) (*writer, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{
		pool: pool, conn: conn, now: c.Now, before: c.BeforeCommit, after: c.AfterCommit, faults: c.Faults, stats: st, log: c.Log,
		stmts:    &prepared{prepare: conn.PrepareContext, raw: conn, cache: newStmtCache()},
		requests: make(chan *request, maxGroup),
		quit:     make(chan struct{}),
		ended:    make(chan struct{}),
	}
	go w.run()
	return w, nil
}

func (w *writer) submit(r *request) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.stopped {
		return ErrClosed
	}
	select {
	case w.requests <- r:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// stop refuses new requests, waits until the accepted ones are done and reports whether it was the first to stop.
func (w *writer) stop() bool {
	w.mu.Lock()
	first := !w.stopped
	w.stopped = true
	w.mu.Unlock()
	if first {
		close(w.quit)
	}
	<-w.ended
	return first
}

func (w *writer) closePool() error { return errors.Join(w.conn.Close(), w.pool.Close()) }

func (w *writer) run() {
	normal := false
	defer func() {
		if !normal { // a transaction function ended the goroutine (testing.T.FailNow)
			go w.run()
			return
		}
		close(w.ended)
	}()
	for {
		select {
		case r := <-w.requests:
			w.commitGroup(r)
			continue
		default:
		}
		select {
		case r := <-w.requests:
			w.commitGroup(r)
		case <-w.quit:
			if len(w.requests) == 0 {
				normal = true
				return
			}
		}
	}
}

// commitGroup runs first and whoever waits behind it in one transaction.
func (w *writer) commitGroup(first *request) {
	g := &group{w: w}
	defer g.abandon()
	for r := first; r != nil; r = w.next(len(g.members)) {
		g.add(r)
		if g.broken != nil {
			break
		}
	}
	g.commit()
}

// next takes another request for the group. When none waits it lets those who are about to ask do so first: a fuller group is one
// fsync less, and on an idle machine the yield costs nothing.
func (w *writer) next(have int) *request {
	if have >= maxGroup {
		return nil
	}
	for yielded := false; ; yielded = true {
		select {
		case r := <-w.requests:
			return r
		default:
		}
		if yielded {
			return nil
		}
		runtime.Gosched()
	}
}

// group is one SQLite transaction and the requests whose changes are in it.
type group struct {
	w       *writer
	open    bool
	members []*request
	again   []*request // were members, and are to be run once more
	current *request
	careful bool  // somebody has failed: from now on everybody has a savepoint
	broken  error // SQLite may have rolled back by itself: nothing more may run in this transaction
}

func (g *group) exec(query string) error {
	_, err := g.w.stmts.ExecContext(context.Background(), query)
	return err
}

// add runs one request. A savepoint for each costs a third of the writer's time and hardly any request fails, so there is none
// until one does; then the transaction is undone as a whole, and the others run once more, with savepoints.
func (g *group) add(r *request) {
	if err := r.ctx.Err(); err != nil {
		r.finish(err)
		return
	}
	if !g.open {
		if err := g.exec("BEGIN IMMEDIATE"); err != nil {
			r.finish(classify(err))
			return
		}
		g.open = true
	}
	saved := g.careful && len(g.members) > 0 // the first needs none: undoing it is undoing everything
	if saved {
		if err := g.exec("SAVEPOINT w"); err != nil {
			g.broken = err
			r.finish(classify(err))
			return
		}
	}
	g.current = r
	began := time.Now()
	err := g.runRequest(r)
	if took := time.Since(began); took > slowRequest {
		g.w.log.Warn("slow transaction function: everybody waits for it", "took", took)
	}
	g.current = nil
	if err != nil {
		g.undo(saved)
		r.finish(classify(err))
		g.repeat()
		return
	}
	if saved && g.broken == nil {
		if err := g.exec("RELEASE w"); err != nil {
			g.broken = err
		}
	}
	g.members = append(g.members, r)
}

// repeat runs those once more whose changes went with somebody else's.
func (g *group) repeat() {
	if g.open || g.broken != nil || len(g.members) == 0 {
		return
	}
	g.careful = true
	g.members, g.again = nil, g.members
	for len(g.again) > 0 {
		r := g.again[0]
		g.again = g.again[1:]
		if g.broken != nil {
			r.finish(classify(g.broken))
			continue
		}
		g.add(r)
	}
}

func (g *group) runRequest(r *request) error {
	conn := &txConn{db: g.w.stmts, detach: true, onFail: func(err error) {
		if endsTransaction(err) {
			g.broken = err
		}
	}}
	tx := newTx(conn, func() (int64, error) { return g.w.now().UnixMilli(), nil })
	err := tx.run(func(tx *Tx) error {
		if r.term > 0 {
			if err := tx.checkTerm(r.ctx, r.term); err != nil {
				return err
			}
		}
		return r.fn(tx)
	})
	r.notes = tx.notes
	return err
}

// undo takes back what the current request did, and nothing else if that is possible.
func (g *group) undo(saved bool) {
	if g.broken != nil {
		return
	}
	if !saved {
		g.rollback()
		return
	}
	if err := g.exec("ROLLBACK TO w"); err != nil {
		g.broken = err
		return
	}
	if err := g.exec("RELEASE w"); err != nil {
		g.broken = err
	}
}

func (g *group) rollback() {
	if err := g.exec("ROLLBACK"); err != nil {
		g.w.log.Debug("rollback", "err", err) // SQLite had done it already
	}
	g.open = false
}

// commit makes the group durable, or fails every member.
func (g *group) commit() {
	if !g.open {
		return
	}
	if g.broken != nil || len(g.members) == 0 {
		err := g.broken
		g.rollback()
		g.finishAll(err)
		return
	}
	if g.w.before != nil {
		g.w.before()
	}
	terms := g.terms()
	err := g.w.faults.commit(terms)
	if err == nil {
		err = g.exec("COMMIT")
	}
	if err != nil {
		g.rollback()
		g.finishAll(fmt.Errorf("commit: %w", err))
		return
	}
	g.open = false
	g.w.stats.committed(int64(len(g.members)))
	if g.w.after != nil {
		g.w.after()
	}
	g.finishAll(g.w.faults.committed(terms))
}

// terms are those of the leader writes in the group, for Faults.
func (g *group) terms() (out []int64) {
	if g.w.faults.Commit == nil {
		return nil
	}
	for _, r := range g.members {
		if r.term > 0 {
			out = append(out, r.term)
		}
	}
	return out
}

func (g *group) finishAll(err error) {
	err = classify(err)
	for _, r := range append(g.members, g.again...) {
		r.finish(err)
	}
	g.members, g.again = nil, nil
}

// abandon answers everybody when the goroutine is ending in the middle of a group; after a commit it finds nothing to do.
func (g *group) abandon() {
	if g.current == nil && !g.open {
		return
	}
	err := errors.New("the transaction function ended its goroutine")
	g.rollback()
	if g.current != nil {
		g.current.finish(err)
		g.current = nil
	}
	g.finishAll(err)
}
