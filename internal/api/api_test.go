package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/secret"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// auth is a fake of access: a token is role[/routing key][@organisation]; and a list of what was recorded.
type auth struct {
	*access.Service // for the token routes
	down            bool

	mu      sync.Mutex
	entries []access.Entry
}

func (a *auth) Authenticate(_ context.Context, bearer string) (access.Principal, error) {
	if a.down {
		return access.Principal{}, fmt.Errorf("%w: no route to database", access.ErrUnavailable)
	}
	token, org, other := strings.Cut(bearer, "@")
	if !other {
		org = readtest.Org
	}
	role, key, _ := strings.Cut(token, "/")
	if !access.Role(role).Valid() {
		return access.Principal{}, access.ErrUnauthenticated
	}
	return access.Principal{TokenID: bearer, OrgID: org, Label: role, Role: access.Role(role), RoutingKey: key, Kind: access.KindAPIKey}, nil
}

func (a *auth) Audit(_ context.Context, e access.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, e)
}

func (a *auth) last() access.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.entries) == 0 {
		return access.Entry{}
	}
	return a.entries[len(a.entries)-1]
}

// intake is a fake of ingress.
type intake struct {
	started []ingress.StartRequest
	forge   ingress.ForgeSource
	did     []string
	hookErr error
	err     error
	runID   string

	replayed []string
}

func (i *intake) Start(_ context.Context, r ingress.StartRequest) (string, error) {
	i.started = append(i.started, r)
	return i.runID, i.err
}

func (i *intake) Trigger(context.Context, ingress.TriggerRequest) (string, error) {
	return "delivery-1", i.err
}

func (i *intake) Workflows(_ context.Context, _, source, ref string) (ingress.RefWorkflows, error) {
	return ingress.RefWorkflows{Source: source, Ref: ref, SHA: "abc", File: &lock.File{Workflows: []lock.Workflow{{
		Name: "deploy", SourceFile: ".kici/workflows/deploy.yaml", Jobs: []lock.Job{readtest.Job("ship")},
		On: []lock.Trigger{{Type: "dispatch", Manual: true, Inputs: map[string]lock.Input{"env": {Type: "enum", Values: []string{"dev", "prod"}, Required: true}}}},
	}, {Name: "ci", Jobs: []lock.Job{readtest.Job("a"), readtest.Job("b", "a")}}}}}, i.err
}

func (i *intake) Replay(_ context.Context, _, id string) error {
	i.replayed = append(i.replayed, id)
	return i.err
}

func (i *intake) AddLocal(_ context.Context, l ingress.LocalSource) (ingress.Added, error) {
	return ingress.Added{Source: db.Source{ID: "source-1", Name: l.Name}, Secret: "made"}, i.err
}

func (i *intake) AddGeneric(_ context.Context, g ingress.GenericSource) (ingress.Added, error) {
	return ingress.Added{Source: db.Source{ID: "source-1", Name: g.Name}}, i.err
}

func (i *intake) AddForge(_ context.Context, f ingress.ForgeSource) (ingress.Added, error) {
	i.forge = f
	return ingress.Added{Source: db.Source{ID: "source-1", Name: f.Name}, Secret: "made", Warnings: []string{"careful"}}, i.err
}

func (i *intake) Get(_ context.Context, _, ref string) (db.Source, error) {
	return db.Source{ID: ref}, i.err
}

func (i *intake) Update(_ context.Context, _ db.Source, repo string, options json.RawMessage) error {
	i.did = append(i.did, "update "+repo+" "+string(options))
	return i.err
}

func (i *intake) RotateSecret(context.Context, string, string) (string, error) {
	return "rotated", i.err
}
func (i *intake) DropOldSecret(context.Context, string, string) error { return i.err }

func (i *intake) SetToken(_ context.Context, _, _, token string) error {
	i.did = append(i.did, "token "+token)
	return i.err
}

func (i *intake) SetSSHKey(_ context.Context, _, _, key string) error {
	i.did = append(i.did, "key "+key)
	return i.err
}

func (i *intake) InstallHook(context.Context, string, string) (string, error) {
	return "http://ci/webhook", i.hookErr
}

func (i *intake) Redeliver(_ context.Context, r ingress.RedeliverRequest) (ingress.Redelivered, error) {
	i.did = append(i.did, fmt.Sprint("redeliver ", r.DryRun))
	return ingress.Redelivered{Matched: 3, Redelivered: 1, Failed: []ingress.FailedRedelivery{{GUID: "g", Error: "no"}}}, i.err
}

