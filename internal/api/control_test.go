package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

func newSettings(t *testing.T, st *store.Store, env service.Env) *setting.Service {
	t.Helper()
	s, err := setting.New(setting.Deps{Store: st, Env: env, Log: obs.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// jobs is a fake of periodic.
type jobs struct{}

func (*jobs) List(context.Context) ([]periodic.Status, error) {
	return []periodic.Status{{Job: periodic.Job{Name: "cleanup"}, ScheduledJob: db.ScheduledJob{LastError: "disk"}}}, nil
}

func (*jobs) Trigger(_ context.Context, name string) (periodic.Outcome, error) {
	switch name {
	case "cleanup":
		return periodic.Outcome{Report: []string{"deleted 3 runs"}}, nil
	case "fails":
		return periodic.Outcome{Err: fmt.Errorf("no room")}, nil
	case "away":
		return periodic.Outcome{}, periodic.ErrNotHere
	}
	return periodic.Outcome{}, fmt.Errorf("%w: %q", periodic.ErrUnknown, name)
}

// instance writes a row of an instance that lives.
func (r *rig) instance(id string) {
	r.t.Helper()
	r.Write(func(tx *store.Tx) error {
		return tx.StartInstance(r.t.Context(), db.StartInstanceParams{InstanceID: id, Name: "host-" + id, Version: "1", Url: "http://" + id, Now: tx.Now()})
	})
}

// as sends a request as somebody who acts in an organisation.
func (r *rig) as(token, org, method, path, body string) (int, string) {
	r.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set(OrgHeader, org)
	return r.send(req)
}

func TestClusterSettings(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		r.instance(readtest.Node)
		status, text := r.do("PATCH", admin+"/cluster-settings", "admin", `{"queueMaxDepth":12,"maxFanoutHosts":7,"unroutableGraceMs":null}`)
		var out client.SettingsChanged
		if err := json.Unmarshal([]byte(text), &out); status != 200 || err != nil || out.Version != 1 || len(out.Changed) != 2 ||
			len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "maxFanoutHosts") {
			t.Fatalf("%d %s", status, text)
		}
		// CLU-26: recorded with old and new values.
		if e := r.auth.last(); e.Action != "cluster_settings.update" || !strings.Contains(fmt.Sprint(e.Meta), "queueMaxDepth") {
			t.Errorf("recorded as %+v", e)
		}
		status, text = r.do("GET", admin+"/cluster-settings", "admin", "")
		var all client.Settings
		if err := json.Unmarshal([]byte(text), &all); status != 200 || err != nil || all.Version != 1 || all.UpdatedBy != "admin" {
			t.Fatalf("%d %s", status, text)
		}
		seen := map[string]client.Setting{}
		for _, x := range all.Settings {
			seen[x.Key] = x
		}
		if x := seen["queueMaxDepth"]; string(x.Value) != "12" || x.Source != "live" || x.Variable != "KICI_QUEUE_MAX_DEPTH" || *x.Min != 1 {
			t.Errorf("%+v", x)
		}
		for body, says := range map[string]string{
			`{"queueMaxDeep":1}`:      "queueMaxDepth",
			`{"queueMaxDepth":0}`:     "at least 1",
			`{}`:                      "at least one",
			`{"queueTimeoutMs":1000}`: "not a setting",
			`[]`:                      "",
			`{"globalEvalWaitTimeoutMs":1000,"queueMaxDepth":99}`: "must be greater",
		} {
			if status, text = r.do("PATCH", admin+"/cluster-settings", "admin", body); status != 400 || !strings.Contains(text, says) {
				t.Errorf("%s: %d %s", body, status, text)
			}
		}
		status, text = r.do("GET", admin+"/cluster-settings/propagation", "admin", "")
		if status != 200 || !strings.Contains(text, `"version":1`) || !strings.Contains(text, `"behind":false`) {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestOrgSettings(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.org("acme")
	for _, path := range []string{"/org-settings", "/org-settings/global-workflows"} {
		if status, text := r.do("PATCH", admin+path, "admin@acme", `{"queueTimeoutMs":5001,"allowedRepos":[{"pattern":"acme/*"}]}`); status != 200 {
			t.Errorf("%d %s", status, text)
		}
		if status, text := r.do("GET", admin+path, "admin@acme", ""); status != 200 || !strings.Contains(text, `"key":"queueTimeoutMs","value":5001`) {
			t.Errorf("%d %s", status, text)
		}
		if status, text := r.do("GET", admin+path, "admin", ""); status != 200 || strings.Contains(text, "5001") || strings.Contains(text, "acme") {
			t.Errorf("another organisation: %d %.300s", status, text)
		}
	}
}

// org makes an organisation.
func (r *rig) org(id string) {
	r.t.Helper()
	r.Write(func(tx *store.Tx) error { return tx.InsertOrg(r.t.Context(), id, 1) })
}

func TestOrganisations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		status, text := r.do("POST", admin+"/orgs", "owner", `{"id":"acme","name":"Acme Ltd"}`)
		var made client.NewOrg
		if err := json.Unmarshal([]byte(text), &made); status != 201 || err != nil || len(made.Token) != 64 || made.Org.Name != "Acme Ltd" {
			t.Fatalf("%d %s", status, text)
		}
		p, err := r.auth.Service.Authenticate(t.Context(), made.Token)
		if err != nil || p.OrgID != "acme" || p.Role != access.Owner || p.Scoped() || p.Operates() {
			t.Errorf("%+v %v", p, err)
		}
		for body, want := range map[string]int{`{"id":"acme"}`: 409, `{"id":"Acme"}`: 400, `{"id":"-a"}`: 400, `{"id":""}`: 400} {
			if status, text := r.do("POST", admin+"/orgs", "owner", body); status != want {
				t.Errorf("%s: %d %s", body, status, text)
			}
		}
		if status, text := r.do("POST", admin+"/orgs", "owner@acme", `{"id":"more"}`); status != 403 || !strings.Contains(text, "whole cluster") {
			t.Errorf("%d %s", status, text)
		}
		if status, text := r.do("GET", admin+"/orgs", "auditor", ""); status != 200 || !strings.Contains(text, "acme") || !strings.Contains(text, "default") {
			t.Errorf("%d %s", status, text)
		}
		if status, text := r.do("GET", admin+"/orgs", "owner@acme", ""); status != 200 || strings.Contains(text, "default") {
			t.Errorf("%d %s", status, text)
		}
		if status, _ := r.do("GET", admin+"/orgs/default", "owner@acme", ""); status != 404 {
			t.Error(status)
		}
	})
}

// Only an owner or admin of the operating organisation with an unscoped token acts in another one, and both are recorded.
func TestActingInAnotherOrganisation(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.org("acme")
	id := r.Run(readtest.NewRun{})
	status, text := r.as("admin", "acme", "GET", admin+"/access-log", "")
	if e := r.auth.last(); status != 200 || e.Principal.OrgID != "acme" || e.Principal.Home != readtest.Org {
		t.Errorf("%d %s recorded as %+v", status, text, e)
	}
	if status, _ := r.as("admin", "acme", "GET", admin+"/runs/"+id, ""); status != 404 {
		t.Errorf("a run of the token's own organisation: %d", status)
	}
	if status, _ := r.as("admin", readtest.Org, "GET", admin+"/runs/"+id, ""); status != 200 {
		t.Errorf("naming the own organisation: %d", status)
	}
	if status, _ := r.as("admin", "nowhere", "GET", admin+"/runs", ""); status != 404 {
		t.Errorf("an organisation that does not exist: %d", status)
	}
	// What concerns the cluster stays possible: it is the token's organisation that counts.
	if status, text := r.as("admin", "acme", "GET", admin+"/cluster-settings", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	for _, token := range []string{"auditor", "owner/" + readtest.Key, "owner@acme"} {
		if token == "owner@acme" {
			r.org("other")
		}
		org := map[bool]string{true: "other", false: "acme"}[token == "owner@acme"]
		status, text := r.as(token, org, "GET", admin+"/runs", "")
		if e := r.auth.last(); status != 403 || e.Outcome != access.DeniedEntry {
			t.Errorf("%s: %d %s, recorded as %+v", token, status, text, e)
		}
	}
}

func TestDrain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		r.instance(readtest.Node)
		r.instance("node-2")
		for _, tc := range []struct {
			method, query, body string
			status              int
			says                string
		}{
			{"GET", "", "", 200, `"draining":false`},
			{"POST", "", `{"action":"drain"}`, 200, `"draining":true`},
			{"GET", "?target=" + readtest.Node, "", 200, `"draining":true`},
			{"GET", "?target=host-node-2", "", 200, `"draining":false`},
			{"POST", "", `{"action":"resume","target":"` + readtest.Node + `"}`, 200, `"draining":false`},
			{"POST", "", `{"action":"drain","target":"nobody"}`, 404, "no such instance"},
			{"POST", "", `{"action":"stop"}`, 400, ""},
		} {
			if status, text := r.do(tc.method, admin+"/orchestrator/drain"+tc.query, "admin", tc.body); status != tc.status || !strings.Contains(text, tc.says) {
				t.Errorf("%+v: %d %s", tc, status, text)
			}
		}
		status, text := r.do("GET", "/cluster/peers", "auditor", "")
		if status != 200 || !strings.Contains(text, `"name":"host-node-2"`) {
			t.Errorf("%d %s", status, text)
		}
		status, text = r.do("GET", "/cluster/health", "auditor", "")
		if status != 200 || !strings.Contains(text, `"unhealthy"`) || !strings.Contains(text, "no instance leads") {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestClusterName(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.Write(func(tx *store.Tx) error { return tx.InsertClusterMeta(t.Context(), "cluster_name", "cluster-1a2b3c") })
	if status, text := r.do("GET", admin+"/cluster-name", "admin", ""); status != 200 || !strings.Contains(text, "cluster-1a2b3c") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.do("PUT", admin+"/cluster-name", "admin", `{"name":"Not Good"}`); status != 400 {
		t.Errorf("%d %s", status, text)
	}
	status, text := r.do("PUT", admin+"/cluster-name", "admin", `{"name":"production"}`)
	if e := r.auth.last(); status != 200 || !strings.Contains(text, `"reconnectRequired":true`) || e.Meta["old"] != "cluster-1a2b3c" || e.Meta["new"] != "production" {
		t.Errorf("%d %s, recorded as %+v", status, text, e)
	}
}

func TestScheduledJobs(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	if status, text := r.do("GET", admin+"/scheduled-jobs", "auditor", ""); status != 200 || !strings.Contains(text, `"lastError":"disk"`) {
		t.Errorf("%d %s", status, text)
	}
	for name, want := range map[string]int{"cleanup": 200, "fails": 200, "away": 404, "nonsense": 400} {
		status, text := r.do("POST", admin+"/scheduled-jobs/"+name+"/trigger", "admin", "")
		if status != want || (name == "fails") != strings.Contains(text, `"ok":false`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

func TestAccessLogFilters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		svc := r.auth.Service
		for i, action := range []string{"secret.set", "secret.delete", "run.cancel"} {
			e := access.Entry{Principal: access.Principal{TokenID: fmt.Sprint("t", i), OrgID: readtest.Org, Label: "ada"}, Action: action, Target: "x", Outcome: access.Allowed}
			if i == 2 {
				e.Outcome, e.Principal.Label, e.Meta = access.DeniedEntry, "eve", map[string]any{"k": "v"}
			}
			svc.Audit(t.Context(), e)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = svc.Run(ctx) // writes what waits
		for query, want := range map[string]int{
			"": 3, "?action=secret.*": 2, "?action=secret.set": 1, "?outcome=denied": 1, "?actor=ada": 2, "?actor=t0": 1, "?target=x": 3, "?target=y": 0,
			"?since=2000-01-01T00:00:00Z": 3, "?until=2000-01-01T00:00:00Z": 0, "?action=run": 0, "?actor=a%25": 0,
		} {
			status, text := r.do("GET", admin+"/access-log"+query, "auditor", "")
			var out client.AccessLog
			if err := json.Unmarshal([]byte(text), &out); status != 200 || err != nil || len(out.Items) != want {
				t.Errorf("%s: %d %s", query, status, text)
				continue
			}
			if query == "?outcome=denied" {
				status, text := r.do("GET", admin+"/access-log/"+out.Items[0].ID, "auditor", "")
				if status != 200 || !strings.Contains(text, `"meta":{"k":"v"}`) || !strings.Contains(text, `"label":"eve"`) {
					t.Errorf("%d %s", status, text)
				}
				if status, _ := r.do("GET", admin+"/access-log/"+out.Items[0].ID, "owner@acme", ""); status != http.StatusNotFound {
					t.Errorf("of another organisation: %d", status)
				}
			}
		}
		if status, _ := r.do("GET", admin+"/access-log?outcome=maybe", "auditor", ""); status != 400 {
			t.Error(status)
		}
	})
}

// A change whose path does not name what it concerns says it in the access log, also when it is refused (AUD-2); secrets never
// stand there (AUD-6).
func TestChangesSayWhatTheyConcern(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for _, c := range []struct {
		method, path, body string
		want               map[string]any // a value nil is any
	}{
		{"POST", "/tokens", `{"label":"ci","role":"admin"}`, map[string]any{"label": "ci", "role": access.Admin, "id": nil}},
		{"POST", "/tokens", `{"label":" ","role":"admin"}`, map[string]any{"label": " "}},
		{"POST", "/sources", `{"kind":"generic","name":"hooks","secret":"hidden-secret","options":{}}`, map[string]any{"name": "hooks", "kind": "generic"}},
		{"POST", "/sources", `{"kind":"odd","name":"hooks","secret":"hidden-secret"}`, map[string]any{"name": "hooks", "kind": "odd"}},
		{"POST", "/runs", `{"source":"nowhere","workflow":"ci","inputs":{"x":"hidden-secret"}}`, map[string]any{"source": "nowhere", "workflow": "ci"}},
		{"POST", "/events/emit", `{"name":"kici.forged","payload":{"x":"hidden-secret"}}`, map[string]any{"event": "kici.forged"}},
		{"PUT", "/secrets/DEPLOY?scope=repo/acme/shop", `{"value":"hidden-secret"}`, map[string]any{"scope": "repo/acme/shop"}},
		{"DELETE", "/secrets/DEPLOY?scope=repo/acme/shop", "", map[string]any{"scope": "repo/acme/shop"}},
		{"POST", "/queue/clear", `{}`, map[string]any{"dryRun": true}},
		{"POST", "/queue/clear", `{"confirm":true}`, map[string]any{"dryRun": false, "runs": nil}},
		{"POST", "/execution/purge-stale", `{"confirm":true}`, map[string]any{"dryRun": false, "runs": nil}},
		{"POST", "/sources/purge-stale", `{"confirm":true}`, map[string]any{"dryRun": false, "sources": nil}},
		{"POST", "/registrations/refresh", `{"source":"nowhere"}`, map[string]any{"source": "nowhere"}},
	} {
		status, text := r.do(c.method, admin+c.path, "owner", c.body)
		e := r.auth.last()
		for key, want := range c.want {
			got, said := e.Meta[key]
			if !said || want != nil && got != want {
				t.Errorf("%s %s: %s is recorded as %v in %+v; %d %s", c.method, c.path, key, got, e, status, text)
			}
		}
		if text := fmt.Sprintf("%+v", e); strings.Contains(text, "hidden-secret") {
			t.Errorf("%s %s: %s", c.method, c.path, text)
		}
	}
}
