package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/store"
)

// How often a live page may change, and how long it may stay silent.
const (
	liveEvery = 150 * time.Millisecond
	liveQuiet = 15 * time.Second
)

// stream is one open server-sent event connection.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	last map[string]string // what was sent last, by event: nothing is sent twice
}

func openStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // it lives as long as the page
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, rc: rc, last: map[string]string{}}
}

// send writes one event unless it says the same as the last one of its name.
func (st *stream) send(ctx context.Context, event string, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(ctx, &b); err != nil {
		return err
	}
	html := b.String()
	if st.last[event] == html {
		return nil
	}
	st.last[event] = html
	return st.raw(event, html)
}

func (st *stream) raw(event, data string) error {
	var b strings.Builder
	b.WriteString("event: " + event + "\n")
	for line := range strings.SplitSeq(data, "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteByte('\n')
	if _, err := st.w.Write([]byte(b.String())); err != nil {
		return err
	}
	return st.rc.Flush()
}

var errEnd = errors.New("stream ended")

// follow calls draw at once and whenever one of the subscriptions signals, at most every liveEvery, until draw returns an
// error or the page is closed.
func (s *server) follow(ctx context.Context, st *stream, subs []*store.Subscription, draw func() error) error {
	changed := make(chan struct{}, 1)
	for _, sub := range subs {
		defer sub.Close()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-sub.C():
					select {
					case changed <- struct{}{}:
					default:
					}
				}
			}
		}()
	}
	quiet := time.NewTicker(liveQuiet)
	defer quiet.Stop()
	for {
		if err := draw(); err != nil {
			if errors.Is(err, errEnd) {
				return st.raw("end", "")
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(liveEvery):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-quiet.C:
			if _, err := st.w.Write([]byte(": still here\n\n")); err != nil {
				return nil
			}
			_ = st.rc.Flush()
		}
	}
}

func (s *server) runsLive(w http.ResponseWriter, r *http.Request, c caller) error {
	f := filterOf(r.URL.Query())
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	st := openStream(w)
	return s.quietly(r, s.follow(ctx, st, []*store.Subscription{s.Hub.Subscribe(store.TopicRunList, c.OrgID)}, func() error {
		v, err := s.runsView(ctx, c, f)
		if err != nil {
			return err
		}
		return st.send(ctx, "runs", runsTable(v))
	}))
}

func (s *server) runLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	v, err := s.runView(ctx, c, choiceOf(r))
	if err != nil {
		return err
	}
	st := openStream(w)
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicRuns, v.Run.ID)}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		v, err := s.runView(ctx, c, choiceOf(r))
		if err != nil {
			return err
		}
		if err := st.send(ctx, "run", runBody(v)); err != nil {
			return err
		}
		if v.Job != nil {
			if err := st.send(ctx, "job", jobHead(v)); err != nil {
				return err
			}
			if err := st.send(ctx, "steps", stepList(v)); err != nil {
				return err
			}
		}
		if v.Run.FinishedAt != nil {
			return errEnd
		}
		return nil
	}))
}

func (s *server) queueLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	st := openStream(w)
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicQueue, ""), s.Hub.Subscribe(store.TopicRunList, c.OrgID)}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		v, err := s.queueView(ctx, c)
		if err != nil {
			return err
		}
		return st.send(ctx, "body", queueBody(v))
	}))
}

// logLive sends lines as they arrive, step after step when all are shown, and "end" when the job has ended and all was sent.
func (s *server) logLive(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("from"))
	f := &follower{server: s, caller: c, job: r.PathValue("job"), only: allSteps, at: logPosition{from, q.Get("cursor"), q.Get("headed") == "true"}}
	if id := r.Header.Get("Last-Event-Id"); id != "" {
		f.at.parse(id)
	}
	if q.Has("step") {
		f.only, _ = strconv.Atoi(q.Get("step"))
	}
	job, err := s.Reads.Job(ctx, c.scope, f.job)
	if err != nil {
		return err
	}
	f.stream = openStream(w)
	subs := []*store.Subscription{s.Hub.Subscribe(store.TopicLogs, job.ID), s.Hub.Subscribe(store.TopicRuns, job.RunID)}
	return s.quietly(r, s.follow(ctx, f.stream, subs, func() error { return f.draw(ctx) }))
}

// quietly swallows what goes wrong after a stream was opened: its headers are out, and the page reconnects.
func (s *server) quietly(r *http.Request, err error) error {
	if err != nil && r.Context().Err() == nil {
		s.Log.Debug("live page", "path", r.URL.Path, "err", err)
	}
	return nil
}

// follower reads a job's log on from a position.
type follower struct {
	server *server
	caller caller
	stream *stream
	job    string
	only   int
	at     logPosition
}

func (p logPosition) String() string {
	return fmt.Sprintf("%d|%t|%s", p.Step, p.Headed, p.Cursor)
}

func (p *logPosition) parse(s string) {
	f := strings.SplitN(s, "|", 3)
	if len(f) != 3 {
		return
	}
	if n, err := strconv.Atoi(f[0]); err == nil {
		*p = logPosition{n, f[2], f[1] == "true"}
	}
}

// draw sends all that has arrived since the last call.
func (f *follower) draw(ctx context.Context) error {
	job, err := f.server.Reads.Job(ctx, f.caller.scope, f.job)
	if err != nil {
		return err
	}
	for _, st := range job.Steps {
		if st.Index < f.at.Step || f.only != allSteps && st.Index != f.only || st.StartedAt == nil {
			continue
		}
		if st.Index > f.at.Step {
			f.at = logPosition{Step: st.Index}
		}
		if err := f.drawStep(ctx, job, st); err != nil {
			return err
		}
		if st.FinishedAt == nil && job.FinishedAt == nil {
			return nil // more may come here
		}
	}
	if job.FinishedAt != nil {
		return errEnd
	}
	return nil
}

func (f *follower) drawStep(ctx context.Context, job client.Job, st client.Step) error {
	for {
		lines, next, err := f.server.Logs.ReadLines(ctx, refOf(job), st.Index, f.at.Cursor, read.MaxLogLimit)
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
		for _, l := range lines {
			part.Lines = append(part.Lines, renderLine(st.Index, l, startOf(st)))
		}
		if len(lines) > 0 {
			f.at.Cursor = next
		}
		v := runView{page: page{Base: f.server.Base}, Run: client.RunDetail{Run: client.Run{ID: job.RunID}}, Job: &job}
		var b bytes.Buffer
		if err := logLines(v, part).Render(ctx, &b); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(f.stream.w, "id: %s\n", f.at); err != nil {
			return err
		}
		if err := f.stream.raw("lines", b.String()); err != nil {
			return err
		}
		if len(lines) == 0 {
			return nil
		}
	}
}
