package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
)

// Whose tokens a route takes.
type reach string

const (
	anyToken reach = "any"      // also a token that is limited to a source
	unscoped reach = "unscoped" // "U" in the table
	operator reach = "cluster"  // only one of the operating organisation
)

// matrix says what each route needs, as the table of routes does. A route that is not here, or that asks for something else, fails
// TestXC145EveryRouteEveryRole: write the right down here when you add a route, with a look at that table.
var matrix = map[string]struct {
	permission access.Permission
	reach      reach
}{
	"GET /runs":               {"run.read", anyToken},
	"POST /runs":              {"run.trigger", anyToken},
	"GET /runs/{run}":         {"run.read", anyToken},
	"GET /runs/{run}/jobs":    {"run.read", anyToken},
	"POST /runs/{run}/cancel": {"run.cancel", anyToken},
	"POST /runs/{run}/rerun":  {"run.trigger", anyToken},
	"GET /runs/{run}/jobs/{job}/steps/{step}/logs":        {"run.read", anyToken},
	"GET /runs/{run}/jobs/{job}/steps/{step}/logs/search": {"run.read", anyToken},
	"GET /runs/{run}/jobs/{job}/steps/{step}/logs/raw":    {"run.read", anyToken},
	"GET /runs/{run}/events":                              {"run.read", anyToken},
	"GET /runs/{run}/jobs/{job}/steps/{step}/logs/stream": {"run.read", anyToken},
	"GET /jobs/{job}":                            {"run.read", anyToken},
	"GET /jobs/{job}/why":                        {"run.read", anyToken},
	"GET /jobs/{job}/logs/stream":                {"run.read", anyToken},
	"GET /queue":                                 {"run.read", anyToken},
	"POST /queue/clear":                          {"maintenance", unscoped},
	"POST /execution/purge-stale":                {"maintenance", unscoped},
	"GET /check-runs":                            {"run.read", anyToken},
	"GET /agents":                                {"scaler.read", anyToken},
	"GET /agents/{agent}":                        {"scaler.read", anyToken},
	"GET /scalers":                               {"scaler.read", anyToken},
	"POST /scaler/reload":                        {"scaler.manage", operator},
	"GET /sources":                               {"context.read", anyToken},
	"GET /sources/{source}":                      {"context.read", anyToken},
	"POST /sources":                              {"source.manage", unscoped},
	"POST /sources/purge-stale":                  {"maintenance", unscoped},
	"DELETE /sources/{source}":                   {"source.manage", anyToken},
	"POST /sources/{source}/enable":              {"source.manage", anyToken},
	"POST /sources/{source}/disable":             {"source.manage", anyToken},
	"POST /sources/{source}/check":               {"source.manage", anyToken},
	"GET /sources/{source}/webhook-secret":       {"secret.reveal", anyToken},
	"GET /sources/{source}/workflows":            {"context.read", anyToken},
	"PUT /sources/{source}":                      {"source.manage", anyToken},
	"PUT /sources/{source}/token":                {"source.manage", anyToken},
	"PUT /sources/{source}/ssh-key":              {"source.manage", anyToken},
	"POST /sources/{source}/rotate-secret":       {"source.manage", anyToken},
	"DELETE /sources/{source}/old-secret":        {"source.manage", anyToken},
	"POST /sources/{source}/install-hook":        {"source.manage", anyToken},
	"POST /sources/{source}/redeliver":           {"source.manage", anyToken},
	"POST /sources/{source}/trigger":             {"run.trigger", anyToken},
	"GET /deliveries":                            {"event_log.read", anyToken},
	"GET /deliveries/{delivery}":                 {"event_log.read", anyToken},
	"GET /deliveries/{delivery}/payload":         {"event_log.read_payload", anyToken},
	"POST /deliveries/{delivery}/replay":         {"run.trigger", anyToken},
	"GET /event-log":                             {"event_log.read", anyToken},
	"GET /event-log/{delivery}":                  {"event_log.read", anyToken},
	"GET /event-log/{delivery}/payload":          {"event_log.read_payload", anyToken},
	"POST /event-log/{delivery}/replay":          {"run.trigger", anyToken},
	"GET /secrets":                               {"secret.read", unscoped},
	"PUT /secrets/{key}":                         {"secret.write", unscoped},
	"DELETE /secrets/{key}":                      {"secret.delete", unscoped},
	"GET /whoami":                                {"run.read", anyToken},
	"POST /api/v1/login-links":                   {"run.trigger", anyToken},
	"GET /access-log":                            {"access_log.read", unscoped},
	"GET /access-log/{entry}":                    {"access_log.read", unscoped},
	"POST /tokens":                               {"token.manage", unscoped},
	"GET /tokens":                                {"token.manage", unscoped},
	"DELETE /tokens/{token}":                     {"token.manage", unscoped},
	"POST /api/v1/agent-tokens":                  {"token.manage", unscoped},
	"GET /api/v1/agent-tokens":                   {"token.manage", unscoped},
	"DELETE /api/v1/agent-tokens/{token}":        {"token.manage", unscoped},
	"GET /diagnose":                              {"run.read", operator},
	"GET /cluster-settings":                      {"secret.read", operator},
	"PATCH /cluster-settings":                    {"secret.write", operator},
	"GET /cluster-settings/propagation":          {"secret.read", operator},
	"GET /org-settings":                          {"secret.read", unscoped},
	"PATCH /org-settings":                        {"secret.write", unscoped},
	"GET /org-settings/global-workflows":         {"secret.read", unscoped},
	"PATCH /org-settings/global-workflows":       {"secret.write", unscoped},
	"POST /orgs":                                 {"token.manage", operator},
	"GET /orgs":                                  {"run.read", anyToken},
	"GET /orgs/{org}":                            {"run.read", anyToken},
	"GET /cluster/health":                        {"run.read", anyToken},
	"GET /cluster/peers":                         {"run.read", anyToken},
	"GET /cluster-name":                          {"secret.read", operator},
	"PUT /cluster-name":                          {"secret.write", operator},
	"GET /orchestrator/drain":                    {"orchestrator.drain", operator},
	"POST /orchestrator/drain":                   {"orchestrator.drain", operator},
	"GET /scheduled-jobs":                        {"run.read", operator},
	"POST /scheduled-jobs/{name}/trigger":        {"scheduled_job.trigger", operator},
	"GET /registrations":                         {"context.read", anyToken},
	"GET /registrations/{registration}":          {"context.read", anyToken},
	"POST /registrations/register-manual":        {"context.update", anyToken},
	"POST /registrations/refresh":                {"context.update", anyToken},
	"POST /registrations/{registration}/enable":  {"context.update", anyToken},
	"POST /registrations/{registration}/disable": {"context.update", anyToken},
	"DELETE /registrations/{registration}":       {"context.delete", anyToken},
	"POST /registrations/{registration}/run":     {"run.trigger", anyToken},
	"GET /events":                                {"event_dlq.read", anyToken},
	"GET /events/{event}":                        {"event_dlq.read", anyToken},
	"POST /events/emit":                          {"context.create", anyToken},
	"GET /event-dlq":                             {"event_dlq.read", anyToken},
	"GET /event-dlq/count":                       {"event_dlq.read", anyToken},
	"POST /event-dlq/{event}/retry":              {"event_dlq.manage", anyToken},
	"DELETE /event-dlq/{event}":                  {"event_dlq.manage", anyToken},
	"GET /trust":                                 {"context.read", anyToken},
	"POST /trust":                                {"context.create", anyToken},
	"DELETE /trust/{trust}":                      {"context.delete", anyToken},
	"GET /runs/{run}/timeline":                   {"run.read", anyToken},
	"GET /schedules":                             {"context.read", anyToken},
}

