// Package watch draws a run while it happens: on a terminal one compact picture that redraws itself, elsewhere one line for
// every change. It needs only a source of snapshots, so that "run watch", "run start --wait" and the demo share it.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// Options say how to draw. The zero value writes plain lines.
type Options struct {
	Terminal bool // redraw in place
	Color    bool
	Width    int // of the terminal
	Height   int
	Now      func() time.Time
}

// OptionsOf are the options that fit a console.
func OptionsOf(c *console.Console) Options {
	return Options{Terminal: c.OutTerminal, Color: c.Color(), Width: c.Width, Height: c.Height, Now: c.Now}
}

// follower delivers the run as it is and whenever it changes, and returns nil when it has ended (client.Client).
type follower interface {
	FollowRun(ctx context.Context, ref string, f func(client.RunDetail) error) error
}

const redrawEvery = 200 * time.Millisecond

// Run draws the run to out until it has ended and returns its last state. When ctx ends it returns what was last seen and
// ctx's error; the run itself goes on.
func Run(ctx context.Context, cl follower, runID string, out io.Writer, o Options) (client.RunDetail, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancel(ctx)
	snapshots, ended := make(chan client.RunDetail), make(chan error, 1)
	go func() {
		ended <- cl.FollowRun(ctx, runID, func(d client.RunDetail) error {
			select {
			case snapshots <- d:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	var d drawer = &lines{out: out}
	if o.Terminal {
		d = &picture{out: out, o: o}
	}
	last, err := draw(ctx, d, snapshots, ended)
	cancel()
	d.close(last)
	return last, err
}

// drawer shows a run. tick lets clocks move; close leaves the last state standing.
type drawer interface {
	show(client.RunDetail)
	tick()
	close(client.RunDetail)
}

func draw(ctx context.Context, d drawer, snapshots <-chan client.RunDetail, ended <-chan error) (last client.RunDetail, err error) {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case s := <-snapshots:
			last = s
			d.show(s)
		case err := <-ended:
			return last, err
		case <-ticker.C:
			d.tick()
		case <-ctx.Done():
			err := <-ended // nothing writes to d any more
			return last, cmp.Or(ctx.Err(), err)
		}
	}
}

// lines writes one line for every change.
type lines struct {
	out  io.Writer
	seen map[string]string // what was last said about a run, job or step
}

func (l *lines) tick()                  {}
func (l *lines) close(client.RunDetail) {}

func (l *lines) show(d client.RunDetail) {
	if l.seen == nil {
		l.seen = map[string]string{}
		fmt.Fprintf(l.out, "%s\n", heading(d.Run))
	}
	for _, j := range d.Jobs {
		if j.FinishedAt == nil {
			l.say(j.ID, jobLine(j))
		}
		for _, s := range j.Steps {
			if text := stepLine(s); text != "" {
				l.say(fmt.Sprintf("%s/%d", j.ID, s.Index), console.CleanLine(j.DisplayName)+": "+text)
			}
		}
		if j.FinishedAt != nil { // the end of a job comes after what it did
			l.say(j.ID, jobLine(j))
		}
	}
	if d.FinishedAt != nil {
		l.say("", verdict(d.Run))
	}
}

func (l *lines) say(key, text string) {
	if text != "" && l.seen[key] != text {
		l.seen[key] = text
		fmt.Fprintf(l.out, "%s\n", text)
	}
}

// jobLine is the state of a job without anything that changes by itself.
func jobLine(j client.Job) string {
	text := console.CleanLine(j.DisplayName) + ": " + j.Display.Word
	if j.FinishedAt != nil && j.DurationMs != nil {
		text += " in " + console.Took(*j.DurationMs)
	}
	switch {
	case j.Status == "running" && j.AgentID != "":
		text += " on " + j.AgentID
	case j.Why != "" && j.Why != j.Display.Word:
		text += " – " + console.CleanLine(j.Why)
	}
	return text
}

func stepLine(s client.Step) string {
	text := fmt.Sprintf("step %d %q %s", s.Index, console.CleanLine(s.Name), s.Display.Word)
	if s.FinishedAt != nil && s.DurationMs != nil {
		text += " in " + console.Took(*s.DurationMs)
	}
	switch {
	case s.Status == "pending":
		return ""
	case s.Status == "failed" && s.ExitCode != nil:
		text += fmt.Sprintf(" (exit code %d)", *s.ExitCode)
	}
	return text
}

// heading names a run: "acme/shop #482  ci  main 1a2b3c4d  fix the thing".
func heading(r client.Run) string {
	text := name(r) + "  " + r.Workflow
	if r.Branch != "" || r.SHA != "" {
		text += "  " + r.Branch + " " + console.ShortSHA(r.SHA)
	}
	if r.Title != "" {
		text += "  " + r.Title
	}
	return console.CleanLine(text)
}

func verdict(r client.Run) string {
	word := r.Display.Word
	if strings.HasPrefix(r.FailureReason, word+" by ") { // "cancelled by ada" says both
		word, r.FailureReason = r.FailureReason, ""
	}
	text := name(r) + ": " + word
	if r.DurationMs != nil {
		text += " in " + console.Took(*r.DurationMs)
	}
	if r.FailureReason != "" {
		text += " – " + r.FailureReason
	}
	return console.CleanLine(text)
}

// name is the run's; one without a number is not on a server.
func name(r client.Run) string {
	if r.Number == 0 {
		return r.Repo
	}
	return fmt.Sprintf("%s #%d", r.Repo, r.Number)
}
