package web

import (
	"cmp"
	"context"
	"slices"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

// How many lines a page shows: of one step among all, in all, and of one step alone; and how many come at once when a reader
// scrolls.
const (
	linesPerStep = 400
	linesInAll   = 3000
	linesAlone   = 1000
	linesMore    = 500
)

// logView is the part of a job's log that a page shows.
type logView struct {
	Base string
	Job  client.Job
	Ch   choice
	Own  bool // on the job's own page, where lines are links of their own

	Parts []logSection
	Live  bool
	From  logPosition // where the stream goes on

	First, Last, Total int64  // lines of the only step: shown, and in all
	Match              int64  // the first line that contains what is looked for, when no line was chosen
	Prev, Next         beside // what is found before and behind the chosen line
	Found              *finding
}

// logSection is lines of one step.
type logSection struct {
	Step    int
	Head    string // the step's name, when several are shown
	Class   string
	Skipped int64 // lines before the first shown one
	Lines   []logLine
	Show    int64 // the line that a person came for
}

func (s logSection) items() []logItem { return items(s.Lines, s.Show) }

// log reads what a page shows of a job's log.
func (s *server) log(ctx context.Context, job client.Job, ch choice) (logView, error) {
	v := logView{Base: s.Base, Job: job, Ch: ch, Live: job.FinishedAt == nil}
	if ch.attempt > 0 && ch.attempt != job.Attempt {
		v.Live = false
	}
	v.From = logPosition{Attempt: v.ref().Attempt}
	if ch.step == allSteps {
		return v, s.allSteps(ctx, &v)
	}
	i := slices.IndexFunc(job.Steps, func(st client.Step) bool { return st.Index == ch.step })
	if i < 0 {
		return v, nil
	}
	return v, s.oneStep(ctx, &v, job.Steps[i])
}

// ref names the log of the chosen attempt.
func (v logView) ref() read.LogRef {
	ref := refOf(v.Job)
	ref.Attempt = cmp.Or(v.Ch.attempt, ref.Attempt)
	return ref
}

func refOf(job client.Job) read.LogRef {
	return read.LogRef{RunID: job.RunID, JobID: job.ID, Attempt: job.Attempt}
}

// steps are those that may have lines: of the current attempt all that began, of an earlier one all.
func (v logView) steps() []client.Step {
	if v.ref().Attempt != v.Job.Attempt {
		return v.Job.Steps
	}
	return shownSteps(v.Job, v.Ch.step)
}

func (v logView) style(st client.Step) lineStyle {
	style := lineStyle{step: st.Index, all: v.Ch.step == allSteps, absolute: v.Ch.absolute, find: v.Ch.find}
	if v.ref().Attempt == v.Job.Attempt {
		style.start = startOf(st)
	}
	return style
}

// allSteps reads the end of every step, last step first: when a later one has lines, the earlier ones have all of theirs (see
// follower.draw).
func (s *server) allSteps(ctx context.Context, v *logView) error {
	steps := v.steps()
	left, found := linesInAll, false
	for _, st := range slices.Backward(steps) {
		lines, next, err := read.TailLines(ctx, s.Logs, v.ref(), st.Index, read.Tail{Lines: max(1, min(linesPerStep, left))})
		if err != nil {
			return err
		}
		if v.Live && !found && len(lines) == 0 && st.Index != steps[0].Index {
			continue // the stream shows its head when it is its turn
		}
		if !v.Live && len(lines) == 0 && v.ref().Attempt != v.Job.Attempt {
			continue // it did not run in that attempt
		}
		if !found {
			found, v.From = true, logPosition{v.ref().Attempt, st.Index, true, next}
		}
		left -= len(lines)
		v.Parts = append(v.Parts, section(st, lines, v.style(st)))
	}
	slices.Reverse(v.Parts)
	return nil
}

func section(st client.Step, lines []client.LogLine, style lineStyle) logSection {
	out := logSection{Step: st.Index, Class: stepClass(st)}
	if style.all {
		out.Head = st.Name
	}
	if len(lines) > 0 {
		out.Skipped = lines[0].N - 1
	}
	if style.start == 0 && len(lines) > 0 {
		style.start = lines[0].TS // an earlier attempt: when its steps began is not known any more
	}
	for _, l := range lines {
		out.Lines = append(out.Lines, style.line(l))
	}
	return out
}

// oneStep reads a window of one step: around the chosen line, else its end when that tells most, else its start.
func (s *server) oneStep(ctx context.Context, v *logView, st client.Step) error {
	_, total, err := s.Logs.SeekLine(ctx, v.ref(), st.Index, lastLine)
	if err != nil {
		return err
	}
	v.Total = total
	if err := s.match(ctx, v, st.Index); err != nil {
		return err
	}
	line := cmp.Or(v.Ch.line, v.Match)
	if line == 0 && (v.Live || st.Display.Class == "failed" || st.Display.Class == "allowed" || st.FinishedAt == nil) {
		line = lastLine
	}
	v.First = max(total-linesAlone, 0) + 1
	if line = max(line, 1); line <= total && (line < v.First || v.Ch.line != lastLine && v.Ch.line > 0) {
		v.First = (line-1)/linesAlone*linesAlone + 1
	}
	lines, next, err := read.Window(ctx, s.Logs, v.ref(), st.Index, v.First, min(v.First+linesAlone-1, total))
	if err != nil {
		return err
	}
	v.Last = v.First + int64(len(lines)) - 1
	v.Live = v.Live && v.Last >= total
	v.From = logPosition{v.ref().Attempt, st.Index, true, next}
	part := section(st, lines, v.style(st))
	part.Skipped, part.Show = 0, min(line, total)
	v.Parts = []logSection{part}
	return nil
}

func startOf(st client.Step) int64 {
	if st.StartedAt == nil {
		return 0
	}
	return st.StartedAt.UnixMilli()
}

// shownSteps are the steps that may have lines: all that began, or the only one.
func shownSteps(job client.Job, only int) (out []client.Step) {
	for _, st := range job.Steps {
		if st.StartedAt != nil && (only == allSteps || st.Index == only) {
			out = append(out, st)
		}
	}
	return out
}
