package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/setting"
)

// Whose sessions a route takes.
type reach string

const (
	anyToken      reach = "any"      // also of a token that is limited to a source
	unscopedToken reach = "unscoped" // "U" in the table of routes
	operator      reach = "cluster"  // only of a token of the operating organisation
)

// matrix says what each page needs, and which operation a write is. A page that is not here, or that asks for something else,
// fails TestXC145EveryPageEveryRole: write the right down here when you add one.
var matrix = map[string]struct {
	need      access.Permission
	reach     reach
	operation string
}{
	"GET /runs":                              {"run.read", anyToken, ""},
	"GET /runs/live":                         {"run.read", anyToken, ""},
	"GET /runs/{run}":                        {"run.read", anyToken, ""},
	"GET /runs/{run}/live":                   {"run.read", anyToken, ""},
	"GET /runs/{run}/timeline":               {"run.read", anyToken, ""},
	"GET /runs/{run}/timeline/live":          {"run.read", anyToken, ""},
	"GET /runs/{run}/jobs/{job}":             {"run.read", anyToken, ""},
	"GET /runs/{run}/jobs/{job}/live":        {"run.read", anyToken, ""},
	"GET /runs/{run}/jobs/{job}/log/window":  {"run.read", anyToken, ""},
	"GET /runs/{run}/jobs/{job}/log/live":    {"run.read", anyToken, ""},
	"GET /runs/{run}/jobs/{job}/log.txt":     {"run.read", anyToken, ""},
	"POST /runs/{run}/cancel":                {"run.cancel", anyToken, "run.cancel"},
	"POST /runs/{run}/rerun":                 {"run.trigger", anyToken, "run.rerun"},
	"GET /queue":                             {"run.read", anyToken, ""},
	"GET /queue/live":                        {"run.read", anyToken, ""},
	"GET /agents":                            {"scaler.read", anyToken, ""},
	"GET /agents/live":                       {"scaler.read", anyToken, ""},
	"GET /scalers/live":                      {"scaler.read", anyToken, ""},
	"GET /scalers":                           {"scaler.read", anyToken, ""},
	"GET /deliveries/live":                   {"event_log.read", anyToken, ""},
	"GET /deliveries":                        {"event_log.read", anyToken, ""},
	"GET /deliveries/{delivery}":             {"event_log.read", anyToken, ""},
	"POST /deliveries/{delivery}/replay":     {"run.trigger", anyToken, "delivery.replay"},
	"GET /sources":                           {"context.read", anyToken, ""},
	"GET /sources/{source}":                  {"context.read", anyToken, ""},
	"POST /sources/{source}/check":           {"source.manage", anyToken, "source.manage"},
	"POST /sources/{source}/enable":          {"source.manage", anyToken, "source.manage"},
	"POST /sources/{source}/disable":         {"source.manage", anyToken, "source.manage"},
	"POST /sources/{source}/trigger":         {"run.trigger", anyToken, "run.trigger"},
	"GET /workflows":                         {"context.read", anyToken, ""},
	"GET /workflows/{registration}":          {"context.read", anyToken, ""},
	"POST /workflows/{registration}/enable":  {"context.update", anyToken, "registration.update"},
	"POST /workflows/{registration}/disable": {"context.update", anyToken, "registration.update"},
	"POST /workflows/{registration}/run":     {"run.trigger", anyToken, "run.trigger"},
	"GET /schedules":                         {"context.read", anyToken, ""},
	"GET /events":                            {"event_dlq.read", anyToken, ""},
	"GET /events/live":                       {"event_dlq.read", anyToken, ""},
	"GET /events/dead":                       {"event_dlq.read", anyToken, ""},
	"GET /events/dead/live":                  {"event_dlq.read", anyToken, ""},
	"GET /events/{event}":                    {"event_dlq.read", anyToken, ""},
	"POST /events/{event}/retry":             {"event_dlq.manage", anyToken, "event_dlq.manage"},
	"POST /events/{event}/discard":           {"event_dlq.manage", anyToken, "event_dlq.manage"},
	"GET /settings":                          {"secret.read", unscopedToken, ""},
	"POST /settings/key/{key}":               {"secret.write", unscopedToken, "org_settings.update"},
	"GET /settings/cluster":                  {"secret.read", operator, ""},
	"POST /settings/cluster/key/{key}":       {"secret.write", operator, "cluster_settings.update"},
	"GET /settings/tokens":                   {"token.manage", unscopedToken, ""},
	"POST /settings/tokens":                  {"token.manage", unscopedToken, "token.manage"},
	"POST /settings/tokens/{token}/revoke":   {"token.manage", unscopedToken, "token.manage"},
	"GET /settings/organisations":            {"run.read", operator, ""},
	"POST /settings/organisations":           {"token.manage", operator, "org.create"},
	"GET /instances":                         {"run.read", anyToken, ""},
	"GET /instances/live":                    {"run.read", anyToken, ""},
	"POST /instances/{instance}/drain":       {"orchestrator.drain", operator, "orchestrator.drain"},
	"POST /instances/{instance}/resume":      {"orchestrator.drain", operator, "orchestrator.drain"},
	"GET /instances/jobs":                    {"run.read", operator, ""},
	"POST /instances/jobs/{name}/run":        {"scheduled_job.trigger", operator, "scheduled_job.trigger"},
	"GET /access-log":                        {"access_log.read", unscopedToken, ""},
	"GET /start":                             {"run.trigger", anyToken, ""},
	"POST /start":                            {"run.trigger", anyToken, "run.trigger"},
}