func (i *intake) Enable(context.Context, string, string, bool) error { return i.err }
func (i *intake) Delete(context.Context, string, string) error       { return i.err }
func (i *intake) PurgeStale(_ context.Context, r ingress.PurgeRequest) ([]db.Source, error) {
	return []db.Source{{ID: "s1", Name: r.OrgID, UpdatedAt: r.Idle.Milliseconds()}}, i.err
}

func (i *intake) Check(context.Context, string, string) (ingress.Checked, error) {
	return ingress.Checked{DefaultBranch: "main", Commit: source.Commit{SHA: "abc"}}, i.err
}

func (i *intake) RevealSecret(context.Context, string, string) (string, error) {
	return "s3cret", i.err
}

// logs is a fake log store: lines by job and step.
type logs struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (l *logs) add(job string, step int, lines ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprintf("%s/%d", job, step)
	l.lines[key] = append(l.lines[key], lines...)
}

func (l *logs) ReadLines(_ context.Context, ref read.LogRef, step int, cursor string, limit int) ([]client.LogLine, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := 0
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "at-%d", &from); err != nil {
			return nil, "", fmt.Errorf("%w: %w", read.ErrInvalid, err)
		}
	}
	all := l.lines[fmt.Sprintf("%s/%d", ref.JobID, step)]
	out := []client.LogLine{}
	for i := from; i < len(all) && len(out) < limit; i++ {
		out = append(out, client.LogLine{N: int64(i + 1), Level: "stdout", Msg: all[i]})
	}
	return out, fmt.Sprintf("at-%d", from+len(out)), nil
}

func (l *logs) SeekLine(_ context.Context, ref read.LogRef, step int, line int64) (string, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(int64(len(l.lines[fmt.Sprintf("%s/%d", ref.JobID, step)])), max(line-1, 0))
	return fmt.Sprintf("at-%d", n), n, nil
}

func (l *logs) SearchLines(ctx context.Context, ref read.LogRef, step int, q read.LogQuery) (read.LogFound, error) {
	lines, next, err := l.ReadLines(ctx, ref, step, q.Cursor, 1<<20)
	out := read.LogFound{Lines: []client.LogLine{}, Next: next, Done: true}
	for _, x := range lines {
		if strings.Contains(x.Msg, q.Text) && len(out.Lines) < q.Limit {
			out.Lines = append(out.Lines, x)
		}
	}
	return out, err
}

// secretBox is a fake of secret.
type secretBox struct{ values map[string]string }

func (s *secretBox) Set(_ context.Context, _, scope, key, value string) error {
	s.values[scope+"|"+key] = value
	return nil
}

func (s *secretBox) List(context.Context, string) ([]secret.Info, error) {
	out := []secret.Info{}
	for k := range s.values {
		scope, key, _ := strings.Cut(k, "|")
		out = append(out, secret.Info{Scope: scope, Key: key, UpdatedAt: 1, Readable: true})
	}
	return out, nil
}

func (s *secretBox) Delete(_ context.Context, _, scope, key string) error {
	if _, ok := s.values[scope+"|"+key]; !ok {
		return secret.ErrNotFound
	}
	delete(s.values, scope+"|"+key)
	return nil
}

// rig is an API over a real store with fakes around it.
type rig struct {
	*readtest.World
	t      *testing.T
	api    *API
	auth   *auth
	intake *intake
	logs   *logs
	boxed  *secretBox
	server *httptest.Server

	registry *registry
}

func newRig(t *testing.T, st *store.Store) *rig {
	t.Helper()
	w := readtest.New(t, st)
	r := &rig{
		World: w, t: t, intake: &intake{}, logs: &logs{lines: map[string][]string{}}, boxed: &secretBox{map[string]string{}},
		auth: &auth{Service: access.New(st, w.Env, obs.Discard())},
	}
	base := func() string { return "http://ci" }
	r.registry = newRegistry(st, w.Env)
	r.api = New(Deps{
		Reads: read.New(st, read.Config{Now: time.Now, BaseURL: base, Logs: r.logs}), Auth: r.auth, Tokens: r.auth, AgentTokens: r.auth,
		Runs: w.Runs, Start: r.intake, Sources: r.intake, Origins: r.intake, Secrets: r.boxed, Events: newEvents(st, w.Env), Registrations: r.registry, Registrar: r.registry, Hub: st, BaseURL: base,
		Settings: newSettings(t, st, w.Env), Orgs: r.auth.Service, Cluster: cluster.NewDirectory(st, readtest.Node), Jobs: &jobs{}, Node: &nodes{},
		Version: "1.2.3", Env: w.Env, Log: obs.Discard(),
	})
	r.server = httptest.NewServer(r.api)
	t.Cleanup(r.server.Close)
	return r
}