// TestXC145EveryRouteEveryRole asks every route as every role, with a token that is limited to a source, with one of another
// organisation, with a wrong one and with none (ADM-1, ADM-4, ADM-5).
func TestXC145EveryRouteEveryRole(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.org("acme")
	seen := map[string]bool{}
	for _, rt := range r.api.Routes() {
		name := rt.Method + " " + strings.TrimPrefix(rt.Path, admin)
		seen[name] = true
		want, known := matrix[name]
		got := anyToken
		switch {
		case rt.Cluster:
			got = operator
		case rt.Unscoped:
			got = unscoped
		}
		if !known || want.permission != rt.Permission || want.reach != got {
			t.Errorf("%s needs %q (%s); the matrix says %q (%s)", name, rt.Permission, got, want.permission, want.reach)
		}
		if rt.Action == "" {
			t.Errorf("%s has no action", name)
		}
		if rt.Method != http.MethodGet && access.Auditor.Can(rt.Permission) {
			t.Errorf("%s changes something and admits auditors", name)
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) { r.everybody(t, rt) })
	}
	for name := range matrix {
		if !seen[name] {
			t.Errorf("%s is in the matrix and is no route", name)
		}
	}
	if len(seen) < 60 {
		t.Fatalf("only %d routes are mounted", len(seen))
	}
}

