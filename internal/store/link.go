package store

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pgLink carries notifications between processes on PostgreSQL. It sends after the commit, many notes in one message: a
// NOTIFY inside the transaction would make all commits of the server wait for each other. It receives on a connection of
// its own, and wakes everybody after having been away.
type pgLink struct {
	config *pgx.ConnConfig
	e      *pgEngine
	hub    *hub
	log    *slog.Logger
	origin string // names this store in its messages, which it does not deliver twice

	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}

	mu      sync.Mutex
	pending map[note]struct{}
}

const (
	noteBytes    = 7000 // PostgreSQL takes payloads below 8000 bytes
	notesKept    = 10_000
	linkRetryMin = 100 * time.Millisecond
	linkRetryMax = 5 * time.Second
	linkCheck    = 30 * time.Second
	linkTimeout  = 10 * time.Second
)

func startLink(config *pgx.ConnConfig, e *pgEngine, h *hub, log *slog.Logger) *pgLink {
	ctx, cancel := context.WithCancel(context.Background())
	l := &pgLink{
		config: config, e: e, hub: h, log: log, origin: uuid.NewString(), cancel: cancel, wake: make(chan struct{}, 1),
		pending: map[note]struct{}{},
	}
	l.done.Go(func() { l.sendLoop(ctx) })
	l.done.Go(func() { l.listenLoop(ctx) })
	return l
}

func (l *pgLink) stop() {
	l.cancel()
	l.done.Wait()
}

func (l *pgLink) send(notes []note) {
	l.mu.Lock()
	for _, n := range notes {
		if len(l.pending) < notesKept { // beyond that others find the work by themselves
			l.pending[n] = struct{}{}
		}
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *pgLink) sendLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			l.flush(ctx)
			return
		case <-l.wake:
			l.flush(ctx)
		}
	}
}

// flush sends what is pending; also, within a second, what the last moments before stopping left.
func (l *pgLink) flush(ctx context.Context) {
	l.mu.Lock()
	notes := slices.Collect(maps.Keys(l.pending))
	clear(l.pending)
	l.mu.Unlock()
	if len(notes) == 0 {
		return
	}
	limit := linkTimeout
	if ctx.Err() != nil {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, payload := range encodeNotes(l.origin, notes) {
		if _, err := l.e.pool.ExecContext(ctx, pgNotifyQuery, pgNotifyChannel, payload); err != nil {
			l.log.Warn("send notifications", "notes", len(notes), "err", err)
			return
		}
	}
}

func (l *pgLink) listenLoop(ctx context.Context) {
	retry := linkRetryMin
	for first := true; ctx.Err() == nil; first = false {
		err := l.listen(ctx, first)
		if l.e.stats.listening.Swap(false) {
			retry = linkRetryMin
		}
		if ctx.Err() != nil {
			return
		}
		l.e.stats.reconnects.Add(1)
		l.log.Warn("notifications lost, reconnecting", "err", err)
		t := time.NewTimer(retry)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		retry = min(2*retry, linkRetryMax)
	}
}

// listen delivers what other processes send until the connection breaks.
func (l *pgLink) listen(ctx context.Context, first bool) error {
	dial, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(dial, l.config)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bye)
	}()
	if _, err := conn.Exec(dial, "LISTEN "+pgNotifyChannel); err != nil {
		return err
	}
	l.e.stats.listening.Store(true)
	if !first {
		l.hub.deliverAll()
	}
	for {
		if err := l.receive(ctx, conn); err != nil {
			return err
		}
	}
}

// receive waits for one message, or makes sure that the silent connection is alive.
func (l *pgLink) receive(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, linkCheck)
	defer cancel()
	m, err := conn.WaitForNotification(wait)
	if err == nil {
		if origin, notes := decodeNotes(m.Payload); origin != l.origin {
			l.hub.deliver(notes)
		}
		return nil
	}
	if ctx.Err() != nil || wait.Err() == nil || conn.IsClosed() {
		return err
	}
	check, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	return conn.Ping(check)
}

// encodeNotes packs notes into as few payloads as fit: the origin, then one "topic key" a line.
func encodeNotes(origin string, notes []note) []string {
	var out []string
	b := strings.Builder{}
	for _, n := range notes {
		line := "\n" + string(n.topic) + " " + strings.ReplaceAll(n.key, "\n", " ")
		if len(line) > noteBytes-100 { // no real key is so long; everybody of the topic looks instead
			line = "\n" + string(n.topic) + " "
		}
		if b.Len()+len(line) > noteBytes {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(origin)
		}
		b.WriteString(line)
	}
	return append(out, b.String())
}

func decodeNotes(payload string) (origin string, notes []note) {
	lines := strings.Split(payload, "\n")
	for _, line := range lines[1:] {
		topic, key, _ := strings.Cut(line, " ")
		notes = append(notes, note{Topic(topic), key})
	}
	return lines[0], notes
}
