package ingress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/sourcetest"
	"github.com/kici-go/kici/internal/store/storetest"
)

func (w *world) generic(name, options string) string {
	w.t.Helper()
	added, err := w.in.AddGeneric(w.t.Context(), GenericSource{OrgID: "default", Name: name, Options: []byte(options)})
	if err != nil {
		w.t.Fatal(err)
	}
	return added.Secret
}

func TestAnswers(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.generic("open", `{"verificationMethod":"none","allowedEvents":["deploy"],"maxPayloadBytes":10}`)
	local := w.source("local", "/does/not/exist")
	event := func(e string) map[string]string { return map[string]string{"X-Event-Type": e} }
	for name, tc := range map[string]struct {
		got  reply
		code int
		says string
	}{
		"accepted":            {w.post("open", []byte("{}"), event("deploy")), 202, ""},
		"filtered":            {w.post("open", []byte("{}"), event("other")), 200, ""},
		"too large":           {w.post("open", []byte(strings.Repeat("x", 11)), event("deploy")), 413, "10 bytes"},
		"largest":             {w.post("open", []byte(strings.Repeat("x", 10)), event("deploy")), 202, ""},
		"no such source":      {w.post("nothing", nil, nil), 404, "no such source"},
		"local without JSON":  {w.signed("local", local, "push", "", []byte("x")), 400, "not a JSON object"},
		"local without event": {w.signed("local", local, "", "", []byte("{}")), 400, "x-event-type"},
		"local, unsigned":     {w.post("local", []byte("{}"), event("push")), 401, "not signed"},
	} {
		if tc.got.code != tc.code || !strings.Contains(tc.got.Error, tc.says) || tc.got.Accepted != (tc.code < 300) {
			t.Errorf("%s: %+v", name, tc.got)
		}
	}
	if got := w.post("open", []byte("{}"), event("other")); got.Status != "filtered" || got.DeliveryID != "" {
		t.Errorf("%+v", got)
	}
	rec := httptest.NewRecorder()
	w.in.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/webhook/default/generic/open", nil))
	if rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", rec.Code)
	}
	// The organisation of the path is the source's.
	req := httptest.NewRequest(http.MethodPost, "/webhook/other/generic/open", strings.NewReader("{}"))
	if got := w.do(req); got.code != http.StatusNotFound {
		t.Errorf("another organisation: %+v", got)
	}
}

func TestSourceThatCannotVerifySaysSo(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.generic("hooks", `{}`)
	clear(w.secrets.values)
	got := w.signed("hooks", "", "e", "", []byte("{}"))
	if got.code != http.StatusInternalServerError || got.Accepted {
		t.Errorf("%+v", got)
	}
}

func TestRateLimitOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, storetest.SQLite(t))
		w.generic("slow", `{"verificationMethod":"none","rateLimitRpm":6}`)
		w.generic("other", `{"verificationMethod":"none"}`)
		for i := range 6 {
			if got := w.post("slow", []byte("{}"), nil); got.code != http.StatusAccepted {
				t.Fatalf("%d: %+v", i, got)
			}
		}
		got := w.post("slow", []byte("{}"), nil)
		if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "10" {
			t.Errorf("%+v %v", got, got.header)
		}
		if got := w.post("other", []byte("{}"), nil); got.code != http.StatusAccepted {
			t.Errorf("another source is limited too: %+v", got)
		}
		time.Sleep(10 * time.Second)
		if got := w.post("slow", []byte("{}"), nil); got.code != http.StatusAccepted {
			t.Errorf("after Retry-After: %+v", got)
		}
	})
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t), func(d *Deps) { d.Settings.MaxInFlight = 1; d.Settings.MaxBodiesBytes = 100 })
	w.generic("open", `{"verificationMethod":"none"}`)
	if !w.in.admission.enter() {
		t.Fatal("no room")
	}
	got := w.post("open", []byte("{}"), nil)
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("%+v", got)
	}
	w.in.admission.leave()
	if !w.in.admission.bodies.TryAcquire(99) {
		t.Fatal("no room")
	}
	if got := w.post("open", []byte("{}"), nil); got.code != http.StatusTooManyRequests {
		t.Errorf("bodies: %+v", got)
	}
	w.in.admission.bodies.Release(99)
	if got := w.post("open", []byte("{}"), nil); got.code != http.StatusAccepted {
		t.Errorf("%+v", got)
	}
}

