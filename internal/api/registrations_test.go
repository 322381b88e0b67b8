package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// registry is the real room of registrations, and a fake of what makes them from commits.
type registry struct {
	*registration.Service
	did   []string
	runID string
	err   error
}

type untold struct{}

func (untold) EmitTx(*store.Tx, registration.Event) error { return nil }

func newRegistry(st *store.Store, env service.Env) *registry {
	return &registry{Service: registration.New(registration.Deps{Store: st, Events: untold{}, Env: env, Log: obs.Discard()}), runID: "run-1"}
}

func (r *registry) Register(_ context.Context, q ingress.RegisterRequest) (ingress.Registered, error) {
	r.did = append(r.did, fmt.Sprint("register ", q.Source, " ", q.Ref, " ", q.Workflows, " by ", q.By))
	return ingress.Registered{Repo: readtest.Repo, SHA: "c1", Workflows: q.Workflows, Version: 7}, r.err
}

func (r *registry) Refresh(_ context.Context, _, source, by string) (ingress.Registered, error) {
	r.did = append(r.did, fmt.Sprint("refresh ", source, " by ", by))
	return ingress.Registered{Repo: readtest.Repo, Version: 8}, r.err
}

func (r *registry) RunSchedule(_ context.Context, q ingress.RunScheduleRequest) (string, error) {
	r.did = append(r.did, fmt.Sprint("run ", q.RequestID, " by ", q.By))
	return r.runID, r.err
}

// add registers a workflow with schedules and returns its id.
func (r *rig) add(key, repo, name string, crons ...string) string {
	r.t.Helper()
	w := lock.Workflow{Name: name, SourceFile: ".kici/workflows/" + name + ".yaml", On: []lock.Trigger{{Type: "push", Branches: []string{"main", "rel/*"}}}}
	for _, c := range crons {
		w.On = append(w.On, lock.Trigger{Type: "schedule", Cron: c, Timezone: "Europe/Berlin"})
	}
	w.Jobs = []lock.Job{readtest.Job("build")}
	scope := db.WorkflowRegistration{OrgID: readtest.Org, RoutingKey: key, Repo: repo, CommitSha: "c1", DefaultBranch: "main"}
	if _, err := r.registry.Service.Register(context.Background(), scope, []lock.Workflow{w}); err != nil {
		r.t.Fatal(err)
	}
	rows, err := r.Store.Read().RegistrationsOfRepo(context.Background(), key, repo)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		if row.Workflow == name {
			return row.ID
		}
	}
	r.t.Fatal("not registered")
	return ""
}

func decodeAs[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func TestRegistrations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		r := newRig(t, st)
		nightly := r.add(readtest.Key, readtest.Repo, "nightly", "30 4 * * *", "0 4 * *")
		r.add(readtest.Key, readtest.Repo, "ci")
		other := r.add(readtest.Other, "acme/site", "ci", "0 1 * * *")
		names := func(query, token string) (string, client.RegistrationList) {
			code, text := r.do("GET", "/api/v1/admin/registrations"+query, token, "")
			if code != 200 {
				return fmt.Sprint(code), client.RegistrationList{}
			}
			l := decodeAs[client.RegistrationList](t, text)
			var out []string
			for _, x := range l.Registrations {
				out = append(out, x.Repo+"#"+x.Workflow)
			}
			return strings.Join(out, " "), l
		}
		for _, c := range []struct{ query, token, want string }{
			{"", "owner", "acme/shop#ci acme/shop#nightly acme/site#ci"},
			{"", "auditor/" + readtest.Other, "acme/site#ci"},
			{"?trigger=schedule", "owner", "acme/shop#nightly acme/site#ci"},
			{"?trigger=%25", "owner", ""},
			{"?workflow=ci", "owner", "acme/shop#ci acme/site#ci"},
			{"?repo=acme/site", "owner", "acme/site#ci"},
			{"?state=disabled", "owner", ""},
			{"?state=nope", "owner", "400"},
			{"?global=true", "owner", ""},
			{"?source=none", "owner", "404"},
			{"?cursor=xyz", "owner", "400"},
		} {
			if got, _ := names(c.query, c.token); got != c.want {
				t.Errorf("%s as %s: %q, want %q", c.query, c.token, got, c.want)
			}
		}
		// Pages neither skip nor repeat; the total is that of all pages.
		var all []string
		for cursor := ""; ; {
			got, l := names("?limit=1&cursor="+cursor, "owner")
			all = append(all, got)
			if l.Total != 3 || len(all) > 3 {
				t.Fatalf("%v %+v", all, l)
			}
			if cursor = l.NextCursor; cursor == "" {
				break
			}
		}
		if strings.Join(all, " ") != "acme/shop#ci acme/shop#nightly acme/site#ci" {
			t.Error(all)
		}
		r.registrationDetail(nightly, other)
		r.registrationSwitches(nightly)
	})
}

