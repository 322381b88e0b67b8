package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
)

func (p page) path(format string, args ...any) string { return p.Base + fmt.Sprintf(format, args...) }

const firstSteps = `kici init                                  # a first workflow, in your repository
kici source add local shop /srv/git/shop.git
kici source install-hook shop
git push`

// runFilter is what the list of runs shows; it travels in the query.
type runFilter struct{ Status, Repo, Workflow, Branch, Text, Cursor string }

func filterOf(q url.Values) runFilter {
	return runFilter{q.Get("status"), q.Get("repo"), q.Get("workflow"), q.Get("branch"), q.Get("q"), q.Get("cursor")}
}

func (f runFilter) fields() [][2]string {
	return [][2]string{
		{"status", f.Status}, {"repo", f.Repo}, {"workflow", f.Workflow}, {"branch", f.Branch}, {"q", f.Text}, {"cursor", f.Cursor},
	}
}

func (f runFilter) query() string {
	q := url.Values{}
	for _, kv := range f.fields() {
		if kv[1] != "" {
			q.Set(kv[0], kv[1])
		}
	}
	return q.Encode()
}

// with returns the filter with one field changed, at the first page unless that is the change.
func (f runFilter) with(field, value string) runFilter {
	f.Cursor = ""
	switch field {
	case "status":
		f.Status = value
	case "cursor":
		f.Cursor = value
	}
	return f
}

// keep is what a search keeps of the filter.
func (f runFilter) keep() (out [][2]string) {
	for _, kv := range f.fields() {
		if kv[1] != "" && kv[0] != "q" && kv[0] != "cursor" {
			out = append(out, kv)
		}
	}
	return out
}

func (f runFilter) any() bool {
	f.Cursor = ""
	return f != runFilter{}
}

func statusName(s string) string {
	if s == "" {
		return "All"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// headline answers what a person came to ask.
func (v runsView) headline() string {
	running, failed := 0, 0
	for _, r := range v.Runs {
		switch r.Display.Class {
		case "running", "pending":
			running++
		case "failed":
			failed++
		}
	}
	switch {
	case v.Filter.any() || len(v.Runs) == 0:
		return "Runs"
	case running > 0:
		return count(running, "run is", "runs are") + " in progress"
	case v.Runs[0].Display.Class == "failed":
		return "The last run failed"
	case failed > 0:
		return fmt.Sprintf("All quiet; %d of the last %d failed", failed, len(v.Runs))
	}
	return fmt.Sprintf("All quiet; the last %d went well", len(v.Runs))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// headline is followed by how long the oldest job waits, when one does.
func (v queueView) headline() string {
	if v.Queue.Waiting == 0 {
		return "Nothing waits"
	}
	return count(int(v.Queue.Waiting), "job waits", "jobs wait") + "; the oldest for"
}

// oldest is since when the oldest job waits.
func (v queueView) oldest() *client.Time {
	return &client.Time{Time: time.Now().Add(-time.Duration(v.Queue.OldestMs) * time.Millisecond)}
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
