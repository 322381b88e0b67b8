package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
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

// logView is the part of a job's log that a page shows.
type logView struct {
	Parts []logSection
	Live  bool
	From  logPosition // where the stream goes on
	Step  int         // allSteps, or the only one
	More  bool        // lines follow the shown window
}

// logSection is lines of one step.
type logSection struct {
	Step    int
	Head    string // the step's name, when several are shown
	Class   string
	Skipped int64 // lines before the first shown one
	Lines   []logLine
}

// log reads what a page shows of a job's log. at > 0 asks for the window of one step that ends at that line. Steps are read
// last first: when a later step has lines, the earlier ones have all of theirs (see follower.draw).
func (s *server) log(ctx context.Context, job client.Job, step int, at int64) (logView, error) {
	v := logView{Step: step, Live: job.FinishedAt == nil && at == 0, From: logPosition{Attempt: job.Attempt}}
	steps := shownSteps(job, step)
	left, found := linesInAll, false
	for _, st := range slices.Backward(steps) {
		n := linesAlone
		if step == allSteps {
			n = max(1, min(linesPerStep, left))
		}
		part, next, err := s.tail(ctx, refOf(job), st, tailOf{lines: n, upTo: at})
		if err != nil {
			return v, err
		}
		if v.Live && !found && len(part.Lines) == 0 && st.Index != steps[0].Index {
			continue // the stream shows its head when it is its turn
		}
		if !found {
			found, v.From = true, logPosition{job.Attempt, st.Index, true, next}
		}
		left -= len(part.Lines)
		part.Class = stepClass(st)
		if step == allSteps {
			part.Head = st.Name
		}
		v.Parts = append(v.Parts, part)
	}
	slices.Reverse(v.Parts)
	if at > 0 && len(v.Parts) == 1 {
		more, _, err := s.Logs.ReadLines(ctx, refOf(job), step, v.From.Cursor, 1)
		if err != nil {
			return v, err
		}
		v.More = len(more) > 0
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
	lines, next, err := read.TailLines(ctx, s.Logs, ref, st.Index, read.Tail{Lines: t.lines, UpTo: t.upTo})
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
