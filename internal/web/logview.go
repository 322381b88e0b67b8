package web

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/a-h/templ"
	"github.com/dustin/go-humanize"
)

// jobPath is an address below the job's.
func (v logView) jobPath(rest string) string {
	return fmt.Sprintf("%s/runs/%s/jobs/%s%s", v.Base, v.Job.RunID, v.Job.ID, rest)
}

func (v logView) href(ch choice) templ.SafeURL { return templ.SafeURL(v.jobPath("?" + ch.query())) }

// anchor is the link of a line's number: the page opens at the line, with or without scripts.
func (v logView) anchor(l logLine) templ.SafeURL {
	if !v.Own || v.Ch.step == allSteps {
		return templ.SafeURL("#" + l.ID)
	}
	q := "?step=" + strconv.Itoa(l.Step) + "&line=" + strconv.FormatInt(l.N, 10)
	if v.Ch.attempt > 0 {
		q += "&attempt=" + strconv.Itoa(v.Ch.attempt)
	}
	if v.Ch.absolute {
		q += "&time=abs"
	}
	return templ.SafeURL(q + "#" + l.ID)
}

func (b beside) word(found string) string {
	if b.Cut {
		return "Search on"
	}
	return found
}

// lineLink is a line of the shown step, with what is looked for.
func (v logView) lineLink(n int64) templ.SafeURL {
	return templ.SafeURL(fmt.Sprintf("%s#L%d", v.href(v.Ch.atLine(n)), n))
}

func (v logView) foundLink(step int, n int64) templ.SafeURL {
	ch := v.Ch.atStep(step).withFind(v.Ch.find, "").atLine(n)
	return templ.SafeURL(fmt.Sprintf("%s#L%d", v.href(ch), n))
}

func (v logView) stepLine(step int, n int64) templ.SafeURL {
	return templ.SafeURL(fmt.Sprintf("%s#L%d", v.href(v.Ch.atStep(step).atLine(n)), n))
}

func (v logView) rawLine(l logLine) templ.SafeURL {
	q := url.Values{"step": {strconv.Itoa(l.Step)}, "line": {strconv.FormatInt(l.N, 10)}}
	if v.Ch.attempt > 0 {
		q.Set("attempt", strconv.Itoa(v.Ch.attempt))
	}
	return templ.SafeURL(v.jobPath("/log.txt?" + q.Encode()))
}

func (v logView) rawQuery() string {
	return choice{step: v.Ch.step, attempt: v.Ch.attempt}.query()
}

func (v logView) windowQuery() string {
	return choice{step: v.Ch.step, attempt: v.Ch.attempt, absolute: v.Ch.absolute, find: v.Ch.find}.query()
}

// keep is what a form of the log keeps of the choice.
func (v logView) keep() (out [][2]string) {
	q, _ := url.ParseQuery(choice{step: v.Ch.step, attempt: v.Ch.attempt, absolute: v.Ch.absolute}.query())
	for _, k := range []string{"step", "attempt", "time"} {
		if q.Has(k) {
			out = append(out, [2]string{k, q.Get(k)})
		}
	}
	return out
}

func (v logView) searchHint() string {
	if v.Ch.step == allSteps {
		return "Search all steps   s"
	}
	return "Search this step   s"
}

// matchWords says where in the matches the page is.
func (v logView) matchWords() string {
	switch {
	case v.Match > 0:
		return fmt.Sprintf("first in line %d", v.Match)
	case v.Next.Cut:
		return fmt.Sprintf("searched up to line %d of %d", v.Next.Line, v.Total)
	case v.Ch.line == 0:
		return "not in this step"
	case v.Next.Line == 0 && v.Prev.Line == 0:
		return "no other match"
	case v.Next.Line == 0:
		return "no later match"
	}
	return fmt.Sprintf("line %d", v.Ch.line)
}

func (v logView) foundWords() string {
	n := v.Found.count()
	out := count(n, "line contains", "lines contain") + " “" + text(v.Ch.find) + "”"
	switch {
	case n >= matchesShown:
		out = fmt.Sprintf("The first %d lines that contain “%s”", n, text(v.Ch.find))
	case v.Found.More != "":
		out += " so far"
	case n == 0:
		out = "No line contains “" + text(v.Ch.find) + "”"
	}
	return out
}

// bottom is the anchor at which a page without a chosen line begins: the end of what failed, or of a step that tells most by its end.
func (v logView) bottom() string {
	if v.Live && v.Match == 0 || len(v.Parts) == 0 || v.Ch.line > 0 || v.Found != nil {
		return ""
	}
	if v.Match > 0 {
		return fmt.Sprintf("L%d", v.Match)
	}
	if v.Ch.step != allSteps {
		if v.Last == v.Total && v.First+int64(len(v.Parts[0].Lines)) > v.Last && v.Parts[0].Show == v.Last {
			return fmt.Sprintf("L%d", v.Last)
		}
		return ""
	}
	for _, p := range v.Parts {
		if n := len(p.Lines); n > 0 && (p.Class == "failed" || p.Class == "allowed") {
			return p.Lines[n-1].ID
		}
	}
	return ""
}

func (v logView) empty() bool {
	for _, p := range v.Parts {
		if len(p.Lines) > 0 {
			return false
		}
	}
	return true
}

func (v logView) noLog() string {
	switch {
	case v.ref().Attempt != v.Job.Attempt:
		return fmt.Sprintf("Nothing is stored of attempt %d.", v.ref().Attempt)
	case v.Job.FinishedAt != nil && v.Job.StartedAt == nil:
		return "This job never started, so it has no log."
	case v.Job.StartedAt == nil:
		return "This job has not started yet."
	case v.Ch.step != allSteps:
		return "This step wrote no line."
	}
	return "No line was written."
}

func sizeOf(n int) string { return humanize.IBytes(uint64(max(n, 0))) } //nolint:gosec // not negative
