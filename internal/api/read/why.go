package read

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store/db"
)

// whyFacts is what the reasons of one job are made from.
type whyFacts struct {
	job     db.ReadRunJobsRow
	run     db.ReadRunRow
	up      []upstream
	steps   []client.Step
	reasons shapeReasons
	holds   holds
	now     int64
}

// upstream is one job that this one needs.
type upstream struct {
	id, name string
	status   ci.JobStatus
	allowed  bool
	runOn    string // ',success,skipped,'
}

// met reports whether the upstream job has ended in a way that lets this one run.
func (u upstream) met() bool {
	s := u.status
	if s.Failure() && u.allowed {
		s = ci.JobSuccess
	}
	return u.status.Terminal() && strings.Contains(u.runOn, ","+string(s)+",")
}

// shapeReasons is a decoded row of shape_reasons.
type shapeReasons struct {
	list []client.Reason
	at   int64
}

func parseReasons(text string, at int64) shapeReasons {
	var rs []placement.Reason
	_ = json.Unmarshal([]byte(text), &rs)
	out := shapeReasons{at: at}
	for _, r := range rs {
		c := client.Reason{Kind: string(r.Kind), Node: r.NodeID, Scaler: r.Scaler, Agent: r.Agent, Text: r.Text}
		if r.Until > 0 {
			t := client.TimeOf(r.Until)
			c.Until = &t
		}
		out.list = append(out.list, c)
	}
	return out
}

// whyOf says where the job is and why, as one headline and the reasons behind it.
func whyOf(f whyFacts) client.Why {
	w := client.Why{JobID: f.job.ID, RunID: f.job.RunID, Name: f.job.Name, Status: f.job.Status, Reasons: []client.Reason{}}
	switch s := ci.JobStatus(f.job.Status); {
	case s == ci.JobPending:
		f.pending(&w)
	case s == ci.JobQueued:
		f.queued(&w)
	case s == ci.JobHeld:
		f.held(&w)
	case s.Terminal():
		f.ended(&w, s)
	default:
		f.active(&w, s)
	}
	return w
}

func (f whyFacts) pending(w *client.Why) {
	var names []string
	for _, u := range f.up {
		if u.met() {
			continue
		}
		names = append(names, u.name)
		w.Reasons = append(w.Reasons, client.Reason{
			Kind: "need", Job: u.id, Text: fmt.Sprintf("needs %s, which is %s", u.name, u.status.Display(u.allowed).Word),
		})
	}
	switch {
	case f.holds.run != nil:
		f.holds.run.say(w, "its run")
	case len(names) > 0:
		w.Headline = "waits for " + list(names)
	case f.run.Status == string(ci.RunCancelling):
		w.Headline = "its run is being cancelled"
	default:
		w.Headline = "about to be queued"
	}
}

func (f whyFacts) queued(w *client.Why) {
	w.Headline, w.Reasons = queuedWhy(queuedFacts{
		assigned: f.job.AgentID.String, boundID: f.job.BoundID.String, boundState: f.job.BoundState.String, boundDetail: f.job.BoundDetail.String,
		boundScaler: f.job.BoundScaler.String, boundNode: f.job.BoundNode.String,
		launchError: f.job.ProvisioningError, requeues: f.job.DispatchAttempts, reasons: f.reasons,
	})
	if f.reasons.at > 0 {
		t := client.TimeOf(f.reasons.at)
		w.AsOf = &t
	}
}

// queuedFacts is what the reasons of a queued job are made from.
type queuedFacts struct {
	assigned, boundID, boundState, boundDetail, boundScaler, boundNode, launchError string

	requeues int64
	reasons  shapeReasons
}

func queuedWhy(f queuedFacts) (headline string, reasons []client.Reason) {
	reasons = []client.Reason{}
	switch {
	case f.assigned != "":
		headline = fmt.Sprintf("handed to agent %s, which has not answered yet", f.assigned)
		reasons = append(reasons, client.Reason{Kind: "running", Agent: f.assigned, Text: headline})
	case f.boundID != "":
		headline = startingText(f)
		reasons = append(reasons, client.Reason{
			Kind: string(placement.ReasonBooting), Agent: f.boundID, Scaler: f.boundScaler, Node: f.boundNode, Text: headline,
		})
	}
	if f.launchError != "" {
		reasons = append(reasons, client.Reason{Kind: "launch_failed", Text: "the last agent for it did not start: " + f.launchError})
	}
	if headline == "" {
		reasons = append(reasons, f.reasons.list...)
		headline = headlineOf(reasons)
	}
	if f.requeues > 0 {
		reasons = append(reasons, client.Reason{Kind: "requeued", Text: fmt.Sprintf("went back to the queue %d %s", f.requeues, times(f.requeues))})
	}
	return headline, reasons
}

func startingText(f queuedFacts) string {
	where := ""
	if f.boundScaler != "" {
		where = " by " + f.boundScaler
	}
	if f.boundNode != "" {
		where += " on " + f.boundNode
	}
	switch ci.AgentState(f.boundState) {
	case ci.AgentRequested:
		return fmt.Sprintf("agent %s is about to be started for it%s", f.boundID, where)
	case ci.AgentOnline, ci.AgentDraining:
		return fmt.Sprintf("agent %s is ready for it%s", f.boundID, where)
	}
	text := fmt.Sprintf("agent %s is starting for it%s", f.boundID, where)
	if f.boundDetail != "" && f.boundState == string(ci.AgentStarting) {
		text += ": " + f.boundDetail
	}
	return text
}

