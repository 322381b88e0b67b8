package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store"
)

// logPosition is how far a reader of a job's log has come: all of the steps before Step, and Step up to Cursor.
type logPosition struct {
	Attempt int
	Step    int
	Headed  bool // the head of Step was shown
	Cursor  string
}

// String is the position as the id of an event.
func (p logPosition) String() string {
	return fmt.Sprintf("%d|%d|%t|%s", p.Attempt, p.Step, p.Headed, p.Cursor)
}

func parsePosition(s string) (p logPosition, ok bool) {
	f := strings.SplitN(s, "|", 4)
	if len(f) != 4 {
		return p, false
	}
	var e1, e2 error
	p.Attempt, e1 = strconv.Atoi(f[0])
	p.Step, e2 = strconv.Atoi(f[1])
	p.Headed, p.Cursor = f[2] == "true", f[3]
	return p, e1 == nil && e2 == nil
}

// positionOf is where a stream begins: where the page ended, or after the last event that the browser has seen.
func positionOf(r *http.Request) (at logPosition) {
	q := r.URL.Query()
	for _, s := range []string{q.Get("from"), q.Get("last"), r.Header.Get("Last-Event-Id")} {
		if p, ok := parsePosition(s); ok {
			at = p
		}
	}
	return at
}

// query is what the log's stream is asked for.
func (v logView) query() string {
	q := url.Values{"from": {v.From.String()}}
	if v.Ch.step != allSteps {
		q.Set("step", strconv.Itoa(v.Ch.step))
	}
	if v.Ch.absolute {
		q.Set("time", "abs")
	}
	return q.Encode()
}

// logLive sends lines as they arrive, step after step when all are shown, and "end" when the job has ended and all was sent.
func (s *server) logLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	f := &follower{jobs: s.Reads, logs: s.Logs, base: s.Base, scope: c.scope, job: r.PathValue("job"), at: positionOf(r)}
	ch := choiceOf(r)
	f.only, f.absolute = ch.step, ch.absolute
	job, err := s.Reads.Job(ctx, c.scope, f.job)
	if err != nil {
		return err
	}
	st := openStream(w)
	f.send = st.numbered
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicLogs, job.ID), s.Hub.Subscribe(store.TopicRuns, job.RunID)}
	return s.quietly(r, s.follow(ctx, st, subs, func() error { return f.draw(ctx) }))
}

// jobReader reads a job's state (read.Reads).
type jobReader interface {
	Job(ctx context.Context, s read.Scope, ref string) (client.Job, error)
}

// follower reads a job's log on from a position.
type follower struct {
	jobs  jobReader
	logs  read.LogReader
	send  func(id, event, html string) error
	base  string
	scope read.Scope
	job   string
	only  int // allSteps, or the only step
	at    logPosition

	absolute bool // times of day
}

// draw sends all that has arrived since the last call. It leaves a step only when that is complete (read.StepComplete).
func (f *follower) draw(ctx context.Context) error {
	job, err := f.jobs.Job(ctx, f.scope, f.job)
	if err != nil {
		return err
	}
	if job.Attempt != f.at.Attempt {
		if f.at.Attempt != 0 {
			if err := f.send("", "fresh", ""); err != nil {
				return err
			}
		}
		f.at = logPosition{Attempt: job.Attempt}
	}
	steps := shownSteps(job, f.only)
	for i, st := range steps {
		if st.Index < f.at.Step {
			continue
		}
		left, err := read.StepComplete(ctx, f.logs, refOf(job), job.FinishedAt != nil, steps[i+1:])
		if err != nil {
			return err
		}
		if st.Index > f.at.Step {
			f.at = logPosition{Attempt: job.Attempt, Step: st.Index}
		}
		if err := f.drawStep(ctx, job, st); err != nil || !left {
			return err
		}
	}
	if job.FinishedAt != nil {
		return errEnd
	}
	return nil
}

// drawStep sends what is new in one step.
func (f *follower) drawStep(ctx context.Context, job client.Job, st client.Step) error {
	for {
		lines, next, err := f.logs.ReadLines(ctx, refOf(job), st.Index, f.at.Cursor, read.MaxLogLimit)
		if err != nil {
			return err
		}
		part := logSection{Step: st.Index, Class: stepClass(st)}
		if f.only == allSteps && !f.at.Headed {
			part.Head, f.at.Headed = st.Name, true
		}
		if len(lines) == 0 && part.Head == "" {
			return nil
		}
		style := lineStyle{step: st.Index, start: startOf(st), all: f.only == allSteps, absolute: f.absolute}
		for _, l := range lines {
			part.Lines = append(part.Lines, style.line(l))
		}
		if len(lines) > 0 {
			f.at.Cursor = next
		}
		v := logView{Base: f.base, Job: job, Ch: choice{step: f.only, absolute: f.absolute}, Own: f.only != allSteps}
		var b bytes.Buffer
		if err := flatLines(v, part).Render(ctx, &b); err != nil {
			return err
		}
		if err := f.send(f.at.String(), "lines", b.String()); err != nil {
			return err
		}
		if len(lines) == 0 {
			return nil
		}
	}
}
