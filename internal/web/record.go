package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
)

// recordFilter is what of a run's record a page shows; it travels in the query.
type recordFilter struct {
	Job    string // name or id, "" is all and the run itself
	Steps  bool   // steps that went well too
	Cursor string
}

func recordFilterOf(r *http.Request) recordFilter {
	q := r.URL.Query()
	job := strings.TrimSpace(q.Get("job"))
	return recordFilter{strings.ToValidUTF8(job[:min(len(job), maxFilter)], ""), q.Get("steps") != "", q.Get("cursor")}
}

func (f recordFilter) query() string {
	steps := ""
	if f.Steps {
		steps = "1"
	}
	return queryOf("job", f.Job, "steps", steps, "cursor", f.Cursor)
}

func (f recordFilter) at(cursor string) recordFilter { f.Cursor = cursor; return f }

// How many entries a page has, and how many the page of a run ends with.
const (
	recordPage = 200
	recordTail = 10
)

// record shows what happened to a run.
func (s *server) record(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.recordView(r.Context(), c, r.PathValue("run"), recordFilterOf(r))
	if err != nil {
		return err
	}
	s.render(w, r, recordPageOf(v))
	return nil
}

func (s *server) recordView(ctx context.Context, c caller, ref string, f recordFilter) (recordView, error) {
	head, err := s.Reads.RunHead(ctx, c.scope, ref)
	if err != nil {
		return recordView{}, err
	}
	v := recordView{page: s.frame(c, "runs", fmt.Sprintf("What happened to %s #%d", head.Workflow, head.Number)), Run: head, Filter: f}
	v.may = linksOf(c)
	v.List, err = s.Reads.Timeline(ctx, c.scope, head.ID, read.TimelineFilter{Job: f.Job, Steps: f.Steps, Cursor: f.Cursor, Limit: recordPage})
	if err != nil {
		return recordView{}, err
	}
	detail, err := s.Reads.Run(ctx, c.scope, head.ID)
	for _, j := range detail.Jobs[:min(len(detail.Jobs), maxSuggested)] {
		v.Jobs = append(v.Jobs, j.Name)
	}
	return v, err
}

// maxSuggested bounds the names that a field offers.
const maxSuggested = 200

func (s *server) recordLive(w http.ResponseWriter, r *http.Request, c caller) error {
	f := recordFilterOf(r)
	head, err := s.Reads.RunHead(r.Context(), c.scope, r.PathValue("run"))
	if err != nil {
		return err
	}
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.recordView(ctx, c, head.ID, f)
		return recordBody(v), err
	}, topic{store.TopicRuns, head.ID})
}

// mayLink is which of the things that an entry leads to the caller may open.
type mayLink struct{ deliveries, events, agents bool }

func linksOf(c caller) mayLink {
	return mayLink{c.Can(access.EventLogRead), c.Can(access.EventDLQRead), c.Can(access.ScalerRead)}
}

// entryLink is where an entry leads, "" for nowhere.
func (m mayLink) entryLink(e client.TimelineEntry) (path, word string) {
	if e.Link == nil {
		return "", ""
	}
	switch {
	case e.Link.Kind == "run":
		return "/runs/" + e.Link.ID, "run"
	case e.Link.Kind == "event" && m.events:
		return "/events/" + e.Link.ID, "event"
	case e.Link.Kind == "delivery" && m.deliveries:
		return "/deliveries/" + e.Link.ID, "delivery"
	case e.Link.Kind == "agent" && m.agents:
		return "/agents?all=1#agent-" + e.Link.ID, "agent"
	}
	return "", ""
}

// entryClass is the colour of an entry: that of the status that it brought.
func entryClass(e client.TimelineEntry) string {
	switch e.Kind {
	case "finished", "run_finished":
		return endClass(e.Text)
	case "started", "run_started", ci.NoteLinkBack:
		return "running"
	case "queued", "waiting", ci.NoteHeld, ci.NoteRequeued:
		return "queued"
	case "unroutable", "agent_failed", "status_failed", "unassigned", ci.NoteLinkLost, ci.NoteTimedOut, ci.NoteDiskLow:
		return "failed"
	case ci.NoteCancelAsked, ci.NoteForced, ci.NoteSuperseded:
		return "cancelled"
	case "step":
		if strings.Contains(e.Text, ": failed") {
			return "failed"
		}
		return "running"
	}
	return "skipped"
}

