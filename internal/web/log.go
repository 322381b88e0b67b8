package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// allSteps is the choice of no single step.
const allSteps = -1

// How many lines a page shows: of one step among all, of one step alone, and in all.
const (
	linesPerStep = 400
	linesAlone   = 2000
	linesInAll   = 3000
)

// logView is the part of a job's log that a page shows, and where the live stream goes on.
type logView struct {
	Parts []logSection
	Live  bool
	From  logPosition
	Step  int // allSteps, or the only one
}

// logSection is lines of one step.
type logSection struct {
	Step    int
	Head    string // the step's name, when several are shown
	Class   string
	Skipped int64 // lines before the first shown one
	Lines   []logLine
}

// logPosition is how far a reader has come: all of the steps before Step, and Step up to Cursor.
type logPosition struct {
	Step   int
	Cursor string
	Headed bool // the head of Step was shown
}

func (l logView) query() string {
	q := url.Values{"from": {strconv.Itoa(l.From.Step)}, "cursor": {l.From.Cursor}, "headed": {strconv.FormatBool(l.From.Headed)}}
	if l.Step != allSteps {
		q.Set("step", strconv.Itoa(l.Step))
	}
	return q.Encode()
}

// log reads what a page shows of a job's log. at > 0 asks for the window of one step that ends at that line.
func (s *server) log(ctx context.Context, job client.Job, step int, at int64) (logView, error) {
	v := logView{Step: step, Live: job.FinishedAt == nil, From: logPosition{Step: max(step, 0)}}
	ref := refOf(job)
	left := linesInAll
	for _, st := range job.Steps {
		if step != allSteps && st.Index != step || st.StartedAt == nil {
			continue
		}
		n := linesAlone
		if step == allSteps {
			n = min(linesPerStep, left)
		}
		part, next, err := s.tail(ctx, ref, st, tailOf{lines: n, upTo: at})
		if err != nil {
			return v, err
		}
		left -= len(part.Lines)
		part.Class = stepClass(st)
		if step == allSteps {
			part.Head = st.Name
		}
		v.Parts = append(v.Parts, part)
		v.From = logPosition{st.Index, next, true}
	}
	if at > 0 {
		v.Live = false
	}
	return v, nil
}

func refOf(job client.Job) read.LogRef {
	return read.LogRef{RunID: job.RunID, JobID: job.ID, Attempt: job.Attempt}
}

type tailOf struct {
	lines int
	upTo  int64 // last line to show; 0 = the end
}

// tail reads the last lines of a step.
func (s *server) tail(ctx context.Context, ref read.LogRef, st client.Step, t tailOf) (logSection, string, error) {
	part := logSection{Step: st.Index}
	lines, next, err := s.Logs.TailLines(ctx, ref, st.Index, read.Tail{Lines: t.lines, UpTo: t.upTo})
	if err != nil {
		return part, "", err
	}
	if len(lines) > 0 {
		part.Skipped = lines[0].N - 1
	}
	for _, l := range lines {
		part.Lines = append(part.Lines, renderLine(st.Index, l, startOf(st)))
	}
	return part, next, nil
}

func startOf(st client.Step) int64 {
	if st.StartedAt == nil {
		return 0
	}
	return st.StartedAt.UnixMilli()
}

// logRaw sends the log of a step, or of all steps one after the other, as text. It works while the job runs.
func (s *server) logRaw(w http.ResponseWriter, r *http.Request, c caller) error {
	job, err := s.Reads.Job(r.Context(), c.scope, r.PathValue("job"))
	if err != nil {
		return err
	}
	only := allSteps
	if q := r.URL.Query().Get("step"); q != "" {
		if only, err = strconv.Atoi(q); err != nil {
			return fmt.Errorf("%w: step %q is not a number", read.ErrInvalid, q)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", fileName(job.Name)+".log"))
	for _, st := range job.Steps {
		if only != allSteps && st.Index != only {
			continue
		}
		if err := s.copyRaw(r.Context(), w, refOf(job), st.Index); err != nil {
			s.Log.Warn("send raw log", "job_id", job.ID, "err", err)
			return nil // the header is out; what was sent stands
		}
	}
	return nil
}

func (s *server) copyRaw(ctx context.Context, w io.Writer, ref read.LogRef, step int) error {
	cursor := ""
	for {
		lines, next, err := s.Logs.ReadLines(ctx, ref, step, cursor, read.MaxLogLimit)
		if err != nil || len(lines) == 0 {
			return err
		}
		var b strings.Builder
		for _, l := range lines {
			b.WriteString(l.Msg)
			b.WriteByte('\n')
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
		cursor = next
	}
}

func fileName(job string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, job)
}
