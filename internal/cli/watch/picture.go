package watch

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cli/console"
)

// picture redraws the run in place.
type picture struct {
	out   io.Writer
	o     Options
	last  client.RunDetail
	at    time.Time // when last was received: open durations go on from there
	drawn int       // lines on the screen
}

const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	clearToEnd  = "\x1b[J"
	defaultRows = 40
)

func (p *picture) show(d client.RunDetail) {
	p.last, p.at = d, p.o.Now()
	p.draw(p.rows())
}

func (p *picture) tick() {
	if p.drawn > 0 {
		p.draw(p.rows())
	}
}

// close shows every job, also those that did not fit while it ran.
func (p *picture) close(d client.RunDetail) {
	if p.drawn == 0 {
		return
	}
	p.last = d
	p.draw(1 << 20)
	fmt.Fprint(p.out, showCursor)
}

func (p *picture) rows() int {
	if p.o.Height > 4 {
		return p.o.Height - 2
	}
	return defaultRows
}

func (p *picture) draw(rows int) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", p.drawn)
	} else {
		b.WriteString(hideCursor)
	}
	b.WriteString(clearToEnd)
	ls := p.lines(rows)
	for _, l := range ls {
		if p.o.Width > 0 {
			l = ansi.Truncate(l, p.o.Width-1, "…")
		}
		b.WriteString(l + "\n")
	}
	p.drawn = len(ls)
	fmt.Fprint(p.out, b.String())
}

// lines is the whole picture: the run, then its jobs by level. When they do not fit, jobs at work and jobs that failed are kept.
func (p *picture) lines(rows int) []string {
	d := p.last
	out := []string{fmt.Sprintf("%s  %s  %s", p.dot(d.Display), heading(d.Run), p.dim(p.took(d.DurationMs, d.FinishedAt)))}
	jobs := slices.Clone(d.Jobs)
	hidden := 0
	if room := rows - 2; len(jobs) > room && room > 0 {
		slices.SortStableFunc(jobs, func(a, b client.Job) int { return interest(a) - interest(b) })
		hidden = len(jobs) - room
		jobs = jobs[:room]
		slices.SortStableFunc(jobs, func(a, b client.Job) int { return position(d.Jobs, a.ID) - position(d.Jobs, b.ID) })
	}
	name, word := 0, 0
	for _, j := range jobs {
		name, word = max(name, lipgloss.Width(console.CleanLine(j.DisplayName))), max(word, len(j.Display.Word))
	}
	name = min(name, 40)
	for _, j := range jobs {
		out = append(out, p.job(j, name, word))
	}
	if hidden > 0 {
		out = append(out, p.dim(fmt.Sprintf("   … and %d more", hidden)))
	}
	return out
}

// interest orders jobs by how much a watcher wants to see them.
func interest(j client.Job) int {
	switch j.Display.Class {
	case "running":
		return 0
	case "failed":
		return 1
	case "queued":
		return 2
	case "success", "allowed":
		return 4
	}
	return 3
}

func position(jobs []client.Job, id string) int {
	return slices.IndexFunc(jobs, func(j client.Job) bool { return j.ID == id })
}

func (p *picture) job(j client.Job, name, word int) string {
	title := ansi.Truncate(console.CleanLine(j.DisplayName), name, "…")
	pad := strings.Repeat(" ", name-lipgloss.Width(title))
	line := fmt.Sprintf("  %s%s  %s%s  %7s", p.dot(j.Display), strings.Repeat(" ", word-len(j.Display.Word)), title, pad, p.took(j.DurationMs, j.FinishedAt))
	switch s := current(j); {
	case s != nil:
		line += p.dim(fmt.Sprintf("  %d/%d %s", s.Index, len(j.Steps)-1, console.CleanLine(s.Name)))
	case j.Why != "" && j.Why != j.Display.Word:
		line += p.dim("  " + console.CleanLine(j.Why))
	}
	return line
}

// current is the step that a running job is at.
func current(j client.Job) *client.Step {
	if j.FinishedAt != nil {
		return nil
	}
	for i := range slices.Backward(j.Steps) {
		if j.Steps[i].Status == "running" {
			return &j.Steps[i]
		}
	}
	return nil
}

// took is a duration that goes on while the thing is open.
func (p *picture) took(ms *int64, finished *client.Time) string {
	if ms == nil {
		return ""
	}
	d := *ms
	if finished == nil {
		d += max(p.o.Now().Sub(p.at).Milliseconds(), 0)
	}
	return console.Took(d)
}

// dot is a status: a dot, hollow before it has started, and its word.
func (p *picture) dot(s client.Status) string {
	dot := "●"
	if s.Class == "pending" || s.Class == "queued" || s.Class == "held" || s.Class == "skipped" {
		dot = "○"
	}
	c := console.Console{OutTerminal: p.o.Color, Getenv: func(string) string { return "" }}
	return c.Paint(dot+" "+s.Word, s.Class)
}

func (p *picture) dim(s string) string {
	if !p.o.Color || s == "" {
		return s
	}
	return lipgloss.NewStyle().Faint(true).Render(s)
}
