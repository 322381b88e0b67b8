package web

import (
	"context"
	"database/sql"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

func (s *site) page(path string) string {
	s.t.Helper()
	r := s.ask("owner", http.MethodGet, path, nil)
	text := body(s.t, r)
	if r.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d\n%s", path, r.StatusCode, text)
	}
	return text
}

func TestRunsAreFilteredByFormAndLink(t *testing.T) {
	s := newSite(t, "")
	s.world.Run(readtest.NewRun{Title: "first-title"})
	s.world.Run(readtest.NewRun{Title: "second-title", Branch: "dev", Repo: "acme/site", Workflow: "deploy"})
	for query, want := range map[string]string{
		"": "first-title second-title", "branch=dev": "second-title", "repo=acme%2Fsite": "second-title", "workflow=ci": "first-title",
		"actor=ada": "first-title second-title", "actor=bob": "", "event=push": "first-title second-title", "event=pr": "", "status=waiting": "first-title second-title",
		"status=running": "", "q=SECOND": "second-title", "q=%231": "first-title second-title", "q=1a2b3c4": "first-title second-title", "q=1a2b3c4&branch=dev": "second-title",
	} {
		text := s.page("/runs?" + query)
		for _, title := range []string{"first-title", "second-title"} {
			if got := strings.Contains(text, ">"+title+"<"); got != strings.Contains(want, title) {
				t.Errorf("%q shows %s: %v", query, title, got)
			}
		}
		live := "/runs/live?" + strings.ReplaceAll(mustQuery(t, query), "&", "&amp;")
		if !strings.Contains(text, `sse-connect="`+live+`"`) {
			t.Errorf("%q does not refresh with its filter", query)
		}
	}
	if text := s.page("/runs?branch=dev&q=second"); !strings.Contains(text, `href="/runs?q=second"`) || !strings.Contains(text, `href="/runs?branch=dev"`) {
		t.Error("a filter cannot be taken away alone")
	}
	if r := s.ask("owner", http.MethodGet, "/runs?status=nonsense", nil); r.StatusCode != http.StatusBadRequest {
		t.Error(r.StatusCode)
	}
}

func mustQuery(t *testing.T, query string) string {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return filterOf(q).query()
}

func TestRunsPagesGoOn(t *testing.T) {
	s := newSite(t, "/ci")
	s.world.Many(45)
	text := s.page("/ci/runs?branch=main")
	if !strings.Contains(text, ">commit 44<") || strings.Contains(text, ">commit 4<") || !strings.Contains(text, "sse-connect") {
		t.Error("the first page is not that of the newest")
	}
	_, rest, _ := strings.Cut(text, `rel="next" href="`)
	next, _, ok := strings.Cut(rest, `"`)
	if !ok || !strings.HasPrefix(next, "/ci/runs?branch=main&amp;cursor=") {
		t.Fatalf("the next page is at %q", next)
	}
	text = s.page(strings.ReplaceAll(next, "&amp;", "&"))
	if !strings.Contains(text, ">commit 4<") || strings.Contains(text, ">commit 44<") || strings.Contains(text, "sse-connect") || !strings.Contains(text, "← Newest") {
		t.Error("the second page is not that of the others")
	}
}

func TestRunsHeadlineAnswersFirst(t *testing.T) {
	at := client.TimeOf(1)
	for _, c := range []struct {
		now  read.Overview
		want string
	}{
		{read.Overview{}, "All quiet; nothing has failed"},
		{read.Overview{LastFailure: &at}, "All quiet"},
		{read.Overview{Running: 3, Waiting: 7, LastFailure: &at}, "3 running, 7 waiting"},
		{read.Overview{Waiting: 1}, "1 waiting"},
	} {
		if got := runsHeadline(c.now); got != c.want {
			t.Errorf("%+v: %q, want %q", c.now, got, c.want)
		}
	}
}

