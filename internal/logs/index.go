package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// Position is a place between two lines of a step's log: the byte at which the next line begins, and how many lines stand before
// it. The zero value is the start.
type Position struct{ Bytes, Lines int64 }

const (
	blockBytes = 256 << 10 // one mark of an index: 2,048 of them for the longest log, 16 KiB
	maxIndexes = 64

	// unsettled is how much of a file's end an index leaves out: a write that fails there is taken back (stepLog.put, repair).
	unsettled = 2 * chunkBytes
)

// index knows how many lines begin before each block of one file. Whoever holds turn owns the rest, but used, which belongs to
// indexes.mu.
type index struct {
	turn  chan struct{}
	used  int64
	marks []int64 // marks[i] is the number of newlines in the first i blocks
}

// indexes are those of the logs that were read last. They are made when a log is first asked for a line, and grow with it.
type indexes struct {
	mu   sync.Mutex
	tick int64
	by   map[indexKey]*index
}

type indexKey struct {
	job  Job
	step int
}

func (x *indexes) of(k indexKey) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tick++
	ix := x.by[k]
	if ix == nil {
		if len(x.by) >= maxIndexes {
			x.evict()
		}
		ix = &index{turn: make(chan struct{}, 1)}
		x.by[k] = ix
	}
	ix.used = x.tick
	return ix
}

// evict forgets the index that was used longest ago. mu is held; who works with it just now keeps it until it is done.
func (x *indexes) evict() {
	var oldest indexKey
	at := x.tick + 1
	for k, ix := range x.by {
		if ix.used < at {
			oldest, at = k, ix.used
		}
	}
	delete(x.by, oldest)
}

// upTo returns the marks of a file of size bytes, after it has counted what is new.
func (ix *index) upTo(ctx context.Context, f io.ReaderAt, size int64) ([]int64, error) {
	select {
	case ix.turn <- struct{}{}:
		defer func() { <-ix.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if len(ix.marks) == 0 || int64(len(ix.marks)-1)*blockBytes > size {
		ix.marks = []int64{0}
	}
	var buf []byte
	for {
		at := int64(len(ix.marks)-1) * blockBytes
		if at+blockBytes+unsettled > size {
			return slices.Clip(ix.marks), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if buf == nil {
			buf = make([]byte, blockBytes)
		}
		if _, err := f.ReadAt(buf, at); err != nil {
			return nil, fmt.Errorf("read step log: %w", err)
		}
		ix.marks = append(ix.marks, ix.marks[len(ix.marks)-1]+int64(bytes.Count(buf, newline)))
	}
}

// Seek returns the place before a line (from 1), or the end of the complete lines when there are not so many. It reads the log
// once, to count its lines, and after that a few blocks at most. A log that does not exist has its end at the start.
func (s *Store) Seek(ctx context.Context, job Job, step int, line int64) (Position, error) {
	f, err := s.openForRead(job, step)
	if err != nil || f == nil || line <= 1 {
		if f != nil {
			_ = f.Close()
		}
		return Position{}, err
	}
	defer f.Close()
	return s.seek(ctx, f, indexKey{job, step}, line-1)
}

// seek finds the place that has want lines before it.
func (s *Store) seek(ctx context.Context, f *os.File, k indexKey, want int64) (Position, error) {
	info, err := f.Stat()
	if err != nil {
		return Position{}, fmt.Errorf("read step log: %w", err)
	}
	marks, err := s.indexes.of(k).upTo(ctx, f, info.Size())
	if err != nil {
		return Position{}, err
	}
	i, _ := slices.BinarySearch(marks, want) // the block before the first one that has so many lines before it
	i = max(i-1, 0)
	at := int64(i) * blockBytes
	pos := Position{Lines: marks[i]}
	if pos.Bytes, err = lineStart(f, at); err != nil {
		return Position{}, fmt.Errorf("read step log: %w", err)
	}
	buf := make([]byte, 64<<10)
	for pos.Lines < want {
		n, err := f.ReadAt(buf, at)
		for rest := buf[:n]; pos.Lines < want; {
			end := bytes.IndexByte(rest, '\n') + 1
			if end == 0 {
				break
			}
			rest = rest[end:]
			pos = Position{at + int64(n-len(rest)), pos.Lines + 1}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return Position{}, fmt.Errorf("read step log: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return Position{}, err
		}
	}
	return pos, nil
}
