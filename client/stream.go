package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrStop is what a follower's callback returns to end the stream without an error.
var ErrStop = errors.New("stop")

// event is one server-sent event.
type event struct{ name, id, data string }

// FollowRun calls f with the whole run now and whenever it changes, until the run has ended (nil), f fails or ctx ends. A broken
// stream is opened again.
func (c *Client) FollowRun(ctx context.Context, ref string, f func(RunDetail) error) error {
	return c.follow(ctx, follow{path: runPath(ref) + "/events"}, func(e event) (bool, error) {
		switch e.name {
		case "run":
			var d RunDetail
			if err := json.Unmarshal([]byte(e.data), &d); err != nil {
				return false, err
			}
			return false, f(d)
		case "end":
			return true, nil
		}
		return false, nil
	})
}

// StepLine is a line of one step in a job's log.
type StepLine struct {
	LogLine
	Step int    `json:"step"`
	Name string `json:"name"` // of the step
}

// FollowJobLog calls f with every line of a job, step by step, from cursor ("" is the start) to the end of the job. f also gets the
// cursor after the line, with which a later call goes on.
func (c *Client) FollowJobLog(ctx context.Context, job, cursor string, f func(line StepLine, cursor string) error) error {
	return c.follow(ctx, follow{path: jobPath(job) + "/logs/stream", cursor: cursor}, lines(f))
}

// FollowStepLog is FollowJobLog for one step.
func (c *Client) FollowStepLog(ctx context.Context, run, job string, step int, cursor string, f func(StepLine, string) error) error {
	path := runPath(run) + "/jobs/" + url.PathEscape(job) + "/steps/" + strconv.Itoa(step) + "/logs/stream"
	return c.follow(ctx, follow{path: path, cursor: cursor}, lines(f))
}

// lineBatch is one event of a log stream.
type lineBatch struct {
	Lines []StepLine `json:"lines"`
}

func lines(f func(StepLine, string) error) func(event) (bool, error) {
	return func(e event) (bool, error) {
		switch e.name {
		case "lines":
			var b lineBatch
			if err := json.Unmarshal([]byte(e.data), &b); err != nil {
				return false, err
			}
			for _, l := range b.Lines {
				if err := f(l, e.id); err != nil {
					return false, err
				}
			}
		case "end":
			return true, nil
		}
		return false, nil
	}
}

type follow struct{ path, cursor string }

// longStream is how long a stream must last to count as a success: the server ends every one after a while.
const longStream = 30 * time.Second

// callbackError keeps an error of the caller's own apart from those of the connection.
type callbackError struct{ error }

// follow reads events until f says done. After a broken connection it opens the stream again at the last id, without limit
// while it makes progress and up to a few attempts while it does not.
func (c *Client) follow(ctx context.Context, s follow, f func(event) (done bool, err error)) error {
	for failures := 0; ; {
		began := time.Now()
		done, progress, err := c.stream(ctx, &s, f)
		progress = progress || time.Since(began) > longStream // nothing happened, but the server was there
		var own callbackError
		switch {
		case done:
			return nil
		case errors.As(err, &own):
			if errors.Is(own.error, ErrStop) {
				return nil
			}
			return own.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !broken(err):
			return err
		}
		if failures++; progress {
			failures = 1
		}
		if failures > 8 {
			return err
		}
		if err := sleep(ctx, backoff(failures)); err != nil {
			return err
		}
	}
}

// broken reports whether a stream that ended with err is worth opening again.
func broken(err error) bool {
	var ce *ConnectError
	return errors.As(err, &ce) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || temporary(err)
}

// stream reads one connection.
func (c *Client) stream(ctx context.Context, s *follow, f func(event) (bool, error)) (done, progress bool, err error) {
	v := url.Values{}
	set(v, "cursor", s.cursor)
	resp, err := c.send(ctx, call{method: http.MethodGet, path: s.path, query: v}, "text/event-stream")
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		e, err := readEvent(r)
		if err != nil {
			return false, progress, &ConnectError{c.base, err}
		}
		progress = true
		done, err := f(e)
		if err != nil {
			return false, progress, callbackError{err}
		}
		if e.id != "" {
			s.cursor = e.id
		}
		if done {
			return true, progress, nil
		}
	}
}

// maxEvent bounds one event.
const maxEvent = 64 << 20

func readEvent(r *bufio.Reader) (e event, err error) {
	var data strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return e, io.ErrUnexpectedEOF
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if e.name == "" && data.Len() == 0 {
				continue // a comment that kept the connection alive
			}
			e.data = data.String()
			return e, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			if data.Len()+len(value) > maxEvent {
				return e, errors.New("event is too long")
			}
			if data.Len() > 0 {
				data.WriteByte('\n')
			}
			data.WriteString(value)
		}
	}
}
