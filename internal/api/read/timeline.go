package read

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store/db"
)

// The kinds of timeline entries that are read from rows; those of notes are ci.NoteKinds. Both are part of the API.
const (
	atDelivered  = "delivered"
	atCaused     = "caused" // by an internal event
	atMatched    = "matched"
	atCreated    = "created"
	atAdded      = "added"
	atReady      = "ready"
	atQueued     = "queued"
	atWaiting    = "waiting"
	atUnroutable = "unroutable"
	atLaunch     = "agent_requested"
	atOnline     = "agent_online"
	atNoAgent    = "agent_failed"
	atAssigned   = "assigned"
	atSent       = "sent"
	atAcked      = "acked"
	atReleased   = "unassigned"
	atStarted    = "started"
	atStep       = "step"
	atFinished   = "finished"
	atRunStarted = "run_started"
	atRunEnded   = "run_finished"
	atStatus     = "status_posted"
	atNoStatus   = "status_failed"
	atEmitted    = "event_emitted"
	atOtherRun   = "started_run"
	atRerun      = "rerun"
)

// ranks order what happened in the same millisecond as it must have happened.
var ranks = func() map[string]int {
	out := map[string]int{}
	for i, k := range []string{
		atDelivered, atCaused, atMatched, atCreated, ci.NoteJobsAdded, atAdded, ci.NoteHeld, ci.NotePromoted, ci.NoteReleased, atReady, atQueued, atWaiting,
		atUnroutable, atLaunch, atOnline, atNoAgent, atAssigned, atSent, atAcked, atReleased, ci.NoteRequeued, atRunStarted, atStarted, ci.NoteLinkLost,
		ci.NoteLinkBack, ci.NoteDiskLow, atStep, atEmitted, ci.NoteSuperseded, ci.NoteTimedOut, ci.NoteCancelAsked, ci.NoteForced, ci.NoteRefused, atFinished, atRunEnded, ci.NoteChainEnded,
		atOtherRun, atStatus, atNoStatus, atRerun, ci.NoteDropped,
	} {
		out[k] = i
	}
	return out
}()

// entry is one line of a timeline with its place in it.
type entry struct {
	client.TimelineEntry
	at     int64
	key    string // rank, job and a number: unique at that instant
	before string // cursor after which this one follows
}

func (e entry) after(p position) bool { return e.at > p.at || e.at == p.at && e.key > p.id }

// timeline builds one. It is pure: the same rows give the same lines.
type timeline struct {
	f     timelineFacts
	names map[string]string // of jobs
	level map[string]int    // of jobs
	out   []entry
}

// buildTimeline makes the lines of a run's timeline, oldest first; cut says what is missing.
func buildTimeline(f timelineFacts) (entries []entry, cut string) {
	t := &timeline{f: f, names: map[string]string{}}
	for _, j := range f.jobs {
		t.names[j.ID] = j.Name
	}
	t.levels()
	t.begin()
	for _, j := range f.jobs {
		t.job(j)
	}
	t.assignments()
	t.launches()
	t.steps()
	t.noted()
	t.statuses()
	t.effects()
	t.end()
	same := map[string]int{}
	for i := range t.out {
		e := &t.out[i]
		key := fmt.Sprintf("%04d.%02d.%s.", t.stage(e.Kind, e.JobID), ranks[e.Kind], e.JobID)
		n := same[key+strconv.FormatInt(e.at, 36)]
		same[key+strconv.FormatInt(e.at, 36)]++
		e.key = key + fmt.Sprintf("%05d", n)
	}
	slices.SortStableFunc(t.out, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key)) })
	for i := range t.out {
		if i > 0 {
			t.out[i].before = position{t.out[i-1].at, t.out[i-1].key}.cursor()
		}
	}
	return t.out, t.missing()
}

func (t *timeline) missing() string {
	var parts []string
	if len(t.f.jobs) >= 5000 {
		parts = append(parts, "jobs beyond the first 5000")
	}
	if len(t.f.assigned) >= 20000 || len(t.f.steps) >= 20000 || len(t.f.launches) >= 20000 {
		parts = append(parts, "assignments, agents or steps beyond the first 20000")
	}
	if len(t.f.emitted) >= 1000 || len(t.f.started) >= 1000 {
		parts = append(parts, "events and runs beyond the first 1000")
	}
	if len(parts) == 0 {
		return ""
	}
	return "not shown: " + strings.Join(parts, "; ")
}

