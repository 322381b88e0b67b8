package api

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func newEvents(st *store.Store, env service.Env) *event.Service {
	return event.New(event.Deps{Store: st, Limits: event.DefaultLimits, Env: env, Log: obs.Discard(), Metrics: obs.NewMetrics()})
}

// event stores an event; change may be nil.
func (r *rig) event(id string, at int64, change func(*db.InsertEventParams)) {
	r.t.Helper()
	p := db.InsertEventParams{
		ID: id, OrgID: readtest.Org, EventName: "deploy.done", Payload: `{"v":1}`, SourceRoutingKey: readtest.Key, SourceRepo: readtest.Repo,
		TargetRepos: "[]", CreatedAt: at, ExpiresAt: at + 1_000_000, Emitter: "orchestrator",
	}
	if change != nil {
		change(&p)
	}
	r.Write(func(tx *store.Tx) error { return tx.InsertEvent(r.t.Context(), p) })
}

// kill makes an event a dead letter.
func (r *rig) kill(id string, at int64) {
	r.t.Helper()
	r.Write(func(tx *store.Tx) error {
		rows, err := tx.ClaimEvents(r.t.Context(), db.ClaimEventsParams{Now: null(1), ClaimedBy: "n1", MaxAttempts: 5, MaxRows: 1000})
		if err != nil {
			return err
		}
		for _, e := range rows {
			if e.ID != id {
				if _, err := tx.GiveBackEvent(r.t.Context(), e.ID, "n1", e.Attempts); err != nil {
					return err
				}
				continue
			}
			p := db.FailEventParams{LastError: "no", DlqAt: null(at), DlqReason: event.DeadExhausted, ID: id, ClaimedBy: "n1", Attempt: e.Attempts}
			if n, err := tx.FailEvent(r.t.Context(), p); err != nil || n != 1 {
				return fmt.Errorf("kill %s: %d %w", id, n, err)
			}
		}
		return nil
	})
}

func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// EVT-31: ties in one millisecond are neither skipped nor repeated, whatever the size of a page.
func TestEventsArePagedWithoutGaps(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		var want []string
		for i := range 23 {
			id := fmt.Sprintf("e-%02d", i)
			r.event(id, int64(1000+i/6), nil) // six in a millisecond
			want = append(want, id)
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 4, 6, 50} {
			for _, filter := range []string{"", "&name=deploy.done"} {
				var got []string
				after := ""
				for range 40 {
					status, text := r.do("GET", fmt.Sprintf("%s/events?limit=%d&after=%s%s", admin, limit, after, filter), "owner", "")
					if status != 200 {
						t.Fatalf("%d %s", status, text)
					}
					page := decode[client.EventList](t, text)
					for _, e := range page.Events {
						got = append(got, e.ID)
					}
					if after = page.NextCursor; after == "" {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("limit %d%s: %v, want %v", limit, filter, got, want)
				}
			}
		}
	})
}

func TestEventFilters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		r.event("e-1", 1000, nil)
		r.event("e-2", 2000, func(p *db.InsertEventParams) { p.EventName = "other" })
		r.event("e-3", 3000, func(p *db.InsertEventParams) { p.SourceRoutingKey = readtest.Other })
		for query, want := range map[string]string{
			"":                    "e-3 e-2 e-1",
			"name=other":          "e-2",
			"since=2000":          "e-3 e-2",
			"before=2000":         "e-1",
			"outcome=matched":     "",
			"limit=1":             "e-3",
			"limit=nonsense":      "e-3 e-2 e-1",
			"since=1&before=3000": "e-2 e-1",
		} {
			status, text := r.do("GET", admin+"/events?"+query, "owner", "")
			var got []string
			for _, e := range decode[client.EventList](t, text).Events {
				got = append(got, e.ID)
			}
			if status != 200 || strings.Join(got, " ") != want {
				t.Errorf("%q: %d %v, want %s", query, status, got, want)
			}
		}
		for _, bad := range []string{"outcome=nope", "before=x", "since=x", "after=nope"} {
			if status, text := r.do("GET", admin+"/events?"+bad, "owner", ""); status != 400 {
				t.Errorf("%s: %d %s", bad, status, text)
			}
		}
		// A scoped token sees what was emitted under its key (EVT-32).
		if _, text := r.do("GET", admin+"/events", "owner/"+readtest.Other, ""); strings.Contains(text, "e-1") || !strings.Contains(text, "e-3") {
			t.Errorf("scoped list: %s", text)
		}
		if status, text := r.do("GET", admin+"/events/e-1", "owner/"+readtest.Other, ""); status != 403 {
			t.Errorf("scoped: %d %s", status, text)
		}
		if status, text := r.do("GET", admin+"/events/e-9", "owner", ""); status != 404 {
			t.Errorf("absent: %d %s", status, text)
		}
	})
}