func (r *rig) everybody(t *testing.T, rt Route) {
	body := ""
	if rt.Method != http.MethodGet && rt.Method != http.MethodDelete {
		body = `{"not json`
	}
	for _, token := range []string{"", "stranger"} {
		status, text := r.do(rt.Method, fill(rt.Path), token, body)
		if status != http.StatusUnauthorized {
			t.Errorf("with token %q: %d %s", token, status, text)
		}
		errorOf(t, text)
	}
	for _, role := range []access.Role{access.Owner, access.Admin, access.Auditor} {
		for _, who := range []struct {
			token string
			may   bool
		}{
			{string(role), role.Can(rt.Permission)},
			{string(role) + "/" + readtest.Key, role.Can(rt.Permission) && !rt.Unscoped},
			{string(role) + "@acme", role.Can(rt.Permission) && !rt.Cluster},
		} {
			status, text := r.do(rt.Method, fill(rt.Path), who.token, body)
			// ADM-5: an object of another source answers 403 as well, but names no object of this test has.
			if denied := status == http.StatusForbidden; denied == who.may {
				t.Errorf("as %s: %d %s", who.token, status, text)
			}
			if status == http.StatusUnprocessableEntity || status >= 500 && (status != 503 || rt.Path != admin+"/cluster-name") { // it has no name in this test
				t.Errorf("as %s: %d %s", who.token, status, text)
			}
			if status != http.StatusForbidden {
				continue
			}
			e := errorOf(t, text)
			if !role.Can(rt.Permission) && (!strings.Contains(e.Message, string(role)) || !strings.Contains(e.Message, string(rt.Permission))) {
				t.Errorf("the refusal does not name role and permission: %s", text)
			}
			if e := r.auth.last(); e.Outcome != access.DeniedEntry || e.Action != string(rt.Action) {
				t.Errorf("the refusal is recorded as %+v", e)
			}
		}
	}
}

// A route without a permission that roles have, or without an action, does not start.
func TestRouteWithoutARight(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	for _, bad := range []right{{}, {"run.read", ""}, {"", "run.read"}, {"run.reed", "run.read"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v starts", bad)
				}
			}()
			handle(r.api, get("/x", "x"), bad, func(context.Context, *caller, *struct{}) (struct{}, error) { return struct{}{}, nil })
		}()
	}
}

