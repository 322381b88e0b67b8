package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/kici-go/kici/client"
)

func (p page) path(format string, args ...any) string { return p.Base + fmt.Sprintf(format, args...) }

const firstSteps = `kici init                                  # a first workflow, in your repository
kici source add local shop /srv/git/shop.git
kici source install-hook shop
git push`

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (v runView) live() bool { return v.Run.FinishedAt == nil }

// selection is the open job and step as a query.
func (v runView) selection() string {
	q := url.Values{}
	if v.Job != nil {
		q.Set("job", v.Job.ID)
	}
	if v.Step != allSteps {
		q.Set("step", fmt.Sprint(v.Step))
	}
	return q.Encode()
}

func (v runView) stepQuery() string {
	if v.Step == allSteps {
		return ""
	}
	return fmt.Sprintf("step=%d", v.Step)
}

// someFailed reports whether running only the failed jobs again differs from running all.
func (v runView) someFailed() bool {
	bad, good := 0, 0
	for _, j := range v.Run.Jobs {
		if j.Display.Class == "success" || j.Display.Class == "allowed" {
			good++
		} else {
			bad++
		}
	}
	return bad > 0 && good > 0
}

// bottom reports whether the end of the log is what a person came for.
func (v runView) bottom() bool {
	return v.Log.Step == allSteps && (v.Job.Display.Class == "failed" || v.Job.Display.Class == "allowed")
}

func (l logView) empty() bool {
	for _, p := range l.Parts {
		if len(p.Lines) > 0 {
			return false
		}
	}
	return true
}

// last is the number of the last shown line.
func (l logView) last() int64 {
	for _, p := range slices.Backward(l.Parts) {
		if n := len(p.Lines); n > 0 {
			return p.Lines[n-1].N
		}
	}
	return 0
}

func (v runView) noLog() string {
	switch {
	case v.Job.FinishedAt != nil && v.Job.StartedAt == nil:
		return "This job never started, so it has no log."
	case v.Job.StartedAt == nil:
		return "This job has not started yet."
	}
	return "No line was written."
}

// jobLine is the sentence under a job's name in the graph.
func jobLine(j client.Job) string {
	switch {
	case j.Display.Class == "success" || j.Display.Class == "skipped" && j.Why == "":
		return ""
	case j.Display.Class == "allowed":
		return "allowed to fail · " + cmp.Or(j.Error, j.Why)
	case j.Why != "":
		return j.Why
	}
	return j.Error
}

// stepClass shows a failure that continue-on-error allowed as such.
func stepClass(s client.Step) string {
	if s.Allowed && s.Status == "failed" {
		return "allowed"
	}
	return s.Display.Class
}
