package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
)

// Timing of streams.
const (
	keepAlive   = 15 * time.Second       // a comment, so that proxies keep the connection
	lookAgain   = 5 * time.Second        // wake-ups are hints; nothing depends on getting one
	coalesce    = 100 * time.Millisecond // between two snapshots
	writePeriod = 20 * time.Second       // a reader that takes nothing for so long is cut off
	streamLife  = 10 * time.Minute       // then the client comes back and shows its token again: a revoked one reads no longer than that
)

// stream is one open server-sent event stream.
type stream struct {
	w    io.Writer
	http *http.ResponseController
}

// event writes one event. data is JSON and has no line breaks.
func (s *stream) event(name, id string, data []byte) error {
	var b bytes.Buffer
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
	return s.write(b.Bytes())
}

func (s *stream) write(b []byte) error {
	_ = s.http.SetWriteDeadline(time.Now().Add(writePeriod)) // not every writer can
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.http.Flush()
}

// end tells the client not to come back.
func (s *stream) end() error { return s.event("end", "", []byte("{}")) }

// open answers with a stream that follow fills. The number of open streams is bounded.
func (a *API) open(follow func(context.Context, *stream) error) (*huma.StreamResponse, error) {
	select {
	case a.streams <- struct{}{}:
	default:
		return nil, &failure{Message: "too many open streams; try again", status: http.StatusServiceUnavailable}
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer func() { <-a.streams }()
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		s := &stream{w: w, http: http.NewResponseController(w)}
		ctx, cancel := context.WithTimeout(hc.Context(), streamLife)
		defer cancel()
		if err := follow(ctx, s); err != nil && ctx.Err() == nil {
			a.log.Debug("stream ended", "err", err)
		}
	}}, nil
}

// wait blocks until something may have changed, and keeps the connection alive meanwhile.
func (s *stream) wait(ctx context.Context, subs ...<-chan struct{}) error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	look := time.NewTimer(lookAgain)
	defer look.Stop()
	var second <-chan struct{}
	if len(subs) > 1 {
		second = subs[1]
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-subs[0]:
			return nil
		case <-second:
			return nil
		case <-look.C:
			return nil
		case <-alive.C:
			if err := s.write([]byte(": still here\n\n")); err != nil {
				return err
			}
		}
	}
}

// runEvents sends the whole run at once and whenever it has changed, and "end" when it has ended.
func (a *API) runEvents(ctx context.Context, in *RunRef) (*huma.StreamResponse, error) {
	c := callerOf(ctx)
	id, err := a.d.Reads.RunID(ctx, c.Scope, in.Run)
	if err == nil {
		_, err = a.d.Reads.Run(ctx, c.Scope, id) // so that what may not be seen is refused before the stream opens
	}
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	return a.open(func(ctx context.Context, s *stream) error { return a.followRun(ctx, s, c.Scope, id) })
}

func (a *API) followRun(ctx context.Context, s *stream, scope read.Scope, id string) error {
	sub := a.d.Hub.Subscribe(store.TopicRuns, id)
	defer sub.Close()
	var sent []byte
	for {
		began := time.Now()
		d, err := a.d.Reads.Run(ctx, scope, id)
		if err != nil {
			return err
		}
		settled, err := json.Marshal(withoutClocks(d))
		if err != nil {
			return err
		}
		if !bytes.Equal(settled, sent) {
			data, err := json.Marshal(d)
			if err != nil {
				return err
			}
			if err := s.event("run", "", data); err != nil {
				return err
			}
			sent = settled
		}
		if d.FinishedAt != nil {
			return s.end()
		}
		// A snapshot of a huge run costs; never spend more than a tenth of the time on one reader.
		if err := service.Pause(ctx, max(coalesce, 10*time.Since(began))); err != nil {
			return err
		}
		if err := s.wait(ctx, sub.C()); err != nil {
			return err
		}
	}
}

// withoutClocks leaves out what changes by itself: durations of things that are not over.
func withoutClocks(d client.RunDetail) client.RunDetail {
	if d.StartedAt == nil {
		d.QueuedMs = nil
	}
	if d.FinishedAt == nil {
		d.DurationMs = nil
	}
	jobs := make([]client.Job, len(d.Jobs))
	for i, j := range d.Jobs {
		if j.FinishedAt == nil {
			j.DurationMs, j.WaitMs = nil, nil
		}
		steps := make([]client.Step, len(j.Steps))
		for k, st := range j.Steps {
			if st.FinishedAt == nil {
				st.DurationMs = nil
			}
			steps[k] = st
		}
		j.Steps = steps
		jobs[i] = j
	}
	d.Jobs = jobs
	return d
}

// logCursor is how far a reader of a job's log has come.
type logCursor struct {
	attempt, step int
	at            string // in the step
}

func (p logCursor) String() string { return fmt.Sprintf("%d.%d.%s", p.attempt, p.step, p.at) }