// do sends a request and returns status and body.
func (r *rig) do(method, path, token, body string) (int, string) {
	r.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		req.Body = http.NoBody
		req.ContentLength = 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return r.send(req)
}

func (r *rig) send(req *http.Request) (int, string) {
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func errorOf(t *testing.T, body string) client.Error {
	t.Helper()
	var e client.Error
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Message == "" {
		t.Fatalf("not an error body: %q (%v)", body, err)
	}
	return e
}

// fill puts something into every path parameter.
func fill(path string) string {
	var parts []string
	for p := range strings.SplitSeq(path, "/") {
		switch {
		case p == "{step}":
			p = "0"
		case strings.HasPrefix(p, "{"):
			p = "ffffffff-0000"
		}
		parts = append(parts, p)
	}
	return strings.Join(parts, "/")
}

// XC-149: without event_log.read_payload what was sent is withheld, and the rest is shown.
func TestXC149PayloadIsWithheld(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.Write(func(tx *store.Tx) error {
		_, err := tx.InsertDelivery(t.Context(), db.InsertDeliveryParams{
			ID: "row-1", OrgID: readtest.Org, DeliveryID: "d-1", RoutingKey: readtest.Key, Kind: "local", Event: "push", Status: "processed",
			Headers: `{"X-Claim":"claim-code"}`, Decisions: "[]", Body: []byte(`{"body":"claim-code"}`), ReceivedAt: tx.Now(),
		})
		return err
	})
	for _, path := range []string{"/deliveries/d-1", "/event-log/d-1"} {
		if status, text := r.do("GET", admin+path+"/payload", "auditor", ""); status != 403 || strings.Contains(text, "claim-code") || !strings.Contains(text, "event_log.read_payload") {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, text := r.do("GET", admin+path, "auditor", ""); status != 200 || strings.Contains(text, "claim-code") || !strings.Contains(text, `"event":"push"`) {
			t.Errorf("%s: the rest: %d %s", path, status, text)
		}
		if status, text := r.do("GET", admin+path+"/payload", "admin", ""); status != 200 || !strings.Contains(text, "claim-code") {
			t.Errorf("%s: as admin: %d %s", path, status, text)
		}
	}
	r.Write(func(tx *store.Tx) error { return tx.DropDeliveryBody(t.Context(), "row-1") })
	if status, text := r.do("GET", admin+"/deliveries/d-1/payload", "admin", ""); status != 200 || !strings.Contains(text, `"payloadOmitted":"size_exceeded"`) || strings.Contains(text, `"payload"`) {
		t.Errorf("a body that was not kept (ING-22): %d %s", status, text)
	}
}

// ING-18: an operator has a failed delivery processed again, by our id or the sender's.
func TestReplayDelivery(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.Write(func(tx *store.Tx) error {
		_, err := tx.InsertDelivery(t.Context(), db.InsertDeliveryParams{
			ID: "row-1", OrgID: readtest.Org, DeliveryID: "d-1", RoutingKey: readtest.Key, Kind: "local", Event: "push", Status: "failed",
			Headers: "{}", Decisions: "[]", Body: []byte("{}"), ReceivedAt: tx.Now(),
		})
		return err
	})
	status, text := r.do("POST", admin+"/deliveries/d-1/replay", "admin", "")
	if status != 200 || !strings.Contains(text, `"id":"row-1"`) || !slices.Equal(r.intake.replayed, []string{"row-1"}) {
		t.Errorf("%d %s, replayed %v", status, text, r.intake.replayed)
	}
	if e := r.auth.last(); e.Action != "event_log.replay" || e.Outcome != access.Allowed || e.Target != "d-1" {
		t.Errorf("recorded as %+v", e)
	}
	if status, text := r.do("POST", admin+"/deliveries/d-1/replay", "admin/"+readtest.Other, ""); status != 403 {
		t.Errorf("with another source's token: %d %s", status, text)
	}
	r.intake.err = ingress.ErrNotFound
	if status, text := r.do("POST", admin+"/event-log/row-1/replay", "admin", ""); status != 409 || !strings.Contains(text, "only a failed delivery") {
		t.Errorf("one that has not failed: %d %s", status, text)
	}
}

func TestWorkflowsOfASource(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.Write(func(tx *store.Tx) error {
		_, err := tx.InsertSource(t.Context(), db.InsertSourceParams{
			ID: "source-1", OrgID: readtest.Org, Kind: "local", Name: "shop", RoutingKey: readtest.Key, Repo: readtest.Repo, Config: "{}", CreatedAt: tx.Now(),
		})
		return err
	})
	status, text := r.do("GET", admin+"/sources/shop/workflows?ref=main", "auditor", "")
	var got client.Workflows
	if err := json.Unmarshal([]byte(text), &got); status != 200 || err != nil || got.Source != "shop" || got.Ref != "main" || len(got.Workflows) != 2 {
		t.Fatalf("%d %s", status, text)
	}
	deploy, ci := got.Workflows[0], got.Workflows[1]
	if !deploy.Startable || ci.Startable || deploy.Inputs[0].Name != "env" || !deploy.Inputs[0].Required || ci.Jobs[1].Needs[0] != "a" || ci.Jobs[0].RunsOn[0] != "linux" {
		t.Errorf("%+v", got)
	}
	r.intake.err = &ingress.RequestError{Message: "no branch x"}
	if status, text := r.do("GET", admin+"/sources/shop/workflows?ref=x", "auditor", ""); status != 400 || !strings.Contains(text, "no branch x") {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := r.do("GET", admin+"/sources/nope/workflows", "auditor", ""); status != 404 {
		t.Error(status)
	}
}

// Token lookup that failed is 503, never 401 and never a pass (XC-147).
func TestXC147AuthenticationUnavailable(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.auth.down = true
	status, text := r.do("GET", admin+"/runs", "owner", "")
	if status != 503 || errorOf(t, text).Message != "Authentication unavailable" {
		t.Errorf("%d %s", status, text)
	}
}

// Objects of another key answer 403, lists leave them out (XC-146).
func TestXC146ScopedToken(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	other := "owner/" + readtest.Other
	for _, path := range []string{"/runs/" + id, "/runs/" + id + "/jobs", "/jobs/" + r.JobID(id, "build"), "/jobs/" + r.JobID(id, "build") + "/why", "/runs/" + id + "/events"} {
		if status, text := r.do("GET", admin+path, other, ""); status != 403 {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	for _, verb := range []string{"cancel", "rerun"} {
		if status, text := r.do("POST", admin+"/runs/"+id+"/"+verb, other, ""); status != 403 {
			t.Errorf("%s: %d %s", verb, status, text)
		}
	}
	if status, text := r.do("GET", admin+"/runs", other, ""); status != 200 || !strings.Contains(text, `"runs":[]`) {
		t.Errorf("list: %d %s", status, text)
	}
}

func TestErrors(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	for _, tc := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"GET", "/runs/nowhere", "", 404, "repository#number"},
		{"GET", "/runs?status=nope", "", 400, "cancelling"},
		{"GET", "/runs?cursor=junk", "", 400, "cursor"},
		{"GET", "/runs?limit=junk", "", 200, ""},
		{"GET", "/runs?source=nope", "", 404, "nope"},
		{"GET", "/runs?actor=ada&event=push", "", 200, ""},
		{"GET", "/runs?limit=-5", "", 200, ""},
		{"GET", "/runs?limit=100000", "", 200, ""},
		{"GET", "/runs?since=yesterday", "", 400, "since"},
		{"POST", "/runs", `{"workflow":"x"}`, 400, "source"},
		{"POST", "/runs", `{"source":"a","workflow":"x","colour":"red"}`, 400, "colour"},
		{"POST", "/runs", `{"source":"a","workflow":`, 400, ""},
		{"POST", "/runs", `{"source":"nowhere","workflow":"x"}`, 404, "nowhere"},
		{"POST", "/runs/" + id + "/cancel", `{"farce":true}`, 400, "farce"},
		{"POST", "/tokens", `{"label":"x","role":"emperor"}`, 400, "role"},
		{"PUT", "/secrets/K", `{"value":""}`, 400, "value"},
		{"PUT", "/secrets/K", `{"valu":"hunter2hunter2"}`, 400, "valu"},
		{"DELETE", "/secrets/NONE", "", 404, ""},
		{"GET", "/runs/" + id + "/jobs/build/steps/-1/logs", "", 400, "step"},
		{"GET", "/runs/" + id + "/jobs/nope/steps/0/logs", "", 404, "nope"},
		{"GET", "/nothing/here", "", 404, "/docs"},
	} {
		status, text := r.do(tc.method, admin+tc.path, "owner", tc.body)
		if status != tc.status || !strings.Contains(text, tc.contains) {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, status, text)
		}
		if status >= 400 {
			errorOf(t, text)
			if strings.Contains(text, "hunter2") {
				t.Errorf("the error repeats a secret: %s", text)
			}
		}
	}
}

func TestBodyLimit(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	body := `{"value":"` + strings.Repeat("x", maxBody) + `"}`
	if status, text := r.do("PUT", admin+"/secrets/K", "owner", body); status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %.200s", status, text)
	}
}

func TestInternalErrorsStayInside(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.intake.err = errors.New("pq: password of user kici is hunter2")
	if status, text := r.do("POST", admin+"/sources", "owner", `{"kind":"local","name":"x","path":"/x"}`); status != 500 || strings.Contains(text, "hunter2") {
		t.Errorf("%d %s", status, text)
	}
	if e := r.auth.last(); e.Outcome != access.Failed || strings.Contains(e.Error, "hunter2") {
		t.Errorf("recorded as %+v", e)
	}
}

func TestRequestIDAndHeaders(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	req := httptest.NewRequest(http.MethodGet, admin+"/runs", nil)
	req.Header.Set("Authorization", "bearer owner") // the scheme is case-insensitive
	req.Header.Set("X-Request-ID", "abc-123")
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, req)
	if w.Code != 200 || w.Header().Get("X-Request-ID") != "abc-123" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	r.api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/version", nil))
	if w.Code != 200 || w.Header().Get("X-Request-ID") == "" || !strings.Contains(w.Body.String(), "1.2.3") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	w = httptest.NewRecorder()
	r.api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, admin+"/runs", nil))
	if w.Header().Get("WWW-Authenticate") == "" || errorOf(t, w.Body.String()).Message != "Missing authorization" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestCancelTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		id := r.Run(readtest.NewRun{})
		path := admin + "/runs/" + readtest.Repo + "%231/cancel" // repo#1 in a path, slash and all
		path = strings.Replace(path, readtest.Repo, strings.ReplaceAll(readtest.Repo, "/", "%2F"), 1)
		first := ""
		for range 2 {
			req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(`{"force":true,"reason":"enough"}`)))
			req.Header.Set("Authorization", "Bearer admin")
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", "k1")
			status, text := r.send(req)
			if status != 200 || first != "" && text != first {
				t.Fatalf("%d %s", status, text)
			}
			first = text
		}
		var res client.CancelResult
		if err := json.Unmarshal([]byte(first), &res); err != nil || res.Status != "cancelled" || res.CancelledJobs != 1 {
			t.Errorf("%s (%v)", first, err)
		}
		status, text := r.do("POST", admin+"/runs/"+id+"/cancel", "admin", "")
		if status != 409 || !strings.Contains(text, "status: cancelled") {
			t.Errorf("without the key: %d %s", status, text)
		}
		if e := r.auth.last(); e.Action != "run.cancel" || e.Target != id || e.Outcome != access.Failed {
			t.Errorf("recorded as %+v", e)
		}
	})
}

