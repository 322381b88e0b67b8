package web

import (
	"cmp"
	"context"
	"database/sql"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// emit writes an event as it stands after its first attempt: dead when reason is given, else processed with an outcome, else pending.
func (s *site) emit(e db.InsertEventParams, outcome, deadReason string) {
	s.t.Helper()
	ctx := context.Background()
	s.world.Write(func(tx *store.Tx) error {
		if e.OrgID == "" {
			e.OrgID = readtest.Org
		}
		e.TargetRepos, e.CreatedAt, e.ExpiresAt, e.Emitter = "[]", tx.Now(), tx.Now()+1000_000, cmp.Or(e.Emitter, event.EmitterStep)
		if e.Payload == "" {
			e.Payload = `{"version":"<script>alert(1)</script>"}`
		}
		if err := tx.InsertEvent(ctx, e); err != nil || outcome+deadReason == "" {
			return err
		}
		if _, err := tx.ClaimEvents(ctx, db.ClaimEventsParams{Now: sql.NullInt64{Int64: tx.Now(), Valid: true}, ClaimedBy: "n", MaxAttempts: 5, MaxRows: 100}); err != nil {
			return err
		}
		now := sql.NullInt64{Int64: tx.Now(), Valid: true}
		if deadReason != "" {
			_, err := tx.FailEvent(ctx, db.FailEventParams{ID: e.ID, ClaimedBy: "n", Attempt: 1, LastError: "the workflow <broken> cannot be planned", DlqAt: now, DlqReason: deadReason})
			return err
		}
		_, err := tx.FinishEvent(ctx, db.FinishEventParams{
			ID: e.ID, ClaimedBy: "n", Attempt: 1, ProcessedAt: now, MatchOutcome: sql.NullString{String: outcome, Valid: true}, MatchedCount: sql.NullInt64{Valid: true},
		})
		return err
	})
}

func TestEventsAreListedAndFiltered(t *testing.T) {
	s := newSite(t, "/ci")
	if text := s.page("/ci/events"); !strings.Contains(text, "Nothing was emitted yet") || strings.Contains(text, `class="badge"`) {
		t.Error("an empty list does not say what to do, or counts dead letters")
	}
	s.emit(db.InsertEventParams{ID: "e1", EventName: "deploy.<b>ready", SourceRoutingKey: readtest.Key, SourceRepo: readtest.Repo}, event.OutcomeTrust, "")
	s.emit(db.InsertEventParams{ID: "e2", EventName: "deploy.done", SourceRoutingKey: readtest.Other, SourceRepo: "acme/site"}, "", event.DeadNotRetryable)
	s.emit(db.InsertEventParams{ID: "e4", OrgID: "other", EventName: "not.ours"}, "", event.DeadNotRetryable)
	s.emit(db.InsertEventParams{ID: "e3", EventName: "deploy.wait", SourceRoutingKey: readtest.Key}, "", "")
	for query, want := range map[string]string{
		"": "e1 e2 e3", "name=deploy.done": "e2", "outcome=trust-blocked": "e1", "outcome=nonsense": "e1 e2 e3", "since=1h": "e1 e2 e3", "since=1h&outcome=matched": "",
	} {
		text := s.page("/ci/events?" + query)
		for _, id := range []string{"e1", "e2", "e3", "e4"} {
			if got := strings.Contains(text, `id="event-`+id+`"`); got != slices.Contains(strings.Fields(want), id) {
				t.Errorf("%q shows %s: %v", query, id, got)
			}
		}
	}
	s.emit(db.InsertEventParams{ID: "e5", EventName: "__job_complete", SourceRoutingKey: readtest.Key, Emitter: event.EmitterOrchestrator}, "", "")
	if text := s.page("/ci/events?by=others"); strings.Contains(text, "__job_complete") || !strings.Contains(text, "deploy.done") || !strings.Contains(text, `name="by" value="others"`) {
		t.Error("the list of others' events shows kici's own, or not theirs")
	}
	text := s.page("/ci/events")
	for _, want := range []string{"deploy.&lt;b&gt;ready", "not trusted by those that wait", "dead letter", ">pending<", `class="badge"`, "1 event could not be routed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	s.doors.scope = readtest.Key
	if text := s.page("/ci/events"); strings.Contains(text, "deploy.done") || strings.Contains(text, `class="badge"`) {
		t.Error("a token of one source sees the events of another")
	}
	if r := s.ask("owner", http.MethodGet, "/ci/events/e2", nil); r.StatusCode != http.StatusForbidden {
		t.Error(r.StatusCode)
	}
	if r := s.ask("owner", http.MethodGet, "/ci/events/e4", nil); r.StatusCode != http.StatusNotFound {
		t.Error(r.StatusCode)
	}
}

func TestAnEventSaysWhatBecameOfIt(t *testing.T) {
	s := newSite(t, "")
	run := s.world.Run(readtest.NewRun{})
	s.emit(db.InsertEventParams{ID: "e1", EventName: "deploy.ready", SourceRoutingKey: readtest.Key, SourceRepo: readtest.Repo, SourceRunID: run}, event.OutcomeNoTrigger, "")
	text := s.page("/events/e1")
	for _, want := range []string{"deploy.ready started nothing", "the filters of their triggers do not match", `href="/runs/` + run + `"`, "acme/shop › ci #1", "Show its payload"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "alert(1)") || strings.Contains(text, "/retry") || len(s.doors.entries) > 0 {
		t.Error("the payload is shown without being asked for, or what was routed can be retried")
	}
	if text := s.page("/events/e1?payload=1"); !strings.Contains(text, "&lt;script&gt;alert(1)") || s.doors.entries[0].Action != "event.read" {
		t.Errorf("the payload: %+v", s.doors.entries)
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/events/e1?payload=1", nil)); strings.Contains(text, "alert(1)") || !strings.Contains(text, "event_log.read_payload") {
		t.Error("an auditor sees what it carries")
	}
	there := s.world.Run(readtest.NewRun{Key: readtest.Other, Repo: "acme/secret-site"})
	s.world.Write(func(tx *store.Tx) error {
		_, err := tx.InsertEventRun(context.Background(), "e1", "reg-1", there)
		return err
	})
	if text := s.page("/events/e1"); !strings.Contains(text, "acme/secret-site") {
		t.Error("a run that it started is missing")
	}
	s.doors.scope = readtest.Key
	if text := s.page("/events/e1"); strings.Contains(text, "acme/secret-site") || !strings.Contains(text, "1 run that it started belongs to another source") {
		t.Error("a token of one source sees the run of another, or nothing says that there is one")
	}
	s.doors.scope = ""
	s.emit(db.InsertEventParams{ID: "e2", EventName: event.ScaleUp, Payload: `{"claimCode":"s3cret","labels":["x"]}`}, event.OutcomeNoRegistration, "")
	if text := s.page("/events/e2?payload=1"); strings.Contains(text, "s3cret") || !strings.Contains(text, "[redacted]") {
		t.Error("a claim code is shown")
	}
}

func TestDeadLettersAreRetriedAndDiscarded(t *testing.T) {
	s := newSite(t, "")
	if text := s.page("/events/dead"); !strings.Contains(text, "No dead letter") || !strings.Contains(text, "Every event was routed") {
		t.Error("no dead letter")
	}
	s.emit(db.InsertEventParams{ID: "e1", EventName: "deploy.ready", SourceRoutingKey: readtest.Key}, "", event.DeadNotRetryable)
	text := s.page("/events/dead")
	for _, want := range []string{"1 event could not be routed", "the workflow &lt;broken&gt; cannot be planned", `action="/events/e1/retry"`, `action="/events/e1/discard"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/events/dead", nil)); strings.Contains(text, "<form action=\"/events") {
		t.Error("an auditor sees buttons")
	}
	if r := s.ask("owner", http.MethodPost, "/events/e1/retry", nil); r.Header.Get("Location") != "/events/e1" {
		t.Error(r.Header.Get("Location"))
	}
	if r := s.ask("owner", http.MethodPost, "/events/e1/discard", nil); r.Header.Get("Location") != "/events/dead" {
		t.Error(r.Header.Get("Location"))
	}
	s.doors.scope = readtest.Other
	if r := s.ask("owner", http.MethodPost, "/events/e1/discard", nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("discarding what is another source's: %d", r.StatusCode)
	}
	if !slices.Equal(s.desk.calls, []string{"retry default e1", "discard default e1"}) {
		t.Error(s.desk.calls)
	}
	var said []string
	for _, e := range s.doors.entries {
		if e.Outcome != access.DeniedEntry {
			said = append(said, e.Action+" "+e.Target+" "+e.Outcome)
		}
	}
	if !slices.Equal(said, []string{"event_dlq.retry e1 allowed", "event_dlq.discard e1 allowed", "event_dlq.discard e1 error"}) {
		t.Error(said)
	}
}

func TestThePagesOfEventsNeedTheirPermission(t *testing.T) {
	s := newSite(t, "")
	s.emit(db.InsertEventParams{ID: "e1", EventName: "deploy.ready", SourceRoutingKey: readtest.Key}, "", event.DeadNotRetryable)
	s.permissions(map[string]access.Permission{
		"/events": access.EventDLQRead, "/events/dead": access.EventDLQRead, "/events/e1": access.EventDLQRead,
		"POST /events/e1/retry": access.EventDLQManage, "POST /events/e1/discard": access.EventDLQManage,
	})
}
