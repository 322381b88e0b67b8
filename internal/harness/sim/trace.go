package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is what happened, in order, and its hash.
type trace struct {
	began time.Time
	out   io.Writer // nil, or gets every line

	mu    sync.Mutex
	hash  uint64
	at    time.Duration // of the lines that are not part of the hash yet
	now   []string
	lines []string
	count int
}

// keptLines are shown with a failure.
const keptLines = 2000

func (t *trace) add(format string, args ...any) {
	at := time.Since(t.began)
	line := fmt.Sprintf("%14.9f ", at.Seconds()) + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if at != t.at {
		t.seal()
		t.at = at
	}
	t.now = append(t.now, line)
	t.count++
	t.keep(line)
}

// seal adds the lines of an instant to the hash. What happened at the same instant happened in no order.
func (t *trace) seal() {
	slices.Sort(t.now)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x%s", t.hash, strings.Join(t.now, ""))
	t.hash, t.now = h.Sum64(), t.now[:0]
}

// sum is the hash of all.
func (t *trace) sum() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seal()
	return t.hash
}

// note is a line that does not count: what it says may differ between two runs of a seed.
func (t *trace) note(format string, args ...any) {
	line := fmt.Sprintf("%14.9f   ", time.Since(t.began).Seconds()) + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(line)
}

func (t *trace) keep(line string) {
	if t.out != nil {
		_, _ = fmt.Fprintln(t.out, line)
	}
	if len(t.lines) >= 2*keptLines {
		t.lines = append(t.lines[:0], t.lines[keptLines:]...)
	}
	t.lines = append(t.lines, line)
}

// last are the last lines that say one of the words; all of them without words.
func (t *trace) last(n int, words ...string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, line := range t.lines {
		for _, w := range words {
			if strings.Contains(line, w) {
				out = append(out, line)
				break
			}
		}
		if len(words) == 0 {
			out = append(out, line)
		}
	}
	return out[max(0, len(out)-n):]
}

// logger makes the log of an actor part of the trace, as notes.
func (t *trace) logger(actor string, level slog.Level) *slog.Logger {
	return slog.New(&logHandler{t: t, actor: actor, level: level})
}

type logHandler struct {
	t     *trace
	actor string
	level slog.Level
	attrs []slog.Attr
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	for _, a := range h.attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.t.note("%s %s: %s%s", h.actor, r.Level, r.Message, b.String())
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &c
}

func (h *logHandler) WithGroup(string) slog.Handler { return h }