func TestCapacityIsWhatIsUsedWarmAndFree(t *testing.T) {
	s := client.Scaler{Name: "x", State: "ready", ActiveCount: 9, WarmCount: 3, EndingCount: 1, StartingCount: 2, MaxAgents: 20}
	if got := capText(s); got != "5 + 3 warm + 1 ending of 20" {
		t.Error(got)
	}
	if got := freeText(s); got != "2 starting, 11 free" {
		t.Error(got)
	}
	var parts []string
	for _, m := range meter(s) {
		parts = append(parts, m.Class+" "+m.X+"+"+m.W)
	}
	if !slices.Equal(parts, []string{"used 0.00+25.00", "warm 25.00+15.00", "ending 40.00+5.00"}) {
		t.Error(parts)
	}
	bad := s
	bad.State = "backing off"
	if got := capacity([]client.Scaler{s, bad}); !slices.Equal(got, []string{"10 used", "6 warm", "11 free"}) {
		t.Error(got)
	}
	if got := scalersHeadline([]client.Scaler{s, bad}); got != "x is backing off" {
		t.Error(got)
	}
}

// deliver inserts a delivery that has been dealt with.
func (s *site) deliver(status, decisions string) {
	s.t.Helper()
	s.world.Write(func(tx *store.Tx) error {
		_, err := tx.InsertDelivery(context.Background(), db.InsertDeliveryParams{
			ID: "row-" + status, OrgID: readtest.Org, DeliveryID: "d-" + status, SourceID: "source-1", RoutingKey: readtest.Key, Kind: "gitea", Event: "push",
			Ref: "refs/heads/dev", Status: status, ReceivedAt: tx.Now(), FinishedAt: sql.NullInt64{Int64: tx.Now(), Valid: true},
			Headers: `{"x-event":"push <b>"}`, Decisions: decisions, Body: []byte(`{"a":"<script>alert(1)</script>"}`),
		})
		return err
	})
}

func (s *site) addSource(name string) {
	s.t.Helper()
	s.world.Write(func(tx *store.Tx) error {
		_, err := tx.InsertSource(context.Background(), db.InsertSourceParams{
			ID: "source-1", OrgID: readtest.Org, Kind: "gitea", Name: name, RoutingKey: readtest.Key, Repo: readtest.Repo, Config: "{}", Enabled: true, CreatedAt: tx.Now(),
		})
		return err
	})
}

func TestDeliverySaysInSentencesWhyNothingStarted(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	s.deliver("processed", `[{"workflow":"ci","matched":false,"checks":[{"check":"event","pattern":"push","value":"push","passed":true},
		{"check":"branches","pattern":"main, release/*","value":"dev","passed":false,"reason":"no pattern matches"}]},
		{"workflow":"nightly","matched":false,"checks":[{"check":"event","pattern":"schedule","value":"push","passed":false}]},
		{"workflow":"docs","matched":true,"trigger":"push"}]`)
	text := s.page("/deliveries/d-processed")
	for _, want := range []string{
		"Its branches are main, release/*, and this was dev.", "It starts on schedule, and this was a push.", "Its trigger push matched.", "Show headers and body",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "alert(1)") || strings.Contains(text, "Replay") || len(s.doors.entries) > 0 {
		t.Error("what was sent is shown without being asked for, or a delivery that went well can be replayed")
	}
	text = s.page("/deliveries/d-processed?payload=1")
	if !strings.Contains(text, "&lt;script&gt;alert(1)") || !strings.Contains(text, "push &lt;b&gt;") || s.doors.entries[0].Action != "event_log.payload.read" {
		t.Errorf("headers and body: %+v", s.doors.entries)
	}
	r := s.ask("auditor", http.MethodGet, "/deliveries/d-processed?payload=1", nil)
	if text := body(t, r); strings.Contains(text, "alert(1)") || !strings.Contains(text, "event_log.read_payload") {
		t.Error("an auditor sees what was sent")
	}
}

func TestFailedDeliveryIsReplayed(t *testing.T) {
	s := newSite(t, "")
	s.deliver("failed", "[]")
	if text := s.page("/deliveries/d-failed"); !strings.Contains(text, `action="/deliveries/row-failed/replay"`) {
		t.Error("there is no button")
	}
	r := s.ask("owner", http.MethodPost, "/deliveries/d-failed/replay", nil)
	if got := r.Header.Get("Location"); got != "/deliveries/row-failed" || !slices.Equal(s.intake.calls, []string{"replay row-failed"}) {
		t.Error(got, s.intake.calls)
	}
	if e := s.doors.entries[0]; e.Action != "event_log.replay" || e.Target != "row-failed" || e.Outcome != access.Allowed {
		t.Errorf("%+v", e)
	}
	if r := s.ask("auditor", http.MethodPost, "/deliveries/d-failed/replay", nil); r.StatusCode != http.StatusForbidden {
		t.Error(r.StatusCode)
	}
}