// headlineRank orders reasons by how much they tell: what will change by itself soon comes first, what never will last, because
// one scaler that only needs time is the answer even when ten others could never run the job. That nothing offers the labels
// comes before everything, because then the rest is about others.
var headlineRank = map[string]int{
	string(placement.ReasonNoOffer): 0, string(placement.ReasonNothing): 0, "launch_failed": 1, string(placement.ReasonBackoff): 2, string(placement.ReasonCap): 3, string(placement.ReasonBooting): 4,
	string(placement.ReasonBusy): 5, string(placement.ReasonNotReady): 6, string(placement.ReasonDraining): 7,
	string(placement.ReasonDisconnected): 8, string(placement.ReasonRetiring): 9, string(placement.ReasonNodeLost): 10,
	string(placement.ReasonTooLarge): 11, string(placement.ReasonNoImages): 12, string(placement.ReasonOnlyImages): 12, string(placement.ReasonGate): 12, string(placement.ReasonExcluded): 13,
	string(placement.ReasonNoLabels): 14, string(placement.ReasonOtherJobs): 15, string(placement.ReasonOtherOrg): 16,
}

func headlineOf(reasons []client.Reason) string {
	best := -1
	for i, r := range reasons {
		if best < 0 || rank(r.Kind) < rank(reasons[best].Kind) {
			best = i
		}
	}
	if best < 0 {
		return "waits for the next placement pass"
	}
	return reasons[best].Text
}

func rank(kind string) int {
	if n, ok := headlineRank[kind]; ok {
		return n
	}
	return 99
}

func (f whyFacts) active(w *client.Why, s ci.JobStatus) {
	agent := f.job.AgentID.String
	where := agent
	if f.job.AgentScaler.String != "" {
		where += " (" + f.job.AgentScaler.String
		if f.job.AgentNode.String != "" {
			where += " on " + f.job.AgentNode.String
		}
		where += ")"
	}
	kind := "running"
	switch s {
	case ci.JobRunning:
		w.Headline = "runs on agent " + where
	case ci.JobRecovering:
		w.Headline = "the link to agent " + where + " is lost"
		if f.job.RecoverBy.Valid {
			w.Headline += "; it has until " + clock(f.job.RecoverBy.Int64) + " to come back"
		}
	case ci.JobCancelling:
		kind = "cancelled"
		w.Headline = "is being " + cancelled(f.job.CancelReason)
	case ci.JobWaiting:
		kind = "held"
		w.Headline = "waits for its timer"
	default:
		w.Headline = string(s)
	}
	w.Reasons = append(w.Reasons, client.Reason{Kind: kind, Agent: agent, Scaler: f.job.AgentScaler.String, Node: f.job.AgentNode.String, Text: w.Headline})
}

func (f whyFacts) ended(w *client.Why, s ci.JobStatus) {
	kind := "ended"
	switch s {
	case ci.JobSuccess:
		w.Headline = "succeeded"
		if d := span(f.job.StartedAt, f.job.FinishedAt, 0); d != nil {
			w.Headline += " in " + (time.Duration(*d) * time.Millisecond).Round(100*time.Millisecond).String()
		}
	case ci.JobSkipped:
		w.Headline = "skipped" + f.skipReason()
	case ci.JobCancelled:
		kind = "cancelled"
		w.Headline = cancelled(first(f.job.CancelReason, f.job.Error))
		if f.run.CancelledBy != "" && f.job.CancelReason == "" {
			w.Headline = "cancelled by " + f.run.CancelledBy
		}
	default:
		w.Headline = f.failure(s)
	}
	w.Reasons = append(w.Reasons, client.Reason{Kind: kind, Agent: f.job.AgentID.String, Text: w.Headline})
	if s == ci.JobSkipped {
		f.upReasons(w)
	}
}

// failure is the sentence of a failed job: its own error, else the step that failed.
func (f whyFacts) failure(s ci.JobStatus) string {
	if f.job.Error != "" {
		return f.job.Error
	}
	for _, st := range f.steps {
		if st.Status != string(ci.StepFailed) || st.Allowed {
			continue
		}
		text := fmt.Sprintf("step %q failed", st.Name)
		if st.ExitCode != nil {
			return text + fmt.Sprintf(" with exit code %d", *st.ExitCode)
		}
		return text + because(st.Error)
	}
	return s.Display(false).Word
}

func (f whyFacts) skipReason() string {
	if f.job.Error != "" {
		return because(f.job.Error)
	}
	for _, u := range f.up {
		if u.status.Terminal() && !u.met() {
			return fmt.Sprintf(": %s %s", u.name, ended(u))
		}
	}
	return ": its condition was false"
}

func (f whyFacts) upReasons(w *client.Why) {
	for _, u := range f.up {
		if u.status.Terminal() && !u.met() {
			w.Reasons = append(w.Reasons, client.Reason{Kind: "need", Job: u.id, Text: fmt.Sprintf("needs %s, which %s", u.name, ended(u))})
		}
	}
}

func ended(u upstream) string {
	switch u.status {
	case ci.JobSuccess:
		return "succeeded"
	case ci.JobCancelled, ci.JobSkipped:
		return "was " + string(u.status)
	}
	return u.status.Display(u.allowed).Word
}

// cancelled says it once: reasons often begin with the word.
func cancelled(reason string) string {
	if strings.HasPrefix(reason, "cancelled") {
		return reason
	}
	return "cancelled" + because(reason)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05") + " UTC" }

func times(n int64) string {
	if n == 1 {
		return "time"
	}
	return "times"
}

// list joins names as people do: "a, b and c"; beyond four it counts.
func list(names []string) string {
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0]
	case n > 4:
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", n-3)
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}
