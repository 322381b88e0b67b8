package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/wire"
)

// logStore is the log storage (logs.Store).
type logStore interface {
	Read(ctx context.Context, job logs.Job, step int, cursor int64, limit int) ([]wire.LogLine, int64, error)
	Raw(ctx context.Context, job logs.Job, step int) (io.ReadCloser, error)
}

// StepLogs is a LogReader over the log storage. Its cursors say how many bytes and lines stand before them, so that every line has
// its number without a count from the start.
type StepLogs struct{ store logStore }

// NewStepLogs returns a LogReader over st.
func NewStepLogs(st logStore) *StepLogs { return &StepLogs{st} }

type logPosition struct{ bytes, lines int64 }

func (p logPosition) String() string {
	return strconv.FormatInt(p.bytes, 10) + "-" + strconv.FormatInt(p.lines, 10)
}

func parseLogPosition(s string) (p logPosition, err error) {
	if s == "" {
		return p, nil
	}
	b, l, ok := strings.Cut(s, "-")
	var e1, e2 error
	p.bytes, e1 = strconv.ParseInt(b, 10, 64)
	p.lines, e2 = strconv.ParseInt(l, 10, 64)
	if !ok || e1 != nil || e2 != nil || p.bytes < 0 || p.lines < 0 {
		return logPosition{}, fmt.Errorf("%w: log cursor %q is not one that this server gave", ErrInvalid, s)
	}
	return p, nil
}

func jobOfRef(r LogRef) logs.Job { return logs.Job{RunID: r.RunID, JobID: r.JobID, Attempt: r.Attempt} }

// ReadLines implements LogReader.
func (s *StepLogs) ReadLines(ctx context.Context, ref LogRef, step int, cursor string, limit int) ([]client.LogLine, string, error) {
	at, err := parseLogPosition(cursor)
	if err != nil {
		return nil, "", err
	}
	lines, next, err := s.store.Read(ctx, jobOfRef(ref), step, at.bytes, limit)
	if err != nil {
		return nil, "", err
	}
	out := make([]client.LogLine, len(lines))
	for i, l := range lines {
		out[i] = client.LogLine{N: at.lines + int64(i) + 1, TS: l.TS, Level: l.Level, Msg: l.Msg}
	}
	return out, logPosition{next, at.lines + int64(len(lines))}.String(), nil
}

// TailLines implements LogReader. It reads the whole file once to number the lines.
func (s *StepLogs) TailLines(ctx context.Context, ref LogRef, step int, t Tail) ([]client.LogLine, string, error) {
	at, total, err := s.findTail(ctx, ref, step, t)
	if err != nil {
		return nil, "", err
	}
	out, cursor := []client.LogLine{}, at.String()
	for want := int(total - at.lines); want > 0; {
		lines, next, err := s.ReadLines(ctx, ref, step, cursor, want)
		if err != nil || len(lines) == 0 {
			return out, cursor, err
		}
		out, cursor, want = append(out, lines...), next, want-len(lines)
	}
	return out, cursor, nil
}

// findTail gives where the last lines begin, and the number of the last one.
func (s *StepLogs) findTail(ctx context.Context, ref LogRef, step int, t Tail) (logPosition, int64, error) {
	r, err := s.store.Raw(ctx, jobOfRef(ref), step)
	if err != nil {
		return logPosition{}, 0, err
	}
	defer r.Close()
	n := min(max(t.Lines, 1), 100_000)
	starts := make([]int64, n) // of the last n lines, by line number modulo n
	var lines, offset int64    // complete lines, and where the next one begins
	buf := make([]byte, 256<<10)
	var base int64
	for ctx.Err() == nil && (t.UpTo <= 0 || lines < t.UpTo) {
		k, err := r.Read(buf)
		for rest := buf[:k]; t.UpTo <= 0 || lines < t.UpTo; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			starts[lines%int64(n)] = offset
			lines++
			rest = rest[i+1:]
			offset = base + int64(k-len(rest))
		}
		base += int64(k)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return logPosition{}, 0, fmt.Errorf("read step log: %w", err)
		}
	}
	if lines == 0 {
		return logPosition{}, 0, ctx.Err()
	}
	from := max(lines-int64(n), 0)
	return logPosition{starts[from%int64(n)], from}, lines, ctx.Err()
}
