package web

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/kici-go/kici/internal/api/read"
)

// Bounds of one search from a page; every one of its parts ends after 2 s by itself.
const (
	matchesShown = 100
	searchParts  = 2
	searchTime   = 4 * time.Second
)

// finding is the lines of all steps that contain a text.
type finding struct {
	Parts []logSection
	More  string // where the search goes on; "" = everything was searched
	Step  string // the step in which it goes on
	Line  int64
}

func (f finding) count() (n int) {
	for _, p := range f.Parts {
		n += len(p.Lines)
	}
	return n
}

// findAll looks through all steps of a job, from v.Ch.from on.
func (s *server) findAll(ctx context.Context, v *logView) error {
	out := &finding{}
	v.Found = out
	first, cursor, resumed := strings.Cut(v.Ch.from, "|")
	from, err := strconv.Atoi(first)
	resumed = resumed && err == nil
	began := time.Now()
	for _, st := range v.steps() {
		if resumed && st.Index < from {
			continue
		}
		if resumed && st.Index > from || !resumed {
			cursor = ""
		}
		part := logSection{Step: st.Index, Head: st.Name, Class: stepClass(st)}
		style := v.style(st)
		for done := false; !done; {
			f, err := s.Logs.SearchLines(ctx, v.ref(), st.Index, read.LogQuery{Text: v.Ch.find, Cursor: cursor, Limit: matchesShown - out.count() - len(part.Lines)})
			if err != nil {
				return err
			}
			for _, l := range f.Lines {
				part.Lines = append(part.Lines, style.line(l))
			}
			cursor, done = f.Next, f.Done
			if !done && (out.count()+len(part.Lines) >= matchesShown || time.Since(began) > searchTime) {
				out.More, out.Step, out.Line = strconv.Itoa(st.Index)+"|"+cursor, st.Name, f.Searched
				break
			}
		}
		if len(part.Lines) > 0 {
			out.Parts = append(out.Parts, part)
		}
		if out.More != "" || out.count() >= matchesShown {
			break
		}
	}
	return nil
}

// beside is where a search from a line leads: to a match, or to the line at which the search was cut off and goes on; 0 = nowhere.
type beside struct {
	Line int64
	Cut  bool
}

// match finds the matches beside the chosen line of one step. Without a chosen line the first one becomes that.
func (s *server) match(ctx context.Context, v *logView, step int) error {
	if v.Ch.find == "" {
		return nil
	}
	line := min(v.Ch.line, v.Total)
	if line == 0 {
		first, err := s.nearest(ctx, v, step, read.LogQuery{Text: v.Ch.find})
		if err != nil || first.Line == 0 || first.Cut {
			v.Next = first
			return err
		}
		v.Match, line = first.Line, first.Line
	}
	for _, q := range []struct {
		to       *beside
		from     int64
		backward bool
	}{{&v.Prev, line, true}, {&v.Next, line + 1, false}} {
		cursor, _, err := s.Logs.SeekLine(ctx, v.ref(), step, q.from)
		if err != nil {
			return err
		}
		if *q.to, err = s.nearest(ctx, v, step, read.LogQuery{Text: v.Ch.find, Cursor: cursor, Backward: q.backward}); err != nil {
			return err
		}
	}
	return nil
}

// nearest is the first match in the query's direction.
func (s *server) nearest(ctx context.Context, v *logView, step int, q read.LogQuery) (beside, error) {
	q.Limit = 1
	for n := 1; ; n++ {
		f, err := s.Logs.SearchLines(ctx, v.ref(), step, q)
		switch {
		case err != nil || f.Done && len(f.Lines) == 0:
			return beside{}, err
		case len(f.Lines) > 0:
			return beside{Line: f.Lines[0].N}, nil
		case n == searchParts && q.Backward:
			return beside{Line: f.Searched + 1, Cut: true}, nil
		case n == searchParts:
			return beside{Line: f.Searched, Cut: true}, nil
		}
		q.Cursor = f.Next
	}
}
