package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/store"
)

// deadLetterDesk decides about events that could not be routed (event.Service).
type deadLetterDesk interface {
	RetryDead(ctx context.Context, orgID, id string) error
	DiscardDead(ctx context.Context, orgID, id string) error
}

func (s *server) eventPages() {
	s.page("GET /events", access.EventDLQRead, s.events)
	s.page("GET /events/live", access.EventDLQRead, s.eventsLive)
	s.page("GET /events/dead", access.EventDLQRead, s.dead)
	s.page("GET /events/dead/live", access.EventDLQRead, s.deadLive)
	s.page("GET /events/{event}", access.EventDLQRead, s.event)
	s.write("POST /events/{event}/retry", "event_dlq.manage", access.EventDLQManage, s.retryDead)
	s.write("POST /events/{event}/discard", "event_dlq.manage", access.EventDLQManage, s.discardDead)
}

// eventFilter is which events the list shows; it travels in the query. Since is one of sinces.
type eventFilter struct {
	Name, Outcome, Since, Cursor string
	Foreign                      bool // only those that kici itself did not emit
}

func eventFilterOf(q url.Values) eventFilter {
	get := func(name string) string {
		v := strings.TrimSpace(q.Get(name))
		return strings.ToValidUTF8(v[:min(len(v), maxFilter)], "")
	}
	f := eventFilter{get("name"), get("outcome"), get("since"), get("cursor"), q.Get("by") == byOthers}
	if !slices.Contains(event.Outcomes, f.Outcome) {
		f.Outcome = ""
	}
	if f.from(time.Now()) == 0 {
		f.Since = ""
	}
	return f
}

// byOthers is the list without the events of kici itself.
const byOthers = "others"

// sinces are how far back the form lets one look.
var sinces = []struct {
	id, word string
	length   time.Duration
}{{"1h", "the last hour", time.Hour}, {"24h", "the last 24 hours", 24 * time.Hour}, {"7d", "the last 7 days", 7 * 24 * time.Hour}}

// from is the filter's instant in UTC ms, 0 for none.
func (f eventFilter) from(now time.Time) int64 {
	for _, s := range sinces {
		if s.id == f.Since {
			return now.Add(-s.length).UnixMilli()
		}
	}
	return 0
}

func (f eventFilter) query() string {
	by := ""
	if f.Foreign {
		by = byOthers
	}
	return queryOf("name", f.Name, "outcome", f.Outcome, "since", f.Since, "by", by, "cursor", f.Cursor)
}

func (f eventFilter) at(cursor string) eventFilter { f.Cursor = cursor; return f }

func (f eventFilter) any() bool { return f.Name+f.Outcome+f.Since != "" }

func (f eventFilter) tab() string {
	if f.Foreign {
		return byOthers
	}
	return "all"
}

// outcomeWord is an outcome as the form offers it (EVT-24).
func outcomeWord(outcome string) string {
	switch outcome {
	case event.OutcomeMatched:
		return "started workflows"
	case event.OutcomeBuffered:
		return "waits for a failure batch"
	case event.OutcomeNoRegistration:
		return "no workflow waits for it"
	case event.OutcomeNoTarget:
		return "none where it was addressed to"
	case event.OutcomeTrust:
		return "not trusted by those that wait"
	case event.OutcomeNoTrigger:
		return "the filters of the triggers do not match"
	}
	return plainWord(outcome)
}

// eventStatus is the state of an event in a word (EVT-30).
func eventStatus(e client.Event) (class, word string) {
	switch e.State {
	case event.StateDead:
		return "failed", "dead letter"
	case event.StateLeased:
		return "running", "being routed"
	case event.StateRetrying:
		return "running", "retrying"
	case event.StatePending:
		return "queued", "pending"
	}
	switch e.Outcome {
	case event.OutcomeMatched:
		return "success", "processed"
	case event.OutcomeBuffered:
		return "held", "buffered"
	}
	return "skipped", "processed"
}

// eventLine is what became of an event, in a phrase.
func eventLine(e client.Event) string {
	switch {
	case e.State == event.StateDead, e.State == event.StateRetrying:
		return firstLine(e.Error)
	case e.Outcome == event.OutcomeMatched && e.Matched != nil:
		return "started " + count(int(*e.Matched), "workflow", "workflows")
	case e.State == event.StateProcessed:
		return outcomeWord(e.Outcome)
	case e.State == event.StateLeased:
		return fmt.Sprintf("attempt %d is under way", e.Attempts)
	}
	return "waits to be routed"
}

// eventHeadline answers what became of one event.
func eventHeadline(e client.Event) string {
	switch e.State {
	case event.StateDead:
		return e.Name + " could not be routed"
	case event.StateRetrying:
		return e.Name + " could not be routed yet"
	case event.StateProcessed:
		if e.Outcome == event.OutcomeMatched {
			return e.Name + " " + eventLine(e)
		}
		if e.Outcome == event.OutcomeBuffered {
			return e.Name + " waits for a failure batch"
		}
		return e.Name + " started nothing"
	case event.StateLeased:
		return e.Name + " is being routed"
	}
	return e.Name + " waits to be routed"
}

// emitterLine says who emitted an event, without a link.
func emitterLine(e client.Event) string {
	switch e.Emitter {
	case event.EmitterStep:
		return "a step"
	case event.EmitterOperator:
		return cmp.Or(e.Actor, "somebody")
	}
	return "kici"
}