func TestDeliveriesAreFiltered(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	s.deliver("failed", "[]")
	s.deliver("processed", "[]")
	for query, want := range map[string]int{"": 2, "status=failed": 1, "source=shop": 2, "source=other": 0, "event=push": 2, "event=tag": 0, "source=shop&status=processed": 1} {
		if got := strings.Count(s.page("/deliveries?"+query), `<tr id="delivery-`); got != want {
			t.Errorf("%q shows %d, want %d", query, got, want)
		}
	}
}

func TestSourcesAndTheirButtons(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	s.deliver("failed", "[]")
	if text := s.page("/sources"); !strings.Contains(text, "acme/shop") || !strings.Contains(text, `href="/deliveries/row-failed"`) {
		t.Error("the list lacks a repository or the last delivery")
	}
	text := s.page("/sources/shop")
	for _, want := range []string{"/webhook/default/", "kici source webhook-secret shop", "kici source install-hook shop", `action="/sources/source-1/disable"`, `href="/start?source=shop"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/sources/shop", nil)); strings.Contains(text, "<form action=\"/sources") {
		t.Error("an auditor sees buttons")
	}
	if text := body(t, s.ask("owner", http.MethodPost, "/sources/shop/check", nil)); !strings.Contains(text, "It can be reached: main is at 1a2b3c4, fix.") {
		t.Error(text)
	}
	s.ask("owner", http.MethodPost, "/sources/shop/disable", nil)
	s.ask("owner", http.MethodPost, "/sources/shop/enable", nil)
	if !slices.Equal(s.intake.calls, []string{"check shop", "enable shop false", "enable shop true"}) {
		t.Error(s.intake.calls)
	}
	r := s.ask("owner", http.MethodPost, "/sources/shop/trigger", url.Values{"ref": {" dev "}})
	if s.intake.triggers[0] != (ingress.TriggerRequest{OrgID: readtest.Org, Source: "shop", Ref: "dev", By: "owner <i>"}) || r.StatusCode != http.StatusNotFound {
		t.Errorf("%+v, %d", s.intake.triggers, r.StatusCode) // the fake makes no delivery to go on to
	}
	s.intake.err = &ingress.RequestError{Message: "no branch <nope>"}
	r = s.ask("owner", http.MethodPost, "/sources/shop/trigger", url.Values{"ref": {"nope"}})
	if text := body(t, r); r.StatusCode != http.StatusBadRequest || !strings.Contains(text, "no branch &lt;nope&gt;") {
		t.Errorf("%d %s", r.StatusCode, text)
	}
	var said []string
	for _, e := range s.doors.entries {
		said = append(said, e.Action+" "+e.Outcome)
	}
	if !slices.Equal(said, []string{"source.check allowed", "source.disable allowed", "source.enable allowed", "source.trigger allowed", "source.trigger error"}) {
		t.Error(said)
	}
}

func TestAPageAsksWhetherItIsSignedIn(t *testing.T) {
	s := newSite(t, "/ci")
	for role, want := range map[string]int{"": 401, "nobody": 401, "auditor": 204} {
		if r := s.ask(role, http.MethodGet, "/ci/session", nil); r.StatusCode != want {
			t.Errorf("%q: %d", role, r.StatusCode)
		}
	}
	s.doors.down = true
	if r := s.ask("owner", http.MethodGet, "/ci/session", nil); r.StatusCode != http.StatusNoContent {
		t.Errorf("while nobody can say: %d", r.StatusCode)
	}
}

func TestPretty(t *testing.T) {
	for in, want := range map[string]string{`{"a":[1]}`: "{\n  \"a\": [\n    1\n  ]\n}", "not json\x00": "not json", "a=b": "a=b", "\xff": "\ufffd"} {
		if got := pretty(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := pretty(strings.Repeat("x", maxPretty+1)); len(got) > maxPretty+100 || !strings.HasSuffix(got, "left out here") {
		t.Error("a large body is shown whole")
	}
}
