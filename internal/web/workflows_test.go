package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/registration"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

type untold struct{}

func (untold) EmitTx(*store.Tx, registration.Event) error { return nil }

// register makes a workflow of a repository's default branch known and returns its registration's id.
func (s *site) register(key, repo, name string, crons ...string) string {
	s.t.Helper()
	w := lock.Workflow{Name: name, SourceFile: ".kici/workflows/" + name + ".yaml", Jobs: []lock.Job{readtest.Job("build"), readtest.Job("ship", "build")}}
	w.On = []lock.Trigger{{Type: "push", Branches: []string{"main", "rel/<x>"}}, {Type: "dispatch", Manual: true}}
	for _, c := range crons {
		w.On = append(w.On, lock.Trigger{Type: "schedule", Cron: c, Timezone: "Europe/Berlin"})
	}
	room := registration.New(registration.Deps{Store: s.world.Store, Events: untold{}, Env: s.world.Env, Log: obs.Discard()})
	scope := db.WorkflowRegistration{OrgID: readtest.Org, RoutingKey: key, Repo: repo, CommitSha: "1a2b3c4d5e", DefaultBranch: "main"}
	if _, err := room.Register(context.Background(), scope, []lock.Workflow{w}); err != nil {
		s.t.Fatal(err)
	}
	rows, err := s.world.Store.Read().RegistrationsOfRepo(context.Background(), key, repo)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range rows {
		if r.Workflow == name {
			return r.ID
		}
	}
	s.t.Fatal("it was not registered")
	return ""
}

func TestWorkflowsAreListedAndFiltered(t *testing.T) {
	s := newSite(t, "/ci")
	if text := s.page("/ci/workflows"); !strings.Contains(text, "No workflow is registered yet") || !strings.Contains(text, "kici source add local") {
		t.Error("an empty list does not say what to do")
	}
	s.register(readtest.Key, readtest.Repo, "nightly", "30 4 * * *")
	s.register(readtest.Key, readtest.Repo, "deploy")
	s.register(readtest.Other, "acme/site", "pages")
	for query, want := range map[string]string{
		"": "nightly deploy pages", "repo=acme%2Fsite": "pages", "trigger=schedule": "nightly", "workflow=deploy": "deploy", "state=disabled": "", "state=enabled": "nightly deploy pages",
		"state=global": "", "trigger=push&repo=acme%2Fshop": "nightly deploy",
	} {
		text := s.page("/ci/workflows?" + query)
		for _, name := range []string{"nightly", "deploy", "pages"} {
			if got := strings.Contains(text, ">"+name+"</a>"); got != slices.Contains(strings.Fields(want), name) {
				t.Errorf("%q shows %s: %v", query, name, got)
			}
		}
	}
	s.doors.scope = readtest.Other
	if text := s.page("/ci/workflows"); strings.Contains(text, "nightly") || !strings.Contains(text, "1 workflow is registered") {
		t.Error("a token of one source sees the workflows of another")
	}
}

func TestAWorkflowSaysWhatStartsItAndCanBeRun(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	id := s.register(readtest.Key, readtest.Repo, "nightly", "30 4 * * *", "0 25 * * *")
	text := s.page("/workflows/" + id)
	for _, want := range []string{
		"main, rel/&lt;x&gt;", "30 4 * * *", "Europe/Berlin", "cannot fire", "after build", `action="/workflows/` + id + `/run"`, `action="/workflows/` + id + `/disable"`,
		`href="/start?source=shop&amp;workflow=nightly"`, `href="/runs?repo=acme%2Fshop&amp;workflow=nightly"`, "04:30", "not yet",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/workflows/"+id, nil)); strings.Contains(text, `action="/workflows`) {
		t.Error("an auditor sees buttons")
	}
	if r := s.ask("owner", http.MethodPost, "/workflows/"+id+"/run", url.Values{"key": {"web-7"}}); r.Header.Get("Location") != "/runs/fired" {
		t.Error(r.Header.Get("Location"))
	}
	if got := s.intake.calls; !slices.Equal(got, []string{"run " + id + " by owner <i> web-7"}) {
		t.Error(got)
	}
	s.ask("owner", http.MethodPost, "/workflows/"+id+"/disable", nil)
	s.ask("owner", http.MethodPost, "/workflows/"+id+"/enable", nil)
	if !slices.Equal(s.regs.calls, []string{"disable " + id + " true", "disable " + id + " false"}) {
		t.Error(s.regs.calls)
	}
	s.intake.err = ingress.ErrConflict
	if r := s.ask("owner", http.MethodPost, "/workflows/"+id+"/run", nil); r.StatusCode != http.StatusConflict {
		t.Error(r.StatusCode)
	}
	var said []string
	for _, e := range s.doors.entries {
		said = append(said, e.Action+" "+e.Outcome)
	}
	if !slices.Equal(said, []string{"run.manual_schedule allowed", "registration.disable allowed", "registration.enable allowed", "run.manual_schedule error"}) {
		t.Error(said)
	}
	s.doors.scope = readtest.Other
	for _, door := range []string{"/workflows/" + id, "POST /workflows/" + id + "/run", "POST /workflows/" + id + "/disable"} {
		method, path, ok := strings.Cut(door, " ")
		if !ok {
			method, path = http.MethodGet, method
		}
		if r := s.ask("owner", method, path, nil); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s of another source: %d", method, path, r.StatusCode)
		}
	}
}

func TestSchedulesShowWhenTheyFire(t *testing.T) {
	s := newSite(t, "")
	if text := s.page("/schedules"); !strings.Contains(text, "Nothing is scheduled") || !strings.Contains(text, "cron:") {
		t.Error("an empty list does not say what to do")
	}
	s.register(readtest.Key, readtest.Repo, "nightly", "30 4 * * *")
	s.register(readtest.Other, "acme/site", "pages", "0 1 * * *")
	text := s.page("/schedules?repo=acme%2Fshop")
	if !strings.Contains(text, "Next is nightly, in ") || strings.Count(text, "then ") != 2 || strings.Contains(text, "pages") {
		t.Error(text)
	}
	s.doors.scope = readtest.Other
	if text := s.page("/schedules"); strings.Contains(text, "nightly") || !strings.Contains(text, "pages") {
		t.Error("a token of one source sees the schedules of another")
	}
}

func TestLocalIsTheSchedulesOwnTime(t *testing.T) {
	at := client.TimeOf(time.Date(2026, 7, 1, 2, 30, 0, 0, time.UTC).UnixMilli())
	for zone, want := range map[string]string{"Europe/Berlin": "Wed 1 Jul 04:30", "UTC": "Wed 1 Jul 02:30", "": "Wed 1 Jul 02:30", "Mars/Base": "Wed 1 Jul 02:30"} {
		if got := local(at, zone); got != want {
			t.Errorf("%q: %s, want %s", zone, got, want)
		}
	}
}

func TestThePagesOfTheRegistryNeedTheirPermission(t *testing.T) {
	s := newSite(t, "")
	id := s.register(readtest.Key, readtest.Repo, "nightly", "30 4 * * *")
	s.permissions(map[string]access.Permission{
		"/workflows": access.ContextRead, "/workflows/" + id: access.ContextRead, "/schedules": access.ContextRead,
		"POST /workflows/" + id + "/run": access.RunTrigger, "POST /workflows/" + id + "/enable": access.ContextUpdate, "POST /workflows/" + id + "/disable": access.ContextUpdate,
	})
}
