package read

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/logs"
	"github.com/kici-go/kici/internal/wire"
)

// logStore is the log storage (logs.Store).
type logStore interface {
	Read(ctx context.Context, job logs.Job, step int, cursor int64, limit int) ([]wire.LogLine, int64, error)
	Seek(ctx context.Context, job logs.Job, step int, line int64) (logs.Position, error)
	Search(ctx context.Context, job logs.Job, step int, q logs.Query) (logs.Found, error)
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
		return logPosition{}, fmt.Errorf("%w: the log cursor is not one that this server gave", ErrInvalid)
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

// SeekLine implements LogReader.
func (s *StepLogs) SeekLine(ctx context.Context, ref LogRef, step int, line int64) (string, int64, error) {
	at, err := s.store.Seek(ctx, jobOfRef(ref), step, line)
	return logPosition{at.Bytes, at.Lines}.String(), at.Lines, err
}

// SearchLines implements LogReader.
func (s *StepLogs) SearchLines(ctx context.Context, ref LogRef, step int, q LogQuery) (LogFound, error) {
	at, err := parseLogPosition(q.Cursor)
	if err != nil {
		return LogFound{}, err
	}
	f, err := s.store.Search(ctx, jobOfRef(ref), step, logs.Query{
		Text: q.Text, From: logs.Position{Bytes: at.bytes, Lines: at.lines}, Backward: q.Backward, Limit: q.Limit,
	})
	if err != nil {
		return LogFound{}, err
	}
	out := LogFound{Lines: []client.LogLine{}, Next: logPosition{f.Next.Bytes, f.Next.Lines}.String(), Searched: f.Next.Lines, Done: f.Done}
	for _, m := range f.Matches {
		out.Lines = append(out.Lines, client.LogLine{N: m.N, TS: m.Line.TS, Level: m.Line.Level, Msg: m.Line.Msg})
	}
	return out, nil
}
