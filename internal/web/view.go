package web

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

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

func (f runFilter) query() string {
	q := url.Values{}
	for _, kv := range [][2]string{
		{"status", f.Status}, {"repo", f.Repo}, {"workflow", f.Workflow}, {"branch", f.Branch}, {"q", f.Text}, {"cursor", f.Cursor},
	} {
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

func (v queueView) headline() string {
	if v.Queue.Waiting == 0 {
		return "Nothing waits"
	}
	return fmt.Sprintf("%s; the oldest for %s", count(int(v.Queue.Waiting), "job waits", "jobs wait"), durationMs(&v.Queue.OldestMs))
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
	case j.Display.Class == "allowed" && j.Error != "":
		return "allowed to fail · " + j.Error
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

type segment struct{ Class, X, W string }

// meter is the bar of a scaler: used, warm and ending against its cap.
func meter(s client.Scaler) []segment {
	if s.MaxAgents <= 0 {
		return nil
	}
	var out []segment
	x := 0.0
	for _, p := range []struct {
		class string
		n     int
	}{{"used", s.ActiveCount}, {"warm", s.WarmCount}, {"ending", s.EndingCount}} {
		w := min(100-x, 100*float64(p.n)/float64(s.MaxAgents))
		if w > 0 {
			out = append(out, segment{p.class, fmt.Sprintf("%.2f", x), fmt.Sprintf("%.2f", w)})
			x += w
		}
	}
	return out
}

func capText(s client.Scaler) string {
	t := fmt.Sprint(s.ActiveCount)
	if s.WarmCount > 0 {
		t += fmt.Sprintf(" + %d warm", s.WarmCount)
	}
	if s.EndingCount > 0 {
		t += fmt.Sprintf(" + %d ending", s.EndingCount)
	}
	return fmt.Sprintf("%s of %d", t, s.MaxAgents)
}

func cpuText(s client.Scaler) string {
	if s.CapCPUMilli == 0 {
		return cpus(s.UsedCPUMilli)
	}
	return cpus(s.UsedCPUMilli) + " / " + cpus(s.CapCPUMilli)
}

func memText(s client.Scaler) string {
	if s.CapMemBytes == 0 {
		return gib(s.UsedMemBytes) + " GiB"
	}
	return gib(s.UsedMemBytes) + " / " + gib(s.CapMemBytes) + " GiB"
}

func scalerClass(s client.Scaler) string {
	switch s.State {
	case "ready":
		return "success"
	case "full":
		return "running"
	case "retiring":
		return "cancelled"
	}
	return "failed"
}

func scalersHeadline(all []client.Scaler) string {
	bad := slices.IndexFunc(all, func(s client.Scaler) bool { return scalerClass(s) == "failed" })
	switch {
	case len(all) == 0:
		return "No scaler is configured"
	case bad >= 0:
		return all[bad].Name + " is " + all[bad].State
	}
	return "Every scaler is ready"
}

func agentsHeadline(all []client.Agent) string {
	live, busy := 0, 0
	for _, a := range all {
		if a.EndedAt == nil {
			live++
			if a.JobID != "" {
				busy++
			}
		}
	}
	if live == 0 {
		return "No agent is alive"
	}
	return fmt.Sprintf("%s alive, %d at work", count(live, "agent is", "agents are"), busy)
}

func agentOrigin(a client.Agent) string {
	if a.Scaler == "" {
		return "static · " + text(a.Host)
	}
	return text(a.Scaler) + " · " + text(a.NodeName)
}

func agentWord(a client.Agent) string {
	if a.EndedAt != nil && a.GoneReason != "" {
		return a.GoneReason
	}
	if a.State == "online" && !a.Connected {
		return "link lost"
	}
	return a.State
}

func agentClass(a client.Agent) string {
	switch {
	case a.Error != "":
		return "failed"
	case a.State == "online" && a.Connected:
		return "success"
	case a.State == "gone" || a.State == "ending":
		return "cancelled"
	case a.State == "online":
		return "running"
	}
	return "queued"
}

func deliveryClass(d client.Delivery) string {
	switch d.Status {
	case "processed":
		return "success"
	case "failed", "lockfile_corrupt":
		return "failed"
	case "received", "processing":
		return "running"
	}
	return "skipped"
}

func deliveryLine(d client.Delivery) string {
	switch {
	case d.Error != "":
		first, _, _ := strings.Cut(d.Error, "\n")
		return first
	case d.Matched > 0:
		return "started " + count(int(d.Matched), "workflow", "workflows")
	case d.Status == "processed":
		return "no workflow matched"
	}
	return ""
}

func deliveryHeadline(d client.Delivery) string {
	if line := deliveryLine(d); line != "" {
		return strings.ToUpper(line[:1]) + text(line[1:])
	}
	return "Delivery"
}

// workflowDecision is why one workflow did or did not start.
type workflowDecision struct {
	Workflow string `json:"workflow"`
	Matched  bool   `json:"matched"`
	Degraded bool   `json:"degraded"`
	Checks   []struct {
		Check   string `json:"check"`
		Pattern string `json:"pattern"`
		Value   string `json:"value"`
		Passed  bool   `json:"passed"`
		Reason  string `json:"reason"`
	} `json:"checks"`
}

func (w workflowDecision) verdict() string {
	if w.Matched {
		return "started"
	}
	return "did not match"
}

func decisionsOf(raw json.RawMessage) []workflowDecision {
	var out []workflowDecision
	_ = json.Unmarshal(raw, &out)
	return out
}

func passClass(ok bool) string {
	if ok {
		return "success"
	}
	return "skipped"
}

func passWord(ok bool) string {
	if ok {
		return "passed"
	}
	return "not passed"
}
