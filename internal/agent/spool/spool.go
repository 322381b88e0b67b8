// Package spool keeps a job's log on the agent's disk until the orchestrator has it (DESIGN §6). A step's output becomes
// lines (wire.LogLine as JSON) in one file a step; one poster sends what is not acknowledged yet, by byte offset, and
// goes on at whatever offset the other side reports. So a dropped link, a restarted coordinator or a burst loses and
// repeats nothing, and memory is bounded whatever the job prints: what bounds it in the end is Config.MaxBytes, with a
// marker in the log.
package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/wire"
)

const (
	linger      = 25 * time.Millisecond // fresh lines wait this long for company
	urgentBytes = 256 << 10             // unless so many wait already
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 5 * time.Second
	postTimeout = 60 * time.Second
	// A chunk ends at the end of a line; a stored line is never longer than this (every byte of a part escaped, and the frame).
	maxStoredLine = 6*(wire.MaxLogLineBytes+8) + 128
)

// ErrGone is returned by a Post when the job is not this agent's any more. The spool then drops everything.
var ErrGone = errors.New("the job is not this agent's any more")

// OffsetError is returned by a Post that was refused because it left a gap; the spool goes on at Offset.
type OffsetError struct{ Offset int64 }

func (e OffsetError) Error() string { return fmt.Sprintf("the log is stored up to byte %d", e.Offset) }

// Chunk is one piece of a step's log. Body may be read more than once by seeking.
type Chunk struct {
	Step   int
	Offset int64
	Body   *io.SectionReader
}

// Post stores a chunk durably. It is called by one goroutine at a time.
type Post func(context.Context, Chunk) (wire.LogAck, error)

// Config is what a spool needs.
type Config struct {
	Dir      string // an existing directory of the job's own; the spool's files are removed as they are acknowledged
	MaxBytes int64  // all steps together, as stored
	Post     Post
	Now      func() time.Time
	Rand     func(n int64) int64 // see service.Env
	Log      *slog.Logger
}

// Spool is the log of one job.
type Spool struct {
	cfg      Config
	total    atomic.Int64 // bytes stored
	full     atomic.Bool  // the bound is reached, here or at the other side: keep nothing more
	wake     *service.Wake
	urgent   *service.Wake
	progress *service.Wake
	kick     *service.Wake

	mu    sync.Mutex
	steps []*Step
	gone  bool
}

// New returns an empty spool; Run must be running for anything to be sent.
func New(c Config) *Spool {
	if c.MaxBytes <= 0 {
		c.MaxBytes = wire.MaxJobLogBytes
	}
	return &Spool{cfg: c, wake: service.NewWake(), urgent: service.NewWake(), progress: service.NewWake(), kick: service.NewWake()}
}

// Open creates the log of one step.
func (s *Spool) Open(step int) (*Step, error) {
	path := filepath.Join(s.cfg.Dir, fmt.Sprintf("step-%d.log", step))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log spool: %w", err)
	}
	st := &Step{spool: s, index: step, file: f, path: path}
	s.mu.Lock()
	s.steps = append(s.steps, st)
	s.mu.Unlock()
	return st, nil
}

// Discard returns a log that keeps nothing, for a step whose own could not be opened.
func (s *Spool) Discard() *Step { return &Step{spool: s, closed: true} }

// Kick makes the poster try at once, for instance because the link is back.
func (s *Spool) Kick() { s.kick.Signal() }

// Run posts until ctx ends, or returns ErrGone.
func (s *Spool) Run(ctx context.Context) error {
	backoff := time.Duration(0)
	for {
		st := s.next()
		if st == nil {
			if !wait(ctx, 0, s.wake, s.urgent) {
				return nil
			}
			continue
		}
		if !st.isUrgent() && !wait(ctx, linger, s.urgent) {
			return nil
		}
		err := s.post(ctx, st)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was to end
		case errors.Is(err, ErrGone):
			s.drop()
			return ErrGone
		case err == nil:
			backoff = 0
			continue
		}
		backoff = min(max(backoff*2, minBackoff), maxBackoff)
		s.cfg.Log.Debug("post log", "step", st.index, "err", err, "again_in", backoff)
		if !wait(ctx, backoff/2+service.Jitter(s.cfg.Rand, backoff), s.kick) {
			return nil
		}
	}
}