// stage orders what happened in one millisecond before ranks do: a job goes on after those that it needed.
func (t *timeline) stage(kind, jobID string) int {
	switch {
	case jobID != "":
		return 1 + min(t.level[jobID], maxStage-2)
	case ranks[kind] <= ranks[atCreated]:
		return 0
	case ranks[kind] >= ranks[atRunEnded]:
		return maxStage
	}
	return 1
}

const maxStage = 9999

// levels is the length of the longest way to each job from one that needs nothing.
func (t *timeline) levels() {
	t.level = map[string]int{}
	for moved, n := true, 0; moved && n <= len(t.f.jobs) && n < maxLevels; n++ {
		moved = false
		for _, e := range t.f.needs {
			if l := t.level[e.NeedsID] + 1; l > t.level[e.JobID] {
				t.level[e.JobID], moved = l, true
			}
		}
	}
}

const maxLevels = 100 // longer chains have the rest of their jobs in any order, within one millisecond

// add appends a line; jobID "" is the run.
func (t *timeline) add(at int64, kind, jobID, format string, args ...any) *entry {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	t.out = append(t.out, entry{at: at, TimelineEntry: client.TimelineEntry{
		At: client.TimeOf(at), Kind: kind, JobID: jobID, Job: t.names[jobID], Text: text,
	}})
	return &t.out[len(t.out)-1]
}

func link(kind, id string) *client.TimelineLink { return &client.TimelineLink{Kind: kind, ID: id} }

// begin is how the run came to be.
func (t *timeline) begin() {
	r := t.f.run
	if r.ReceivedAt.Valid {
		how := fmt.Sprintf("a %s delivery arrived: %s", r.DeliveryKind.String, r.DeliveryEvent.String)
		if r.DeliveryKind.String == "manual" {
			how = "a start by hand was asked for"
		}
		t.add(r.ReceivedAt.Int64, atDelivered, "", "%s", how).Link = link("delivery", r.DeliveryID)
	}
	for _, c := range t.f.cause {
		t.add(r.CreatedAt, atCaused, "", "event %s matched this workflow", c.EventName).Link = link("event", c.ID)
	}
	if text := matchText(r.MatchedTrigger); text != "" {
		t.add(r.CreatedAt, atMatched, "", "%s", text)
	}
	created := fmt.Sprintf("run %s#%d of %s was created by %s, with %s", r.Repo, r.Number, r.Workflow, r.TriggerEvent, jobCount(t.f.jobs, r.CreatedAt))
	e := t.add(r.CreatedAt, atCreated, "", "%s", created)
	e.Actor = r.Actor
	if r.ParentRunID.Valid && r.OriginalRunID.Valid {
		e.Link = link("run", r.ParentRunID.String)
	}
	if r.StartedAt.Valid {
		t.add(r.StartedAt.Int64, atRunStarted, "", "the run began with its first job")
	}
}