func (r *rig) registrationDetail(nightly, other string) {
	r.t.Helper()
	t := r.t
	for _, ref := range []string{nightly, "nightly", url.PathEscape("acme/shop#nightly")} {
		code, text := r.do("GET", "/api/v1/admin/registrations/"+ref, "auditor", "")
		if code != 200 {
			t.Fatalf("%s: %d %s", ref, code, text)
		}
		d := decodeAs[client.RegistrationDetail](t, text)
		if d.ID != nightly || len(d.On) != 3 || d.On[0].Filters["branches"] != "main, rel/*" || len(d.Schedules) != 2 || len(d.Jobs) != 1 {
			t.Errorf("%s: %+v", ref, d)
		}
		for _, s := range d.Schedules {
			if bad := s.Expression == "0 4 * *"; bad != (s.Error != "") || bad != (len(s.Next) == 0) || !bad && len(s.Next) != 3 {
				t.Errorf("%+v", s)
			}
		}
	}
	for ref, want := range map[string]int{"ci": 400, "nothing": 404, other: 200} {
		if code, text := r.do("GET", "/api/v1/admin/registrations/"+ref, "owner", ""); code != want {
			t.Errorf("%s: %d %s", ref, code, text)
		}
	}
	for ref, want := range map[string]int{"ci": 200, other: 200, nightly: 403, "nightly": 403} { // ADM-5
		if code, text := r.do("GET", "/api/v1/admin/registrations/"+ref, "owner/"+readtest.Other, ""); code != want {
			t.Errorf("%s of another source: %d %s", ref, code, text)
		}
	}
	code, text := r.do("GET", "/api/v1/admin/schedules?limit=2", "auditor", "")
	l := decodeAs[client.ScheduleList](t, text)
	if code != 200 || len(l.Schedules) != 2 || l.NextCursor == "" {
		t.Fatalf("%d %s", code, text)
	}
	code, text = r.do("GET", "/api/v1/admin/schedules?limit=2&cursor="+l.NextCursor, "auditor", "")
	if l = decodeAs[client.ScheduleList](t, text); code != 200 || len(l.Schedules) != 1 || l.Schedules[0].Repo != "acme/site" || l.NextCursor != "" || l.Schedules[0].LastFiredAt != nil {
		t.Errorf("%d %s", code, text)
	}
}

func (r *rig) registrationSwitches(nightly string) {
	r.t.Helper()
	t := r.t
	for _, c := range []struct {
		method, path, body, token string
		code                      int
		says, action              string
	}{
		{"POST", "/registrations/nightly/disable", "", "owner", 200, `"disabled":true`, "registration.disable"},
		{"POST", "/registrations/nightly/disable", "", "auditor", 403, "auditor", "registration.disable"},
		{"POST", "/registrations/nightly/enable", "", "admin", 200, `"disabled":false`, "registration.enable"},
		{"POST", "/registrations/nightly/enable", "", "owner/" + readtest.Other, 403, "routing key", "registration.enable"},
		{"POST", "/registrations/nightly/run", `{"requestId":"r1"}`, "owner", 201, `"newRunId":"run-1"`, "run.manual_schedule"},
		{"POST", "/registrations/nothing/run", "", "owner", 404, "nothing", "run.manual_schedule"},
		{"POST", "/registrations/register-manual", `{"source":"none"}`, "owner", 404, "none", "registration.register"},
		{"POST", "/registrations/refresh", `{}`, "owner", 400, "", "registration.refresh"},
		{"DELETE", "/registrations/nightly", "", "auditor", 403, "", "registration.delete"},
		{"DELETE", "/registrations/nightly", "", "owner", 200, `"deleted":true`, "registration.delete"},
		{"DELETE", "/registrations/" + nightly, "", "owner", 404, "", "registration.delete"},
	} {
		code, text := r.do(c.method, "/api/v1/admin"+c.path, c.token, c.body)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s %s as %s: %d %s", c.method, c.path, c.token, code, text)
		}
		if e := r.auth.last(); e.Action != c.action || (c.code < 400) != (e.Outcome == access.Allowed) {
			t.Errorf("%s %s: recorded as %+v", c.method, c.path, e)
		}
	}
	if got := strings.Join(r.registry.did, "; "); got != "run r1 by owner" {
		t.Error(got)
	}
}

func TestRegistrationConflictsAreTold(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	r.add(readtest.Key, readtest.Repo, "nightly", "30 4 * * *")
	for err, code := range map[error]int{
		ingress.ErrConflict: 409, ingress.ErrNoRegistration: 404, errors.New("a secret of the database"): 500,
	} {
		r.registry.err = err
		got, text := r.do("POST", "/api/v1/admin/registrations/nightly/run", "owner", "")
		if got != code || strings.Contains(text, "secret of") {
			t.Errorf("%v: %d %s", err, got, text)
		}
	}
}
