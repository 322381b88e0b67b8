package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/wire"
)

// Bounds of a search.
const (
	MaxMatches   = 200
	MaxQuery     = 200             // bytes
	searchTime   = 2 * time.Second // then it answers with what it has, and where to go on
	searchBuffer = 2 * chunkBytes  // holds more than one line, whatever its length
)

// Query asks for the lines that contain a text. Case does not matter; what a terminal would not show is not looked at (Visible).
type Query struct {
	Text     string
	From     Position
	Backward bool // the lines before From, last first
	Limit    int  // 1 to MaxMatches
}

// Match is a line that was found.
type Match struct {
	N    int64 // from 1
	Line wire.LogLine
}

// Found is the answer to a Query. Done says that no line is left in its direction; otherwise the search goes on at Next.
type Found struct {
	Matches []Match
	Next    Position
	Done    bool
}

// Search reads a step's log from a place on. It ends after Limit matches or about 2 s. An empty text finds nothing.
func (s *Store) Search(ctx context.Context, job Job, step int, q Query) (Found, error) {
	f, err := s.openForRead(job, step)
	if err != nil || f == nil || q.Text == "" {
		if f != nil {
			_ = f.Close()
		}
		return Found{Next: q.From, Done: true}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || q.From.Bytes > info.Size() || q.From.Bytes < 0 {
		return Found{Next: q.From, Done: true}, err
	}
	q.Limit = min(max(q.Limit, 1), MaxMatches)
	sr := searcher{f: f, m: newMatcher(q.Text), limit: q.Limit, out: Found{Next: q.From}, buf: make([]byte, searchBuffer)}
	end := s.now().Add(searchTime)
	for !sr.out.Done && len(sr.out.Matches) < q.Limit && s.now().Before(end) {
		if err := ctx.Err(); err != nil {
			return Found{}, err
		}
		if q.Backward {
			err = sr.back()
		} else {
			err = sr.forth()
		}
		if err != nil {
			return Found{}, fmt.Errorf("search step log: %w", err)
		}
	}
	return sr.out, nil
}

type searcher struct {
	f     *os.File
	m     *matcher
	limit int
	out   Found
	buf   []byte
}

// forth looks through the complete lines of the next buffer.
func (sr *searcher) forth() error {
	n, err := sr.f.ReadAt(sr.buf, sr.out.Next.Bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	lines := sr.buf[:bytes.LastIndexByte(sr.buf[:n], '\n')+1]
	if len(lines) == 0 {
		sr.out.Done = true
		return nil
	}
	at := sr.out.Next
	counted := 0
	sr.m.each(lines, func(from, to int, l wire.LogLine) bool {
		at.Lines += int64(bytes.Count(lines[counted:to], newline))
		counted = to
		sr.out.Matches = append(sr.out.Matches, Match{at.Lines, l})
		return len(sr.out.Matches) < sr.limit
	})
	if len(sr.out.Matches) < sr.limit {
		at.Lines += int64(bytes.Count(lines[counted:], newline))
		counted = len(lines)
	}
	sr.out.Next = Position{at.Bytes + int64(counted), at.Lines}
	return nil
}

// back looks through the buffer of lines before the place.
func (sr *searcher) back() error {
	to := sr.out.Next
	from := max(to.Bytes-int64(len(sr.buf)), 0)
	lines := sr.buf[:to.Bytes-from]
	if _, err := sr.f.ReadAt(lines, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if from > 0 {
		cut := bytes.IndexByte(lines, '\n') + 1
		lines, from = lines[cut:], from+int64(cut)
	}
	if len(lines) == 0 || to.Lines == 0 {
		sr.out.Done = true
		return nil
	}
	type hit struct {
		at Position // before the line
		Match
	}
	var hits []hit
	first := Position{from, to.Lines - int64(bytes.Count(lines, newline))}
	at, counted := first, 0
	sr.m.each(lines, func(start, end int, l wire.LogLine) bool {
		at.Lines += int64(bytes.Count(lines[counted:start], newline))
		counted = start
		hits = append(hits, hit{Position{from + int64(start), at.Lines}, Match{at.Lines + 1, l}})
		return true
	})
	sr.out.Next, sr.out.Done = first, from == 0
	for _, h := range slices.Backward(hits) {
		if len(sr.out.Matches) == sr.limit {
			sr.out.Done = false
			break
		}
		sr.out.Matches = append(sr.out.Matches, h.Match)
		if len(sr.out.Matches) == sr.limit {
			sr.out.Next = h.at
		}
	}
	return nil
}