// XC-149, EVT-32, EVT-33: without the permission the payload is withheld and the rest shown; a claim code is never shown.
func TestXC149EventPayloadIsWithheldAndClaimCodesNeverShown(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.event("e-1", 1000, func(p *db.InsertEventParams) { p.Payload = `{"secret":"for few"}` })
	r.event("e-2", 1001, func(p *db.InsertEventParams) {
		p.EventName, p.Payload = event.ScaleUp, `{"scalerName":"s","claimCode":"c0ffee","more":[{"claimCode":"c0ffee"}],"n":12345678901234567890}`
	})
	r.event("e-3", 1002, func(p *db.InsertEventParams) { p.EventName, p.Payload = event.ScaleUp, `{"claimCode":"c0ffee"` })
	status, text := r.do("GET", admin+"/events/e-1", "auditor", "")
	e := decode[client.Event](t, text)
	if status != 200 || e.Payload != nil || !strings.Contains(e.Withheld, "event_log.read_payload") || strings.Contains(text, "for few") || e.Name != "deploy.done" || len(e.Explanation) == 0 {
		t.Errorf("auditor: %d %s", status, text)
	}
	if status, text := r.do("GET", admin+"/events/e-1", "admin", ""); status != 200 || !strings.Contains(text, "for few") {
		t.Errorf("admin: %d %s", status, text)
	}
	for _, id := range []string{"e-2", "e-3"} {
		if _, text := r.do("GET", admin+"/events/"+id, "owner", ""); strings.Contains(text, "c0ffee") || !strings.Contains(text, "[redacted]") {
			t.Errorf("%s: %s", id, text)
		}
	}
	if _, text := r.do("GET", admin+"/events/e-2", "owner", ""); !strings.Contains(text, "12345678901234567890") {
		t.Errorf("the rest of the payload changed: %s", text)
	}
}

func TestEmitEvent(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.addSource("1", "shop")
	emit := func(token, body string) (int, string) { return r.do("POST", admin+"/events/emit", token, body) }
	status, text := emit("admin", `{"name":"deploy","payload":{"v":1},"targetRepos":["a/b"]}`)
	id := decode[client.EmittedEvent](t, text).EventID
	if status != 201 || id == "" {
		t.Fatalf("%d %s", status, text)
	}
	_, text = r.do("GET", admin+"/events/"+id, "owner", "")
	if e := decode[client.Event](t, text); e.Emitter != "operator" || e.RoutingKey != "" || e.State != "pending" || string(e.Payload) != `{"v":1}` || !slices.Equal(e.TargetRepos, []string{"a/b"}) {
		t.Errorf("%s", text)
	}
	// As a source; a scoped token is always its own source.
	for token, body := range map[string]string{"admin": `{"name":"deploy","source":"shop"}`, "owner/github:1": `{"name":"deploy"}`} {
		status, text = emit(token, body)
		if status != 201 {
			t.Fatalf("%s: %d %s", token, status, text)
		}
		_, text = r.do("GET", admin+"/events/"+decode[client.EmittedEvent](t, text).EventID, "owner", "")
		if e := decode[client.Event](t, text); e.RoutingKey != "github:1" || e.Repo != "a/b" || e.Source != "shop" {
			t.Errorf("%s: %s", token, text)
		}
	}
	if status, text = emit("owner/"+readtest.Key, `{"name":"deploy","source":"shop"}`); status != 403 {
		t.Errorf("as another source: %d %s", status, text)
	}
	// XC-42 for the route: refused, naming the prefix.
	for name, prefix := range map[string]string{"__schedule_fire": `\"__\"`, "kici.scaler.scale-up": `\"kici.\"`} {
		if status, text = emit("owner", `{"name":"`+name+`"}`); status != 400 || !strings.Contains(text, prefix) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, body := range []string{`{"name":""}`, `{"name":"a b"}`, `{"name":"x","payload":[1]}`, `{"name":"x","targetRepos":[""]}`, `{}`} {
		if status, text = emit("owner", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	// A repeated request emits once.
	var ids []string
	for range 2 {
		req := httptest.NewRequest(http.MethodPost, admin+"/events/emit", strings.NewReader(`{"name":"once"}`))
		req.Header.Set("Authorization", "Bearer owner")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "k1")
		_, text = r.send(req)
		ids = append(ids, decode[client.EmittedEvent](t, text).EventID)
	}
	if ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("two events: %v", ids)
	}
	for range 101 {
		status, text = emit("owner", `{"name":"storm"}`)
	}
	if status != 429 || !strings.Contains(text, "retryAfterMs") {
		t.Errorf("after 100 events: %d %s", status, text)
	}
}

func TestDeadLetters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		for i := range 5 {
			id := fmt.Sprint("e-", i)
			r.event(id, int64(1000+i), nil)
			r.kill(id, 5000) // all in one millisecond
		}
		r.event("alive", 2000, nil)
		var got []string
		before := ""
		for range 10 {
			_, text := r.do("GET", admin+"/event-dlq?limit=2&before="+before, "auditor", "")
			page := decode[client.EventList](t, text)
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			if before = page.NextCursor; before == "" {
				break
			}
		}
		if want := "e-4 e-3 e-2 e-1 e-0"; strings.Join(got, " ") != want {
			t.Errorf("dead letters %v, want %s", got, want)
		}
		count := func(token string) int64 {
			_, text := r.do("GET", admin+"/event-dlq/count", token, "")
			return decode[client.DeadLetterCount](t, text).Count
		}
		if n := count("auditor"); n != 5 {
			t.Errorf("count %d", n)
		}
		if n := count("owner/" + readtest.Other); n != 0 {
			t.Errorf("another key counts %d", n)
		}
		if status, text := r.do("POST", admin+"/event-dlq/e-1/retry", "owner/"+readtest.Other, ""); status != 403 {
			t.Errorf("another key retries: %d %s", status, text)
		}
		if status, text := r.do("POST", admin+"/event-dlq/e-1/retry", "admin", ""); status != 200 || !strings.Contains(text, `"attempts":0`) {
			t.Errorf("retry: %d %s", status, text)
		}
		if e := r.auth.last(); e.Action != "event_dlq.retry" || e.Target != "e-1" {
			t.Errorf("recorded %+v", e)
		}
		if status, text := r.do("DELETE", admin+"/event-dlq/e-2", "admin", ""); status != 200 {
			t.Errorf("discard: %d %s", status, text)
		}
		for _, id := range []string{"alive", "e-1", "e-2", "nope"} {
			if status, text := r.do("POST", admin+"/event-dlq/"+id+"/retry", "admin", ""); status != 404 {
				t.Errorf("retry %s: %d %s", id, status, text)
			}
			if status, text := r.do("DELETE", admin+"/event-dlq/"+id, "admin", ""); status != 404 {
				t.Errorf("discard %s: %d %s", id, status, text)
			}
		}
		if n := count("owner"); n != 3 {
			t.Errorf("count %d, want 3", n)
		}
	})
}