func TestRerunOnce(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	id := r.Run(readtest.NewRun{})
	if status, text := r.do("POST", admin+"/runs/"+id+"/rerun", "owner", ""); status != 409 {
		t.Errorf("rerun of a running run: %d %s", status, text)
	}
	if _, err := r.Runs.Cancel(context.Background(), run.CancelRequest{OrgID: readtest.Org, RunID: id, By: "x"}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 2 {
		status, text := r.do("POST", admin+"/runs/"+id+"/rerun", "owner", `{"requestId":"r1"}`)
		var out struct{ RunID, NewRunID string }
		if err := json.Unmarshal([]byte(text), &out); status != 201 || err != nil || out.RunID == "" || out.NewRunID != out.RunID {
			t.Fatalf("%d %s", status, text)
		}
		ids = append(ids, out.RunID)
	}
	if ids[0] != ids[1] || ids[0] == id {
		t.Errorf("runs %v", ids)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	if status, text := r.do("PUT", admin+"/secrets/TOKEN?scope=repo/acme/shop", "admin", `{"value":"hunter2hunter2"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if r.boxed.values["repo/acme/shop|TOKEN"] != "hunter2hunter2" {
		t.Errorf("stored %v", r.boxed.values)
	}
	status, text := r.do("GET", admin+"/secrets", "admin", "")
	if status != 200 || !strings.Contains(text, `"TOKEN"`) || strings.Contains(text, "hunter2") {
		t.Errorf("%d %s", status, text)
	}
}

func TestDocuments(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	status, text := r.do("GET", "/openapi.json", "", "")
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); status != 200 || err != nil {
		t.Fatalf("%d %v", status, err)
	}
	for _, rt := range r.api.Routes() {
		op, ok := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if !ok {
			t.Errorf("%s %s is not documented", rt.Method, rt.Path)
		}
		if _, bad := op.Responses["422"]; bad {
			t.Errorf("%s %s documents 422", rt.Method, rt.Path)
		}
	}
	status, text = r.do("GET", "/docs", "", "")
	if status != 200 || strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "<script") {
		t.Errorf("the page loads something from outside: %d", status)
	}
	status, text = r.do("GET", "/api/v1/capabilities", "", "")
	if status != 200 || !strings.Contains(text, `"orchestratorVersion":"1.2.3"`) {
		t.Errorf("%d %s", status, text)
	}
}

func TestAgentTokens(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	status, text := r.do("POST", "/api/v1/agent-tokens", "owner", `{"labels":["linux","GPU"]}`)
	var made struct{ ID, Token, TokenPrefix string }
	if err := json.Unmarshal([]byte(text), &made); status != 201 || err != nil || !strings.HasPrefix(made.Token, "kat_") {
		t.Fatalf("%d %s", status, text)
	}
	status, text = r.do("GET", "/api/v1/agent-tokens?type=static", "owner", "")
	if status != 200 || !strings.Contains(text, made.ID) || strings.Contains(text, made.Token) {
		t.Errorf("%d %s", status, text)
	}
	if status, text = r.do("DELETE", "/api/v1/agent-tokens/"+made.ID, "owner", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, text = r.do("DELETE", "/api/v1/agent-tokens/nope", "owner", ""); status != 404 {
		t.Errorf("%d %s", status, text)
	}
}

// The last owner cannot be revoked (XC-148), and what was done is recorded as done.
func TestXC148LastOwner(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	by := access.Principal{TokenID: "x", OrgID: readtest.Org, Role: access.Owner}
	_, row, err := r.auth.CreateToken(context.Background(), by, access.NewToken{Label: "first", Role: access.Owner})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := r.do("DELETE", admin+"/tokens/"+row.ID, "owner", ""); status != 409 || !strings.Contains(text, "last usable owner") {
		t.Errorf("%d %s", status, text)
	}
	if e := r.auth.last(); e.Action != "token.revoke" || e.Target != row.ID || e.Outcome != access.Failed {
		t.Errorf("recorded as %+v", e)
	}
	status, text := r.do("POST", admin+"/tokens", "owner", `{"label":"second","role":"owner"}`)
	if status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	if e := r.auth.last(); e.Action != "token.create" || e.Outcome != access.Allowed || strings.Contains(fmt.Sprint(e), text) {
		t.Errorf("recorded as %+v", e)
	}
	if status, text := r.do("DELETE", admin+"/tokens/"+row.ID, "owner", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// Diagnostic reads are recorded once per actor and minute, refusals always (AUD-2).
func TestRareRecords(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for range 5 {
		r.do("GET", admin+"/scalers", "auditor", "")
	}
	if n := len(r.auth.entries); n != 1 {
		t.Errorf("%d entries of five reads", n)
	}
	for range 3 {
		r.do("GET", admin+"/secrets", "auditor", "")
	}
	if n := len(r.auth.entries); n != 4 {
		t.Errorf("%d entries with three refusals", n)
	}
}

// bodyText is a response body read to its end.
func bodyText(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