// wait sleeps for d (0: without end) or until a wake-up; false means that ctx ended.
func wait(ctx context.Context, d time.Duration, wakes ...*service.Wake) bool {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	var second <-chan struct{}
	if len(wakes) > 1 {
		second = wakes[1].C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-after:
	case <-wakes[0].C():
	case <-second:
	}
	return true
}

// Drained waits until every line of every closed step is acknowledged. It returns ErrGone when the job was taken away.
// Only one goroutine may wait.
func (s *Spool) Drained(ctx context.Context) error {
	for {
		s.mu.Lock()
		gone, open := s.gone, len(s.steps)
		s.mu.Unlock()
		if gone {
			return ErrGone
		}
		if open == 0 {
			return nil
		}
		s.urgent.Signal()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.progress.C():
		}
	}
}

// Truncated reports whether output was dropped because of the bound.
func (s *Spool) Truncated() bool { return s.full.Load() }

// next returns the first step with something to send.
func (s *Spool) next() *Step {
	s.mu.Lock()
	steps := slices.Clone(s.steps)
	s.mu.Unlock()
	for _, st := range steps {
		if st.finished() {
			s.remove(st)
		} else if st.pending() > 0 {
			return st
		}
	}
	return nil
}

func (s *Spool) remove(st *Step) {
	s.mu.Lock()
	s.steps = slices.DeleteFunc(s.steps, func(o *Step) bool { return o == st })
	s.mu.Unlock()
	_ = st.file.Close()
	_ = os.Remove(st.path)
	s.progress.Signal()
}

func (s *Spool) drop() {
	s.full.Store(true)
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.progress.Signal()
}

// Close releases all files, sent or not. Run must have returned.
func (s *Spool) Close() {
	s.full.Store(true)
	s.mu.Lock()
	steps := s.steps
	s.steps = nil
	s.mu.Unlock()
	for _, st := range steps {
		st.mu.Lock()
		st.closed = true
		_ = st.file.Close()
		st.mu.Unlock()
		_ = os.Remove(st.path)
	}
}

func (s *Spool) post(ctx context.Context, st *Step) error {
	chunk, err := st.chunk()
	if err != nil {
		return err
	}
	if chunk.Body.Size() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	ack, err := s.cfg.Post(ctx, chunk)
	if off, ok := errors.AsType[OffsetError](err); ok {
		ack, err = wire.LogAck{Offset: off.Offset}, nil
		s.cfg.Log.Info("log continues at the orchestrator's offset", "step", st.index, "sent_from", chunk.Offset, "offset", off.Offset)
	}
	if err != nil {
		return err
	}
	if ack.Truncated {
		s.full.Store(true)
	}
	return st.acknowledge(ack, chunk.Offset)
}

// Step is the log of one step. Its streams may be written by different goroutines.
type Step struct {
	spool *Spool
	index int
	file  *os.File
	path  string

	mu      sync.Mutex
	buf     []byte // whole lines not yet in the file
	written int64  // bytes in the file, or sent past it
	acked   int64
	missing int64 // the file lacks bytes below this: the disk refused them and they were sent from memory
	lost    int   // lines that had room nowhere
	closed  bool
}

const (
	flushBytes = 64 << 10
	// When the disk refuses, so much is kept in memory before lines are dropped.
	maxBuffered = 1 << 20
)

// Close says that no line follows.
func (st *Step) Close() {
	st.mu.Lock()
	st.closed = true
	st.mu.Unlock()
	st.spool.wake.Signal()
	st.spool.urgent.Signal()
}

// Notice writes a line of kici's own.
func (st *Step) Notice(format string, args ...any) {
	s := st.Stream("kici")
	_, _ = fmt.Fprintf(s, format+"\n", args...)
	s.Close()
}