func TestTrust(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.addSource("1", "shop")
	r.addSource("2", "deploy")
	body := `{"sourceRoutingKey":"shop","targetRoutingKey":"deploy","eventNames":["deploy.*"]}`
	status, text := r.do("POST", admin+"/trust", "admin", body)
	row := decode[client.Trust](t, text)
	if status != 201 || row.SourceRoutingKey != "github:1" || row.TargetRoutingKey != "github:2" || row.SourceRepo != "a/b" || !slices.Equal(*row.EventNames, []string{"deploy.*"}) {
		t.Fatalf("%d %s", status, text)
	}
	if status, text = r.do("POST", admin+"/trust", "admin", `{"sourceRoutingKey":"github:1","targetRoutingKey":"github:2"}`); status != 201 {
		t.Fatalf("again: %d %s", status, text)
	}
	if again := decode[client.Trust](t, text); again.ID != row.ID || again.EventNames != nil {
		t.Errorf("again: %s", text)
	}
	for _, bad := range []string{`{"sourceRoutingKey":"shop"}`, `{"sourceRoutingKey":"shop","targetRoutingKey":"deploy","eventNames":["[a"]}`} {
		if status, text := r.do("POST", admin+"/trust", "admin", bad); status != 400 {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
	if status, text := r.do("POST", admin+"/trust", "admin", `{"sourceRoutingKey":"nope","targetRoutingKey":"deploy"}`); status != 404 {
		t.Errorf("unknown source: %d %s", status, text)
	}
	// Both keys are needed.
	for _, key := range []string{"github:1", "github:2"} {
		if status, text := r.do("POST", admin+"/trust", "owner/"+key, body); status != 403 {
			t.Errorf("with a token of %s: %d %s", key, status, text)
		}
		if status, text := r.do("DELETE", admin+"/trust/"+row.ID, "owner/"+key, ""); status != 403 {
			t.Errorf("removed with a token of %s: %d %s", key, status, text)
		}
		if _, text := r.do("GET", admin+"/trust", "owner/"+key, ""); !strings.Contains(text, row.ID) {
			t.Errorf("list with a token of %s: %s", key, text)
		}
	}
	if _, text := r.do("GET", admin+"/trust", "owner/github:3", ""); strings.Contains(text, row.ID) {
		t.Errorf("a stranger's list: %s", text)
	}
	if status, text := r.do("GET", admin+"/trust?routingKey=github:1", "owner/github:3", ""); status != 403 {
		t.Errorf("another key's list: %d %s", status, text)
	}
	if _, text := r.do("GET", admin+"/trust?routingKey=github:9", "owner", ""); !strings.Contains(text, `"trust":[]`) {
		t.Errorf("list of another key: %s", text)
	}
	if status, text := r.do("DELETE", admin+"/trust/"+row.ID, "admin", ""); status != 200 {
		t.Errorf("remove: %d %s", status, text)
	}
	if status, text := r.do("DELETE", admin+"/trust/"+row.ID, "admin", ""); status != 404 {
		t.Errorf("remove again: %d %s", status, text)
	}
}

func null(v int64) sql.NullInt64 { return sql.NullInt64{Int64: v, Valid: true} }