var inBraces = regexp.MustCompile(`\{[a-z]+\}`)

// ended is a context that is over: a stream asked with it answers and ends.
func ended(r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	*r = *r.WithContext(ctx)
}

// TestXC145EveryPageEveryRole asks every page as nobody, as every role, with a token that is limited to a source and with one of
// another organisation (ADM-4, ADM-5); a refused write is recorded (AUD-2).
func TestXC145EveryPageEveryRole(t *testing.T) {
	s := newSite(t, "")
	seen := map[string]bool{}
	for _, at := range s.routes {
		want, known := matrix[at.pattern]
		if seen[at.pattern] = true; !known || want.need != at.need || want.operation != at.operation {
			t.Errorf("%s needs %q and is %q; the matrix says %+v", at.pattern, at.need, at.operation, want)
		}
		method, path, _ := strings.Cut(inBraces.ReplaceAllString(at.pattern, "none"), " ")
		s.doors.scope, s.doors.org = "", ""
		if r := s.ask("", method, path, nil); r.StatusCode != http.StatusSeeOther && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a session: %d", at.pattern, r.StatusCode)
		}
		for _, who := range []struct {
			scope, org string
			may        bool
		}{{"", "", true}, {readtest.Key, "", want.reach == anyToken}, {"", "acme", want.reach != operator}} {
			s.doors.scope, s.doors.org = who.scope, who.org
			for _, role := range []access.Role{access.Owner, access.Admin, access.Auditor} {
				s.doors.entries = nil
				r := s.ask(string(role), method, path, nil, ended)
				may := who.may && role.Can(at.need)
				if may == (r.StatusCode == http.StatusForbidden) {
					t.Errorf("%s as %s %+v: %d", at.pattern, role, who, r.StatusCode)
				}
				denied := slices.ContainsFunc(s.doors.entries, func(e access.Entry) bool { return e.Outcome == access.DeniedEntry && e.Action == at.operation })
				if denied != (!may && at.operation != "") {
					t.Errorf("%s as %s %+v is recorded as %+v", at.pattern, role, who, s.doors.entries)
				}
			}
		}
	}
	for pattern := range matrix {
		if !seen[pattern] {
			t.Errorf("%s is in the matrix and is no page", pattern)
		}
	}
}