func runStatus(stored string) (class, word string) {
	d := ci.RunStatus(stored).Display()
	return d.Class, d.Word
}

func (s *server) events(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.eventsView(r.Context(), c, eventFilterOf(r.URL.Query()))
	if err != nil {
		return err
	}
	s.render(w, r, eventsPage(v))
	return nil
}

func (s *server) eventsView(ctx context.Context, c caller, f eventFilter) (eventsView, error) {
	list, err := s.Reads.Events(ctx, c.scope, read.EventFilter{Name: f.Name, Outcome: f.Outcome, Foreign: f.Foreign, Since: f.from(time.Now()), After: f.Cursor, Limit: 50})
	return eventsView{page: s.frame(c, navEvents, "Events"), Filter: f, Events: list.Events, Next: list.NextCursor, Live: f.Cursor == ""}, err
}

// eventsLive draws the table again; the form above it is the reader's.
func (s *server) eventsLive(w http.ResponseWriter, r *http.Request, c caller) error {
	f := eventFilterOf(r.URL.Query())
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.eventsView(ctx, c, f)
		return eventsTable(v), err
	}, topic{store.TopicEvents, ""}, topic{store.TopicRunList, c.OrgID})
}

func (s *server) dead(w http.ResponseWriter, r *http.Request, c caller) error {
	v, err := s.deadView(r.Context(), c, r.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	s.render(w, r, deadPage(v))
	return nil
}

func (s *server) deadView(ctx context.Context, c caller, cursor string) (deadView, error) {
	v := deadView{page: s.frame(c, navEvents, "Dead letters"), Cursor: cursor, CanManage: c.offers("event_dlq.manage", access.EventDLQManage)}
	list, err := s.Reads.DeadLetters(ctx, c.scope, cursor, 50)
	if err != nil {
		return v, err
	}
	v.Events, v.Next = list.Events, list.NextCursor
	n, err := s.Reads.DeadLetterCount(ctx, c.scope)
	v.Count = n.Count
	return v, err
}

func (s *server) deadLive(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.live(w, r, func(ctx context.Context) (templ.Component, error) {
		v, err := s.deadView(ctx, c, r.URL.Query().Get("cursor"))
		return deadBody(v), err
	}, topic{store.TopicEvents, ""})
}

// event shows one event. What it carries is read only when it is asked for: that is recorded, as by the API.
func (s *server) event(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx := r.Context()
	payload := r.URL.Query().Get("payload") != "" && c.Can(access.EventLogReadPayload)
	e, err := s.Reads.Event(ctx, c.scope, r.PathValue("event"), payload)
	if payload {
		s.audit(r, c, "event.read", r.PathValue("event"), err)
	}
	if err != nil {
		return err
	}
	v := eventView{
		page: s.frame(c, navEvents, "Event "+e.Name), Event: e, CanManage: c.offers("event_dlq.manage", access.EventDLQManage), CanPayload: c.Can(access.EventLogReadPayload),
	}
	if e.RunID != "" {
		if head, err := s.Reads.RunHead(ctx, c.scope, e.RunID); err == nil {
			v.From = &head
		}
	}
	s.render(w, r, eventPage(v))
	return nil
}

// retryDead routes a dead letter again.
func (s *server) retryDead(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.decideDead(w, r, c, "event_dlq.retry", s.Events.RetryDead, "/events/"+r.PathValue("event"))
}

func (s *server) discardDead(w http.ResponseWriter, r *http.Request, c caller) error {
	return s.decideDead(w, r, c, "event_dlq.discard", s.Events.DiscardDead, "/events/dead")
}

// decideDead looks first whether the caller may see the event at all (ADM-5).
func (s *server) decideDead(w http.ResponseWriter, r *http.Request, c caller, action string, do func(context.Context, string, string) error, next string) error {
	id := r.PathValue("event")
	_, err := s.Reads.Event(r.Context(), c.scope, id, false)
	if err == nil {
		err = do(r.Context(), c.OrgID, id)
	}
	s.audit(r, c, action, id, err)
	if err != nil {
		return err
	}
	s.redirect(w, r, next)
	return nil
}

// eventTabs are the pages of events.
func eventTabs(dead int64, here string) []tab {
	name := "Dead letters"
	if dead > 0 {
		name = fmt.Sprintf("Dead letters (%d)", dead)
	}
	return []tab{{"All events", "/events", here == "all"}, {"Of steps and people", "/events?by=" + byOthers, here == byOthers}, {name, "/events/dead", here == "dead"}}
}

func (v deadView) headline() string {
	if v.Count == 0 {
		return "No dead letter"
	}
	return count(int(v.Count), "event could not be routed", "events could not be routed")
}

// explanation is what became of an event, without what stands above it already.
func (v eventView) explanation() []string {
	if v.From != nil && len(v.Event.Explanation) > 1 {
		return v.Event.Explanation[1:] // who emitted it
	}
	return v.Event.Explanation
}

func deadWord(e client.Event) string {
	if e.DeadReason == event.DeadNotRetryable {
		return "cannot be mended by repeating"
	}
	return count(int(e.Attempts), "attempt failed", "attempts failed")
}