// A burst beyond what the workers hold goes through the store, and all of it is processed.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f), func(d *Deps) { d.Settings.Workers = 2 })
		sha := f.Commit("refs/heads/main", "first", map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
		secret := w.source("demo", "/x")
		w.run()
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		ids := make([]string, 200)
		for i := range ids {
			wg.Go(func() { ids[i] = w.push("demo", secret, pushOf("refs/heads/main", "", sha), fmt.Sprint(i)).ID })
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		for _, id := range ids {
			if d := w.delivery(id); d.Status != statusProcessed || d.Attempts != 1 {
				t.Errorf("%+v", d)
			}
		}
		if n := len(w.runs()); n != len(ids) {
			t.Errorf("%d runs, want %d", n, len(ids))
		}
		w.halt()
	})
}

func TestStopGivesUnfinishedDeliveriesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sourcetest.Fake{}
		w := newWorld(t, storetest.SQLite(t), fakeSource(f), func(d *Deps) {
			local := d.Factories[KindLocal]
			d.Settings.Workers = 1
			d.Factories[KindLocal] = func(c source.Config) (source.Source, error) {
				s, err := local(c)
				return slowSource{s, 30 * time.Second}, err
			}
		})
		secret := w.source("demo", "/x")
		var ids []string
		w.run()
		time.Sleep(time.Second)
		for i := range 3 {
			sha := f.Commit("", fmt.Sprint(i), map[string]string{".kici/workflows/ci.yaml": yaml("ci", "push")})
			ids = append(ids, w.push("demo", secret, pushOf("refs/heads/main", "", sha), fmt.Sprint(i)).ID)
		}
		time.Sleep(time.Second)
		w.halt()
		for _, id := range ids {
			rows, err := w.st.Read().ReadDelivery(t.Context(), "default", id)
			if err != nil || rows[0].Status != statusReceived || rows[0].Attempts != 0 {
				t.Errorf("%+v %v", rows, err)
			}
		}
		w.run()
		time.Sleep(5 * time.Minute)
		for _, id := range ids {
			if d := w.delivery(id); d.Status != statusProcessed || d.Attempts != 1 {
				t.Errorf("%+v", d)
			}
		}
		w.halt()
	})
}

func TestHeadersAreStoredWithoutCredentials(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	secret := w.generic("hooks", `{"verificationMethod":"bearer_token"}`)
	got := w.post("hooks", []byte("{}"), map[string]string{"Authorization": "Bearer " + secret, "Cookie": "c", "X-Fine": "yes"})
	extra, err := w.st.Read().ReadDeliveryExtra(t.Context(), got.ID)
	if err != nil || strings.Contains(extra.Headers, secret) || strings.Contains(extra.Headers, "cookie") || !strings.Contains(extra.Headers, `"x-fine":"yes"`) {
		t.Errorf("%s %v", extra.Headers, err)
	}
}

func FuzzWebhook(f *testing.F) {
	w := newWorld(f, storetest.SQLite(f))
	w.source("demo", "/does/not/exist")
	w.secrets.mu.Lock()
	secret := ""
	for _, v := range w.secrets.values {
		secret = v.Value
	}
	w.secrets.mu.Unlock()
	w.run()
	f.Add("push", "d1", []byte(`{"ref":"refs/heads/main","after":"1234567890123456789012345678901234567890"}`))
	f.Add("pull_request", "", []byte(`{"action":"opened"}`))
	f.Add("x\xff", "\x00", []byte(`{"ref":"--upload-pack=x"}`))
	f.Fuzz(func(t *testing.T, event, id string, body []byte) {
		req := httptest.NewRequest(http.MethodPost, "/webhook/default/generic/demo", strings.NewReader(string(body)))
		req.Header["X-Event-Type"] = []string{event}
		req.Header["X-Delivery-Id"] = []string{id}
		req.Header.Set("X-Signature-256", source.Sign(secret, body))
		switch got := w.do(req); got.code {
		case 200, 202, 400, 413, 429:
		default:
			t.Errorf("%+v", got)
		}
	})
}