func jobCount(jobs []db.TimelineJobsRow, created int64) string {
	n := 0
	for _, j := range jobs {
		if j.CreatedAt <= created {
			n++
		}
	}
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// job is what the row of a job says by itself.
func (t *timeline) job(j db.TimelineJobsRow) {
	if j.FinishedAt.Valid && j.FinishedAt.Int64 < t.f.run.CreatedAt {
		t.add(t.f.run.CreatedAt, atFinished, j.ID, "it is not run again: it keeps the result of the earlier run, %s",
			ci.JobStatus(j.Status).Display(j.AllowedFailure).Word)
		return
	}
	if j.CreatedAt > t.f.run.CreatedAt {
		t.add(j.CreatedAt, atAdded, j.ID, "the job was added to the run")
	}
	if j.ReadyAt.Valid && (!j.QueuedAt.Valid || j.ReadyAt.Int64 <= j.QueuedAt.Int64) {
		if last := t.lastNeed(j.ID, j.ReadyAt.Int64); last != "" {
			t.add(j.ReadyAt.Int64, atReady, j.ID, "what it needs has ended; the last was %s", last)
		}
	}
	if j.QueuedAt.Valid {
		text := "it waits for an agent"
		if j.ReadyAt.Valid && j.ReadyAt.Int64 < j.QueuedAt.Int64 {
			text = "its turn has come: " + text
		}
		t.add(j.QueuedAt.Int64, atQueued, j.ID, "%s", text)
		t.waits(j)
	}
	if j.UnroutableSince.Valid {
		t.add(j.UnroutableSince.Int64, atUnroutable, j.ID, "nothing in the cluster can run it: it ends as unroutable unless that changes")
	}
	if j.StartedAt.Valid && j.Attempt > 0 {
		t.add(j.StartedAt.Int64, atStarted, j.ID, "agent %s began to work on it", j.AgentID.String).Link = link("agent", j.AgentID.String)
	}
	if j.FinishedAt.Valid {
		t.add(max(j.FinishedAt.Int64, j.StartedAt.Int64), atFinished, j.ID, "%s", endText(j))
	}
}

func endText(j db.TimelineJobsRow) string {
	text := "it ended: " + ci.JobStatus(j.Status).Display(j.AllowedFailure).Word
	switch {
	case j.Error != "":
		text += ": " + j.Error
	case j.InitFailure != "":
		text += " (" + j.InitFailure + ")"
	case j.CancelReason != "" && j.Status == string(ci.JobCancelled):
		text += ": " + j.CancelReason
	}
	return text
}

// lastNeed is the need whose end let the job go on; "" when it needed nothing.
func (t *timeline) lastNeed(jobID string, by int64) string {
	at, name := int64(-1), ""
	first, _ := slices.BinarySearchFunc(t.f.needs, jobID, func(n db.TimelineNeedsRow, id string) int { return cmp.Compare(n.JobID, id) })
	for _, n := range t.f.needs[first:] {
		if n.JobID != jobID {
			break
		}
		if n.FinishedAt.Valid && n.FinishedAt.Int64 <= by && n.FinishedAt.Int64 > at {
			at, name = n.FinishedAt.Int64, n.NeedsName
		}
	}
	return name
}

// waits tells why the job waited, for each time in which it had no agent.
func (t *timeline) waits(j db.TimelineJobsRow) {
	log := t.f.reasons[j.Shape]
	if len(log) == 0 {
		return
	}
	from := j.QueuedAt.Int64
	for _, a := range t.assignmentsOf(j.ID) {
		t.waited(j.ID, log, from, a.CreatedAt, false)
		if from = a.EndedAt.Int64; !a.EndedAt.Valid {
			return
		}
	}
	if j.FinishedAt.Valid {
		t.waited(j.ID, log, from, j.FinishedAt.Int64, false)
		return
	}
	t.waited(j.ID, log, from, t.f.now, true)
}

// waited tells why the job waited from one time to another. What only changed in its details is one entry.
func (t *timeline) waited(jobID string, log []db.TimelineReasonsRow, from, to int64, goesOn bool) {
	last, headline := -1, ""
	for i, r := range log {
		begin, end, open := max(r.At, from), to, goesOn
		if i+1 < len(log) && log[i+1].At < to {
			end, open = log[i+1].At, false
		}
		list := parseReasons(r.Reasons, 0).list
		if begin >= end || len(list) == 0 {
			continue
		}
		if last < 0 || list[0].Text != headline {
			t.add(begin, atWaiting, jobID, "%s", reasonText(list))
			last, headline = len(t.out)-1, list[0].Text
		}
		t.out[last].Until = nil
		if !open {
			until := client.TimeOf(end)
			t.out[last].Until = &until
		}
	}
}

// maxReasonsShown bounds a line; "kici why" shows all there are now.
const maxReasonsShown = 3

func reasonText(list []client.Reason) string {
	var parts []string
	for _, r := range list[:min(len(list), maxReasonsShown)] {
		parts = append(parts, r.Text)
	}
	if more := len(list) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more reasons", more))
	}
	return "it waited because " + strings.Join(parts, "; ")
}

func (t *timeline) assignmentsOf(jobID string) []db.TimelineAssignmentsRow {
	first, _ := slices.BinarySearchFunc(t.f.assigned, jobID, func(a db.TimelineAssignmentsRow, id string) int { return cmp.Compare(a.JobID, id) })
	end := first
	for end < len(t.f.assigned) && t.f.assigned[end].JobID == jobID {
		end++
	}
	return t.f.assigned[first:end]
}

// matchText says which trigger let the run start, and why.
func matchText(decision string) string {
	var d struct {
		Matched     bool
		Trigger     int
		TriggerType string
		Degraded    bool
		Checks      []struct {
			Trigger               int
			Check, Pattern, Value string
			Passed                bool
		}
	}
	if json.Unmarshal([]byte(decision), &d) != nil || !d.Matched {
		return ""
	}
	var parts []string
	for _, c := range d.Checks {
		if c.Trigger == d.Trigger && c.Passed && c.Pattern != "" {
			parts = append(parts, fmt.Sprintf("%s %q matches %q", c.Check, c.Value, c.Pattern))
		}
	}
	text := fmt.Sprintf("the trigger %q of the workflow matched", d.TriggerType)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	if d.Degraded {
		text += "; which files changed is not known, so filters by path were taken as passed"
	}
	return text
}
