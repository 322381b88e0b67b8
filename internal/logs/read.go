package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/kici-go/kici/internal/wire"
)

// Bounds of a page (STO-12).
const (
	DefaultLines = 500
	MaxLines     = 2000
	maxPageBytes = 1 << 20
)

// Read returns complete lines of a step's log from the byte cursor on, and the cursor behind them. limit is clamped; 0 is
// DefaultLines. A log that does not exist, or not yet, is an empty page.
func (s *Store) Read(ctx context.Context, job Job, step int, cursor int64, limit int) ([]wire.LogLine, int64, error) {
	f, err := s.openForRead(job, step)
	if err != nil || f == nil {
		return nil, cursor, err
	}
	defer f.Close()
	if limit <= 0 {
		limit = DefaultLines
	}
	limit = min(limit, MaxLines)
	cursor = max(cursor, 0)
	r := bufio.NewReaderSize(io.NewSectionReader(f, cursor, 1<<62-cursor), 64<<10)
	lines := []wire.LogLine{}
	for bytesRead := int64(0); len(lines) < limit && bytesRead < maxPageBytes; {
		raw, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // what stands behind the last newline is still being written
		} else if err != nil {
			return nil, cursor, fmt.Errorf("read step log: %w", err)
		}
		bytesRead += int64(len(raw))
		cursor += int64(len(raw))
		lines = append(lines, decode(raw))
		if ctx.Err() != nil {
			return nil, cursor, ctx.Err()
		}
	}
	return lines, cursor, nil
}

// Raw returns the stored JSON lines of a step; a missing log is empty. The caller closes it.
func (s *Store) Raw(_ context.Context, job Job, step int) (io.ReadCloser, error) {
	f, err := s.openForRead(job, step)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	return f, nil
}

// openForRead returns nil for a log that is not there.
func (s *Store) openForRead(job Job, step int) (*os.File, error) {
	if err := checkName(job, step); err != nil {
		return nil, err
	}
	f, err := s.blobs.Get(stepKey(job, step))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// decode never fails: what an agent sent that is no JSON line is shown as it came.
func decode(raw []byte) wire.LogLine {
	var line wire.LogLine
	if err := json.Unmarshal(raw, &line); err != nil {
		return wire.LogLine{Level: "stdout", Msg: string(bytes.ToValidUTF8(bytes.TrimRight(raw, "\n"), []byte("\uFFFD")))}
	}
	return line
}