// append adds encoded lines. The caller holds mu.
func (st *Step) append(lines []byte, count int) {
	s := st.spool
	if st.closed || s.full.Load() {
		return
	}
	if s.total.Add(int64(len(lines))) > s.cfg.MaxBytes {
		if !s.full.Swap(true) {
			st.buf = appendLine(st.buf, s.cfg.Now().UnixMilli(), "kici", []byte(fmt.Sprintf(
				"Log truncated: the job reached its limit of %d bytes; further output is not kept.", s.cfg.MaxBytes)), "")
		}
		return
	}
	if len(st.buf)+len(lines) > maxBuffered {
		st.lost += count
		return
	}
	st.buf = append(st.buf, lines...)
	if len(st.buf) >= flushBytes {
		_ = st.flush() // the poster tries again and reports
	}
}

// flush moves buffered lines to the file. The caller holds mu.
func (st *Step) flush() error {
	if st.lost > 0 && len(st.buf) < maxBuffered/2 { // the marker needs room itself
		st.buf = appendLine(st.buf, st.spool.cfg.Now().UnixMilli(), "kici",
			fmt.Appendf(nil, "%d lines were lost: the agent's disk refused them.", st.lost), "")
		st.lost = 0
	}
	if _, err := st.file.WriteAt(st.buf, st.written); err != nil {
		return fmt.Errorf("spool log: %w", err)
	}
	st.written += int64(len(st.buf))
	st.buf = st.buf[:0]
	return nil
}

func (st *Step) pending() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.written + int64(len(st.buf)+st.lost) - st.acked
}

func (st *Step) isUrgent() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed || st.written+int64(len(st.buf))-st.acked >= urgentBytes
}

func (st *Step) finished() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed && len(st.buf) == 0 && st.acked >= st.written && (st.lost == 0 || st.spool.full.Load())
}

// chunk is the next piece: whole lines, at most wire.MaxLogChunkBytes.
func (st *Step) chunk() (Chunk, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.buf) > 0 || st.lost > 0 {
		if err := st.flush(); err != nil && st.written == st.acked {
			return st.memoryChunk(), nil
		}
	}
	size := st.written - st.acked
	if size > wire.MaxLogChunkBytes {
		tail := make([]byte, maxStoredLine)
		end := st.acked + wire.MaxLogChunkBytes
		if _, err := st.file.ReadAt(tail, end-maxStoredLine); err != nil {
			return Chunk{}, fmt.Errorf("read log spool: %w", err)
		}
		size = wire.MaxLogChunkBytes - int64(len(tail)-1-bytes.LastIndexByte(tail, '\n'))
	}
	return Chunk{Step: st.index, Offset: st.acked, Body: io.NewSectionReader(st.file, st.acked, size)}, nil
}

// memoryChunk is what the disk refuses, straight from memory.
func (st *Step) memoryChunk() Chunk {
	body := slices.Clone(st.buf[:bytes.LastIndexByte(st.buf[:min(len(st.buf), wire.MaxLogChunkBytes)], '\n')+1])
	return Chunk{Step: st.index, Offset: st.acked, Body: io.NewSectionReader(bytes.NewReader(body), 0, int64(len(body)))}
}

// errNoProgress makes the poster pause when an answer moves nothing.
var errNoProgress = errors.New("the orchestrator acknowledged nothing")

func (st *Step) acknowledge(ack wire.LogAck, from int64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if ack.Truncated {
		st.buf, st.lost = nil, 0
		st.acked = st.written
		return nil
	}
	if sent := ack.Offset - st.written; from == st.written && sent > 0 && sent <= int64(len(st.buf)) { // from memory
		st.buf = append(st.buf[:0], st.buf[sent:]...)
		st.written, st.missing = ack.Offset, ack.Offset
	}
	if ack.Offset < st.missing {
		st.spool.full.Store(true)
		st.buf, st.lost, st.acked = nil, 0, st.written
		return fmt.Errorf("the orchestrator wants byte %d again, which the disk had refused: the rest of the log is dropped", ack.Offset)
	}
	if ack.Offset < 0 || ack.Offset > st.written {
		return fmt.Errorf("the orchestrator acknowledged byte %d of %d", ack.Offset, st.written)
	}
	st.acked = ack.Offset // may go back: the other side lost what it had not made durable
	if ack.Offset == from {
		return errNoProgress
	}
	return nil
}