// endClass is the class of the status that a sentence like "it ended: failed: exit code 1" names.
func endClass(text string) string {
	_, word, _ := strings.Cut(text, "ended: ")
	for _, st := range ci.TerminalJobStatuses {
		for _, allowed := range []bool{true, false} {
			if d := st.Display(allowed); strings.HasPrefix(word, d.Word) {
				return d.Class
			}
		}
	}
	return "skipped"
}

// entryWord is an entry's kind for people.
func entryWord(e client.TimelineEntry) string {
	switch e.Kind {
	case "run_finished", "finished":
		return "ended"
	case "run_started":
		return "started"
	case "acked":
		return "accepted"
	case "unassigned":
		return "taken away"
	case "event_emitted":
		return "event"
	case "started_run":
		return "started a run"
	case "status_posted", "status_failed":
		return "commit status"
	}
	return plainWord(e.Kind)
}

// offset is how long after the run's creation something happened.
func (v recordView) offset(at client.Time) string {
	ms := at.UnixMilli() - v.Run.CreatedAt.UnixMilli()
	if ms < 0 {
		ms = -ms
		return "−" + durationMs(&ms)
	}
	return "+" + durationMs(&ms)
}

// lasted is how long an entry went on, "" for an instant.
func lasted(e client.TimelineEntry) string {
	if e.Until == nil {
		return ""
	}
	ms := e.Until.UnixMilli() - e.At.UnixMilli()
	return "for " + durationMs(&ms)
}

// story is what a run's page takes from its record: how it came to be, what followed from it, and its end.
type story struct {
	recordView
	Cause   *client.TimelineEntry // an internal event
	Effects []client.TimelineEntry
	Tail    []client.TimelineEntry // the newest first
	More    bool                   // than Tail
}

// maxStory bounds what of a record a run's page looks at.
const maxStory = 1000

func (s *server) story(ctx context.Context, c caller, run client.Run) (*story, error) {
	list, err := s.Reads.Timeline(ctx, c.scope, run.ID, read.TimelineFilter{Limit: maxStory})
	if err != nil {
		return nil, err
	}
	st := &story{recordView: recordView{page: s.frame(c, "runs", ""), Run: run, may: linksOf(c)}}
	for i, e := range list.Entries {
		switch e.Kind {
		case "caused":
			st.Cause = &list.Entries[i]
		case "event_emitted", "started_run", "rerun", ci.NoteJobsAdded:
			st.Effects = append(st.Effects, e)
		}
	}
	n := len(list.Entries)
	st.More = n > recordTail || list.NextCursor != ""
	for i := n - 1; i >= max(0, n-recordTail); i-- {
		st.Tail = append(st.Tail, list.Entries[i])
	}
	if list.NextCursor != "" {
		st.Tail = nil // what is newest is on another page
	}
	return st, nil
}

// heldBy is the concurrency groups in which a run, or a job of it, waits.
func (s *server) heldBy(ctx context.Context, c caller, run client.RunDetail) ([]read.Group, error) {
	waits := run.Status == string(ci.RunHeld) || run.Status == string(ci.RunPending)
	for _, j := range run.Jobs {
		waits = waits || j.Status == string(ci.JobHeld)
	}
	if run.FinishedAt != nil || !waits {
		return nil, nil
	}
	held, err := s.Reads.Held(ctx, c.scope)
	var out []read.Group
	for _, g := range held.Groups {
		for _, m := range g.Waiters {
			if m.RunID == run.ID {
				out = append(out, g)
				break
			}
		}
	}
	return out, err
}

// actorOf says who did an entry, "" when it was kici.
func actorOf(e client.TimelineEntry) string { return by(e.Actor) }

// eventPath is the page of the internal event that started a run, "" when none did.
func (v runView) eventPath() string {
	if v.Story == nil || v.Story.Cause == nil {
		return ""
	}
	path, _ := v.Story.may.entryLink(*v.Story.Cause)
	return path
}