// Nothing of one organisation is seen with the token of another, whatever route is asked.
func TestOrganisationsAreIsolated(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		r.org("acme")
		ids := r.full()
		marks := []string{"acme/shop", "ada", "generic:default", "hidden-tail", "claim-code"}
		for param, id := range ids {
			if param != "org" { // a word that is not only its name
				marks = append(marks, id)
			}
		}
		for _, rt := range r.api.Routes() {
			if rt.Method != http.MethodGet || rt.Cluster {
				continue
			}
			path := rt.Path
			for param, id := range ids {
				path = strings.ReplaceAll(path, "{"+param+"}", id)
			}
			path = strings.ReplaceAll(path, "{step}", "0")
			if strings.Contains(path, "{") {
				path = fill(path)
			}
			status, text := r.do("GET", path, "owner@acme", "")
			if strings.Contains(rt.Path, "{") && status < 400 {
				t.Errorf("GET %s: %d %s", path, status, text)
			}
			for _, mark := range marks {
				// A refusal may repeat what was asked for.
				if strings.Contains(text, mark) && !strings.Contains(path, mark) {
					t.Errorf("GET %s shows %q: %d %.300s", path, mark, status, text)
				}
			}
		}
	})
}

// full fills the default organisation with one thing of every kind and returns their ids by the names of path parameters.
func (r *rig) full() map[string]string {
	r.t.Helper()
	run := r.Run(readtest.NewRun{})
	job := r.JobID(run, "build")
	r.instance(readtest.Node)
	r.Scaler(2)
	r.Agent("scaler-bare-metal-0001", job)
	r.Online("scaler-bare-metal-0001")
	r.Assign(run, job, "scaler-bare-metal-0001")
	r.Start(run, job, "scaler-bare-metal-0001")
	_, token, err := r.auth.Service.CreateToken(r.t.Context(), access.Principal{OrgID: readtest.Org, Role: access.Owner}, access.NewToken{Label: "ada", Role: access.Owner})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Write(func(tx *store.Tx) error {
		ctx := r.t.Context()
		if _, err := tx.InsertDelivery(ctx, db.InsertDeliveryParams{
			ID: "delivery-row-1", OrgID: readtest.Org, DeliveryID: "delivery-1", RoutingKey: readtest.Key, Kind: "local", Event: "push", Status: "processed",
			Headers: "{}", Decisions: "[]", Body: []byte(`{"x":"claim-code"}`), ReceivedAt: tx.Now(),
		}); err != nil {
			return err
		}
		if err := tx.InsertAccessLog(ctx, db.InsertAccessLogParams{ID: "entry-row-1", OrgID: readtest.Org, At: tx.Now(), Actor: "ada", Action: "x", Meta: "{}"}); err != nil {
			return err
		}
		if _, err := tx.NodeInsertFailure(ctx, db.NodeInsertFailureParams{
			AgentID: "scaler-bare-metal-0001", NodeID: readtest.Node, Scaler: "local", At: tx.Now(), Error: "hidden-tail", Tail: "hidden-tail",
		}); err != nil {
			return err
		}
		_, err := tx.InsertSource(ctx, db.InsertSourceParams{
			ID: "source-row-1", OrgID: readtest.Org, Kind: "local", Name: "shop-source", RoutingKey: readtest.Key, Repo: readtest.Repo, Config: "{}", CreatedAt: tx.Now(),
		})
		return err
	})
	return map[string]string{
		"run": run, "job": job, "agent": "scaler-bare-metal-0001", "source": "source-row-1", "delivery": "delivery-row-1", "token": token.ID, "entry": "entry-row-1",
		"org": "default",
	}
}

// The command line's names of settings are the server's.
func TestSettingNames(t *testing.T) {
	names := func(keys []setting.Key) (out []string) {
		for _, k := range keys {
			out = append(out, k.Name)
		}
		return out
	}
	if got := names(setting.ClusterKeys()); !slices.Equal(got, client.ClusterSettingNames) {
		t.Errorf("client.ClusterSettingNames is not %q", got)
	}
	if got := names(setting.OrgKeys()); !slices.Equal(got, client.OrgSettingNames) {
		t.Errorf("client.OrgSettingNames is not %q", got)
	}
}
