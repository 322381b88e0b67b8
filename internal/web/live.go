package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/internal/store"
)

// How often a live page may change, and how long it may stay silent.
const (
	liveEvery = 150 * time.Millisecond
	liveQuiet = 15 * time.Second
	liveShare = 4 // a page that takes long to read rests that many times as long
	liveRest  = 2 * time.Second
)

// stream is one open server-sent event connection.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	last map[string]string // what was sent last, by event: nothing is sent twice
	rest time.Duration     // how long to wait at least before the page is drawn again
}

func openStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // it lives as long as the page
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush() // the page learns at once that it is connected again
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

func (st *stream) raw(event, data string) error { return st.numbered("", event, data) }

// numbered writes one event with the id that the page sends back when it reconnects.
func (st *stream) numbered(id, event, data string) error {
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
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
		case <-time.After(max(liveEvery, min(st.rest, liveRest))):
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

// live is a page that is one element: body draws it again whenever one of the topics says that something changed.
func (s *server) live(w http.ResponseWriter, r *http.Request, body func(context.Context) (templ.Component, error), topics ...topic) error {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	st := openStream(w)
	var subs []*store.Subscription
	for _, t := range topics {
		subs = append(subs, s.Hub.Subscribe(t.topic, t.key))
	}
	return s.quietly(r, s.follow(ctx, st, subs, func() error {
		c, err := body(ctx)
		if err != nil {
			return err
		}
		return st.send(ctx, "body", c)
	}))
}

type topic struct {
	topic store.Topic
	key   string
}

// quietly swallows what goes wrong after a stream was opened: its headers are out, and the page reconnects.
func (s *server) quietly(r *http.Request, err error) error {
	if err != nil && r.Context().Err() == nil {
		s.Log.Debug("live page", "path", r.URL.Path, "err", err)
	}
	return nil
}
