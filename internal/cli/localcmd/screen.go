package localcmd

import (
	"fmt"
	"io"
	"sync"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/agent/local"
	"github.com/kici-go/kici/internal/cli/console"
	"github.com/kici-go/kici/internal/cli/watch"
)

// tailLines is how much of a failed step's log is shown below the picture.
const tailLines = 40

// screen is where the run is shown: a picture that redraws itself on a terminal, and the end of the logs of what failed below it;
// elsewhere, and with --verbose, a line for every change and every line of the logs.
type screen struct {
	console *console.Console
	to      io.Writer
	options watch.Options
	picture bool

	mu     sync.Mutex
	tails  map[string][]string // by job and step
	events []string            // of steps, to be shown at the end
}

func newScreen(c *console.Console, format string, verbose bool) *screen {
	s := &screen{console: c, tails: map[string][]string{}, options: watch.OptionsOf(c)}
	s.picture = c.OutTerminal && !verbose && format == "table"
	s.options.Terminal = s.picture
	out := c.Out
	if format != "table" { // Out is for the document alone
		out = c.Err
	}
	s.to = &shared{s: s, w: out}
	return s
}

// shared writes pieces whole, whoever they come from.
type shared struct {
	s *screen
	w io.Writer
}

func (w *shared) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.w.Write(p)
}

// line takes a line of a log. Set-up lines are kici's own and only interesting when something fails.
func (s *screen) line(l local.Line) {
	text := console.Clean(l.Msg)
	if !s.picture {
		fmt.Fprintf(s.to, "%s%s\n", s.console.Dim(console.CleanLine(l.Job)+" │ "), text)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tailKey(l.Job, l.Step)
	t := append(s.tails[key], text)
	s.tails[key] = t[max(0, len(t)-tailLines):]
}

func tailKey(job string, step int) string { return fmt.Sprintf("%s/%d", job, step) }

// say is a sentence that is no data.
func (s *screen) say(text string) {
	if !s.picture {
		s.console.Notice("%s", text)
	}
}

// emitted tells of an event of a step.
func (s *screen) emitted(e local.Emitted) {
	text := fmt.Sprintf("%s emitted the event %s %s; on a server it would start what waits for it", e.Job, e.Name, e.Payload)
	if !s.picture {
		s.console.Notice("%s", text)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) < maxEventsShown {
		s.events = append(s.events, text)
	}
}

const maxEventsShown = 100

// close shows what the picture could not: the end of the logs of steps that failed.
func (s *screen) close(d client.RunDetail) {
	if !s.picture {
		return
	}
	for _, e := range s.events {
		fmt.Fprintf(s.to, "%s\n", console.CleanLine(e))
	}
	for _, j := range d.Jobs {
		for _, step := range j.Steps {
			tail := s.tails[tailKey(j.DisplayName, step.Index)]
			if step.Status != "failed" || len(tail) == 0 {
				continue
			}
			fmt.Fprintf(s.to, "\n%s\n", s.console.Bold(console.CleanLine(fmt.Sprintf("%s: %s", j.DisplayName, step.Name))))
			for _, l := range tail {
				fmt.Fprintf(s.to, "  %s\n", l)
			}
		}
	}
	if d.FailureReason != "" {
		fmt.Fprintf(s.to, "\n%s\n", console.CleanLine(d.FailureReason))
	}
}