func parseLogCursor(s string) (p logCursor, err error) {
	if s == "" {
		return p, nil
	}
	parts := strings.SplitN(s, ".", 3)
	if len(parts) != 3 {
		return p, badRequest("cursor %q is not one that this server gave", s)
	}
	var e1, e2 error
	p.attempt, e1 = strconv.Atoi(parts[0])
	p.step, e2 = strconv.Atoi(parts[1])
	p.at = parts[2]
	if e1 != nil || e2 != nil || p.step < 0 {
		return p, badRequest("cursor %q is not one that this server gave", s)
	}
	return p, nil
}

// logFollow says which log to send.
type logFollow struct {
	scope    read.Scope
	job      string
	at       logCursor
	onlyStep bool
}

// LogQuery says where a log stream begins.
type LogQuery struct {
	Cursor      string `query:"cursor" maxLength:"200" doc:"Go on after this event id"`
	LastEventID string `header:"Last-Event-ID" maxLength:"200"`
}

func (q LogQuery) cursor() string {
	if q.LastEventID != "" {
		return q.LastEventID
	}
	return q.Cursor
}

// jobStream follows every step of a job.
func (a *API) jobStream(ctx context.Context, in *struct {
	JobRef
	LogQuery
},
) (*huma.StreamResponse, error) {
	c := callerOf(ctx)
	l, err := a.d.Reads.JobLog(ctx, c.Scope, "", in.Job)
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	at, err := parseLogCursor(in.cursor())
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	return a.open(func(ctx context.Context, s *stream) error {
		return a.followLog(ctx, s, logFollow{scope: c.Scope, job: l.Ref.JobID, at: at})
	})
}

// stepStream follows one step.
func (a *API) stepStream(ctx context.Context, in *struct {
	StepRef
	LogQuery
},
) (*huma.StreamResponse, error) {
	c := callerOf(ctx)
	l, err := a.d.Reads.JobLog(ctx, c.Scope, in.Run, in.Job)
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	at, err := parseLogCursor(in.cursor())
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	if at.step = in.Step; in.cursor() == "" {
		at.attempt = l.Ref.Attempt
	}
	return a.open(func(ctx context.Context, s *stream) error {
		return a.followLog(ctx, s, logFollow{scope: c.Scope, job: l.Ref.JobID, at: at, onlyStep: true})
	})
}

func (a *API) followLog(ctx context.Context, s *stream, f logFollow) error {
	l, err := a.d.Reads.JobLog(ctx, f.scope, "", f.job)
	if err != nil {
		return err
	}
	lines, state := a.d.Hub.Subscribe(store.TopicLogs, f.job), a.d.Hub.Subscribe(store.TopicRuns, l.Ref.RunID)
	defer lines.Close()
	defer state.Close()
	for {
		// The state is read before the lines, so that what is read after the end is all of it.
		if l, err = a.d.Reads.JobLog(ctx, f.scope, "", f.job); err != nil {
			return err
		}
		done, err := a.sendLog(ctx, s, l, &f)
		if err != nil {
			return err
		}
		if done {
			return s.end()
		}
		if err := s.wait(ctx, lines.C(), state.C()); err != nil {
			return err
		}
		if err := service.Pause(ctx, coalesce/2); err != nil {
			return err
		}
	}
}

// sendLog sends all lines that there are, going from step to step, and reports whether there will be no more.
func (a *API) sendLog(ctx context.Context, s *stream, l read.JobLog, f *logFollow) (done bool, err error) {
	if f.at.attempt != l.Ref.Attempt { // the job was given to another agent and began again
		f.at = logCursor{attempt: l.Ref.Attempt, step: map[bool]int{true: f.at.step}[f.onlyStep]}
	}
	for {
		page, err := a.d.Reads.Log(ctx, l, f.at.step, f.at.at, read.MaxLogLimit)
		if err != nil {
			return false, err
		}
		f.at.at = page.NextCursor
		if err := sendLines(s, l, page.Lines, f.at); err != nil {
			return false, err
		}
		switch {
		case !page.Complete && len(page.Lines) > 0:
			continue
		case !page.Complete:
			return false, nil
		case f.onlyStep:
			return true, nil
		}
		next, ok := l.NextStep(f.at.step)
		if !ok {
			return l.Ended, nil
		}
		f.at.step, f.at.at = next, ""
	}
}

func sendLines(s *stream, l read.JobLog, lines []client.LogLine, at logCursor) error {
	if len(lines) == 0 {
		return nil
	}
	name := l.StepName(at.step)
	batch := struct {
		Lines []client.StepLine `json:"lines"`
	}{make([]client.StepLine, len(lines))}
	for i, line := range lines {
		batch.Lines[i] = client.StepLine{LogLine: line, Step: at.step, Name: name}
	}
	data, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	return s.event("lines", at.String(), data)
}
