package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// logRaw sends the log of a step, or of all steps one after the other, as text; or one line. While the job runs it sends what is
// there and ends.
func (s *server) logRaw(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, ch := r.Context(), choiceOf(r)
	if r.URL.Query().Get("step") != "" && ch.step == allSteps {
		return fmt.Errorf("%w: step must be a number", read.ErrInvalid)
	}
	job, err := s.Reads.Job(ctx, c.scope, ch.job)
	if err != nil {
		return err
	}
	v := logView{Job: job, Ch: ch}
	kind := "inline"
	if r.URL.Query().Has("download") {
		kind = "attachment"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf("%s; filename=%q", kind, rawName(job, ch)))
	for _, st := range job.Steps {
		if ch.step != allSteps && st.Index != ch.step {
			continue
		}
		if err := s.copyRaw(ctx, w, v.ref(), st.Index, ch.line); err != nil {
			s.Log.Warn("send raw log", "job_id", job.ID, "err", err)
			panic(http.ErrAbortHandler) // the header is out: a log that was cut must not be taken for a whole one
		}
	}
	return nil
}

// copyRaw sends the lines that a step has by now, or only one.
func (s *server) copyRaw(ctx context.Context, w io.Writer, ref read.LogRef, step int, line int64) error {
	first, last := int64(1), lastLine
	if line > 0 {
		first, last = line, line
	}
	_, total, err := s.Logs.SeekLine(ctx, ref, step, lastLine)
	if err != nil {
		return err
	}
	cursor, at, err := s.Logs.SeekLine(ctx, ref, step, first)
	for last = min(last, total); err == nil && at < last; {
		var lines []client.LogLine
		lines, cursor, err = s.Logs.ReadLines(ctx, ref, step, cursor, int(min(last-at, read.MaxLogLimit)))
		if len(lines) == 0 {
			break
		}
		at += int64(len(lines))
		var b strings.Builder
		for _, l := range lines {
			b.WriteString(l.Msg)
			b.WriteByte('\n')
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return err
}

// rawName is a file's name: letters, digits, and "-._" only.
func rawName(job client.Job, ch choice) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, job.Name)
	name = name[:min(len(name), 100)]
	if ch.step != allSteps {
		name += "-step-" + strconv.Itoa(ch.step)
	}
	if ch.attempt > 0 {
		name += "-attempt-" + strconv.Itoa(ch.attempt)
	}
	return name + ".log"
}

// logWindow is the lines of one step from "first" to "last", for a page that scrolls.
func (s *server) logWindow(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, ch := r.Context(), choiceOf(r)
	first, e1 := strconv.ParseInt(r.URL.Query().Get("first"), 10, 64)
	last, e2 := strconv.ParseInt(r.URL.Query().Get("last"), 10, 64)
	if e1 != nil || e2 != nil || ch.step == allSteps || first < 1 || last < first || last-first >= linesAlone {
		return fmt.Errorf("%w: a window needs step, first and last, and has at most %d lines", read.ErrInvalid, linesAlone)
	}
	job, err := s.Reads.Job(ctx, c.scope, ch.job)
	if err != nil {
		return err
	}
	v := logView{Base: s.Base, Job: job, Ch: ch, Own: true}
	for _, st := range job.Steps {
		if st.Index != ch.step {
			continue
		}
		lines, _, err := read.Window(ctx, s.Logs, v.ref(), st.Index, first, last)
		if err != nil {
			return err
		}
		part := section(st, lines, v.style(st))
		part.Skipped = 0
		s.render(w, r, logLines(v, part))
	}
	return nil
}