// A page without a permission that roles have, and a write without an operation that may be switched off, do not start.
func TestPageWithoutARight(t *testing.T) {
	s := newServer(Deps{})
	h := func(http.ResponseWriter, *http.Request, caller) error { return nil }
	for name, mount := range map[string]func(){
		"no permission":                func() { s.page("GET /x", "", h) },
		"a permission that nobody has": func() { s.page("GET /x", "run.reed", h) },
		"a write as a page":            func() { s.page("POST /x", access.RunRead, h) },
		"a write without permission":   func() { s.write("POST /x", "run.cancel", "", h) },
		"a write without operation":    func() { s.write("POST /x", "", access.RunCancel, h) },
		"an operation that is none":    func() { s.write("POST /x", "run.explode", access.RunCancel, h) },
		"a page as a write":            func() { s.write("GET /x", "run.cancel", access.RunCancel, h) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s starts", name)
				}
			}()
			mount()
		}()
	}
}

// What an organisation switches off is not offered, and is refused to who asks all the same; the change counts at once.
func TestDashboardWrites(t *testing.T) {
	s := newSite(t, "")
	id := s.world.Run(readtest.NewRun{})
	say := func(org, value string) {
		t.Helper()
		_, err := s.settings.Apply(t.Context(), setting.Change{Scope: setting.OrgScope(org), By: "ada", Set: map[string]json.RawMessage{"dashboardWrites": json.RawMessage(value)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	overTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	offered := func(edit ...func(*http.Request)) bool {
		return strings.Contains(body(t, s.ask("owner", http.MethodGet, "/runs/"+id, nil, edit...)), "/runs/"+id+"/cancel")
	}
	cancel := func(edit ...func(*http.Request)) (int, string) {
		r := s.ask("owner", http.MethodPost, "/runs/"+id+"/cancel", nil, edit...)
		return r.StatusCode, body(t, r)
	}
	if !offered() {
		t.Error("nothing is switched off, and cancel is not offered")
	}
	say("acme", `{"run.cancel":"disabled"}`)
	if code, text := cancel(); code == http.StatusForbidden {
		t.Errorf("switched off by another organisation: %s", text)
	}
	say(readtest.Org, `{"run.cancel":"disabled"}`)
	before := len(s.buttons.cancels)
	if code, text := cancel(overTLS); code != http.StatusForbidden || !strings.Contains(text, "dashboardWrites: run.cancel") || len(s.buttons.cancels) != before || offered(overTLS) {
		t.Errorf("switched off: %d %s", code, text)
	}
	if e := s.doors.entries[len(s.doors.entries)-1]; e.Action != "run.cancel" || e.Outcome != access.DeniedEntry {
		t.Errorf("recorded as %+v", e)
	}
	say(readtest.Org, `{"run.cancel":"encrypted"}`)
	if code, text := cancel(); code != http.StatusForbidden || !strings.Contains(text, "TLS") || offered() {
		t.Errorf("without TLS: %d %s", code, text)
	}
	if code, _ := cancel(overTLS); code == http.StatusForbidden || !offered(overTLS) {
		t.Errorf("with TLS: %d", code)
	}
	all := map[string]string{}
	for _, op := range setting.DashboardOperations() {
		all[op] = "disabled"
	}
	text, _ := json.Marshal(all)
	say(readtest.Org, string(text))
	for _, at := range s.routes {
		if at.operation == "" {
			continue
		}
		delete(all, at.operation)
		if r := s.ask("owner", http.MethodPost, inBraces.ReplaceAllString(strings.TrimPrefix(at.pattern, "POST "), "none"), nil); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", at.pattern, r.StatusCode)
		}
	}
	if len(all) > 0 {
		t.Errorf("no page does what may be switched off: %v", all)
	}
	for _, path := range []string{"/runs", "/runs/" + id, "/settings", "/settings/cluster", "/settings/tokens", "/settings/organisations", "/instances", "/instances/jobs", "/events/dead", "/sources", "/schedules"} {
		if text := body(t, s.ask("owner", http.MethodGet, path, nil)); strings.Contains(strings.ReplaceAll(text, `action="/logout" method="post"`, ""), `method="post"`) {
			t.Errorf("%s has a form", path)
		}
	}
}
