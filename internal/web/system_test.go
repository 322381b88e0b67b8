package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/access"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/setting"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

func (s *site) said() (out []string) {
	for _, e := range s.doors.entries {
		out = append(out, e.Action+" "+e.Target+" "+e.Outcome)
	}
	return out
}

func TestSettingsShowWhereAValueComesFromAndAreChanged(t *testing.T) {
	s := newSite(t, "/ci")
	text := s.page("/ci/settings/cluster")
	for _, want := range []string{"all as they come", "queueMaxDepth", "Waiting jobs beyond which a new one fails", "1 hour", "nothing in this version reads", `action="/ci/settings/cluster/key/queueMaxDepth"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	r := s.ask("owner", http.MethodPost, "/ci/settings/cluster/key/queueMaxDepth", url.Values{"value": {" 700 "}})
	if got := r.Header.Get("Location"); got != "/ci/settings/cluster?done=queueMaxDepth#set-queueMaxDepth" {
		t.Fatal(r.StatusCode, got)
	}
	text = s.page("/ci/settings/cluster?done=queueMaxDepth")
	for _, want := range []string{"1 is set", "<b>700</b>", "set here", "saved", "by owner &lt;i&gt;", "version 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("after the change the page lacks %q", want)
		}
	}
	if r := s.ask("owner", http.MethodPost, "/ci/settings/cluster/key/queueMaxDepth", url.Values{"value": {"700"}, "default": {"1"}}); r.StatusCode != http.StatusSeeOther {
		t.Error(r.StatusCode)
	}
	if text := s.page("/ci/settings/cluster"); strings.Contains(text, "<b>700</b>") || !strings.Contains(text, "version 2") {
		t.Error("the default does not hold again")
	}
	e := s.doors.entries[0]
	meta, _ := json.Marshal(e.Meta)
	if e.Action != "cluster_settings.update" || e.Target != "queueMaxDepth" || !strings.Contains(string(meta), `"new":700`) {
		t.Errorf("%+v %s", e, meta)
	}
}

func TestASettingThatCannotBeIsExplainedAtItsField(t *testing.T) {
	s := newSite(t, "")
	for _, c := range []struct{ key, value, says string }{
		{"queueMaxDepth", "<many>", "must be a whole number"},
		{"queueMaxDepth", "0", "must be at least 1"},
		{"queueMaxDepth", "", "must be a whole number"},
		{"dashboardVerifiedIssuer", "not a url", "must be an absolute http or https URL"},
		{"scalerProvisionBackoffBaseMs", "950000", "scalerProvisionBackoffBaseMs would be 950000"},
	} {
		r := s.ask("owner", http.MethodPost, "/settings/cluster/key/"+c.key, url.Values{"value": {c.value}})
		text := body(t, r)
		_, row, _ := strings.Cut(text, `id="set-`+c.key+`"`)
		row, _, _ = strings.Cut(row, "</tr>")
		if r.StatusCode != http.StatusBadRequest || !strings.Contains(row, c.says) || !strings.Contains(row, `<details class="change" open`) || !strings.Contains(row, `aria-invalid="true"`) {
			t.Errorf("%s %q: %d\n%s", c.key, c.value, r.StatusCode, row)
		}
		if strings.Contains(text, c.value) && strings.ContainsAny(c.value, "<") {
			t.Errorf("%q is not escaped", c.value)
		}
	}
	if r := s.ask("owner", http.MethodPost, "/settings/cluster/key/nonsense", url.Values{"value": {"1"}}); r.StatusCode != http.StatusNotFound {
		t.Error(r.StatusCode)
	}
	if text := s.page("/settings/cluster"); !strings.Contains(text, "all as they come") {
		t.Error("something was changed all the same")
	}
}

func TestTheSettingsOfAnOrganisationAreItsOwn(t *testing.T) {
	s := newSite(t, "")
	s.world.Write(func(tx *store.Tx) error { return tx.InsertOrg(context.Background(), "acme", 1) })
	s.doors.org = "acme"
	if r := s.ask("owner", http.MethodPost, "/settings/key/allowedRepos", url.Values{"value": {`[{"pattern":"acme/*"}]`}}); r.StatusCode != http.StatusSeeOther {
		t.Fatal(r.StatusCode)
	}
	if text := s.page("/settings"); !strings.Contains(text, "acme/*") || strings.Contains(text, `href="/settings/cluster"`) {
		t.Error("its own setting is missing, or it sees the cluster's")
	}
	for _, door := range []string{"/settings/cluster", "/settings/organisations", "/instances/jobs", "POST /settings/cluster/key/queueMaxDepth", "POST /instances/x/drain", "POST /instances/jobs/cleanup/run"} {
		method, path, ok := strings.Cut(door, " ")
		if !ok {
			method, path = http.MethodGet, method
		}
		if r := s.ask("owner", method, path, nil); r.StatusCode != http.StatusForbidden || !strings.Contains(body(t, r), "concerns the whole cluster") {
			t.Errorf("%s %s of another organisation's owner: %d", method, path, r.StatusCode)
		}
	}
	s.doors.org = ""
	if text := s.page("/settings"); strings.Contains(text, "acme/*") {
		t.Error("an organisation sees the settings of another")
	}
	s.doors.scope = readtest.Key
	for _, path := range []string{"/settings", "/settings/tokens", "/access-log", "/settings/cluster"} {
		if r := s.ask("owner", http.MethodGet, path, nil); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a token of one source: %d", path, r.StatusCode)
		}
	}
	if text := s.page("/runs"); strings.Contains(text, `href="/settings"`) || strings.Contains(text, `href="/access-log"`) {
		t.Error("the navigation leads where a token of one source may not go")
	}
}

func TestValuesOfSettingsAreReadable(t *testing.T) {
	for _, c := range []struct {
		unit, raw, want string
		off             bool
	}{
		{"ms", "3600000", "1 hour", false},
		{"ms", "90000", "90 seconds", false},
		{"ms", "1500", "1500 ms", false},
		{"seconds", "604800", "7 days", false},
		{"days", "1", "1 day", false},
		{"bytes", "26214400", "25 MiB", false},
		{"bytes", "1000", "1000 bytes", false},
		{"hours", "24", "1 day", false},
		{"", "50000", "50000", false},
		{"", "null", "none", false},
		{"", "true", "on", false},
		{"ms", "0", "off", true},
		{"", `["CAP_KILL"]`, `["CAP_KILL"]`, false},
	} {
		if got := human(setting.Value{Key: setting.Key{Unit: c.unit, ZeroOff: c.off}}, json.RawMessage(c.raw)); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.raw, c.unit, got, c.want)
		}
	}
}

func (s *site) instance(id string) {
	s.t.Helper()
	s.world.Write(func(tx *store.Tx) error {
		if err := tx.SetClusterMeta(s.t.Context(), "cluster_name", "acme-ci"); err != nil {
			return err
		}
		return tx.StartInstance(s.t.Context(), db.StartInstanceParams{InstanceID: id, Name: "host-" + id, Version: "1", Url: "http://" + id, Now: tx.Now()})
	})
}

func TestInstancesAreDrainedAndResumed(t *testing.T) {
	s := newSite(t, "/ci")
	s.instance("one")
	s.instance("two")
	text := s.page("/ci/instances")
	for _, want := range []string{"No instance leads", "host-one", "host-two", `action="/ci/instances/two/drain"`, "starting", "registry 0", "acme-ci"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if r := s.ask("owner", http.MethodPost, "/ci/instances/two/drain", nil); r.Header.Get("Location") != "/ci/instances" {
		t.Fatal(r.StatusCode)
	}
	if text := s.page("/ci/instances"); !strings.Contains(text, ">draining<") || !strings.Contains(text, `action="/ci/instances/two/resume"`) {
		t.Error("it does not drain")
	}
	s.ask("owner", http.MethodPost, "/ci/instances/two/resume", nil)
	if text := s.page("/ci/instances"); strings.Contains(text, ">draining<") {
		t.Error("it does not take work again")
	}
	if r := s.ask("owner", http.MethodPost, "/ci/instances/none/drain", nil); r.StatusCode != http.StatusNotFound {
		t.Error(r.StatusCode)
	}
	if got := s.said(); !slices.Equal(got, []string{"orchestrator.drain two allowed", "orchestrator.drain two allowed", "orchestrator.drain none error"}) {
		t.Error(got)
	}
	if text := body(t, s.ask("auditor", http.MethodGet, "/ci/instances", nil)); strings.Contains(text, "/drain") || !strings.Contains(text, "host-one") {
		t.Error("an auditor sees buttons, or no instance")
	}
}

func TestPeriodicJobsAreRun(t *testing.T) {
	s := newSite(t, "")
	text := s.page("/instances/jobs")
	for _, want := range []string{"1 periodic job fails", "Deletes &lt;old&gt; runs", "not run yet", "failed 3 times", "disk is &lt;full&gt;", "1 hour", `action="/instances/jobs/cleanup/run"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for name, want := range map[string]string{"cleanup": "cleanup went well in 0.0 s: deleted 3 runs.", "orphans": "orphans failed after 0.0 s: disk is full"} {
		if text := body(t, s.ask("owner", http.MethodPost, "/instances/jobs/"+name+"/run", nil)); !strings.Contains(text, want) {
			t.Errorf("%s: the page lacks %q", name, want)
		}
	}
	if r := s.ask("owner", http.MethodPost, "/instances/jobs/none/run", nil); r.StatusCode != http.StatusNotFound {
		t.Error(r.StatusCode)
	}
}

func TestTheAccessLogIsFiltered(t *testing.T) {
	s := newSite(t, "")
	for i, e := range []db.InsertAccessLogParams{
		{Action: "run.cancel", Outcome: "allowed", Target: "run-1", Meta: `{"label":"ada","changed":"<b>"}`},
		{Action: "run.rerun", Outcome: "denied", Error: "role auditor lacks <it>", Meta: `{"label":"grace"}`},
		{Action: "token.create", Outcome: "error", OrgID: "other", Meta: `{}`},
	} {
		s.world.Write(func(tx *store.Tx) error {
			e.ID, e.At, e.Source, e.ActorKind, e.Actor = string(rune('a'+i)), tx.Now(), access.SourceHTTP, access.KindAPIKey, "t-1"
			if e.OrgID == "" {
				e.OrgID = readtest.Org
			}
			return tx.InsertAccessLog(context.Background(), e)
		})
	}
	for query, want := range map[string]string{"": "a b", "action=run.cancel": "a", "action=run.*": "a b", "outcome=denied": "b", "outcome=nonsense": "a b", "actor=grace": "b", "target=run-1": "a", "since=1h": "a b"} {
		text := s.page("/access-log?" + query)
		for _, id := range []string{"a", "b", "c"} {
			if got := strings.Contains(text, `id="entry-`+id+`"`); got != slices.Contains(strings.Fields(want), id) {
				t.Errorf("%q shows %s: %v", query, id, got)
			}
		}
	}
	text := s.page("/access-log")
	for _, want := range []string{"lacks &lt;it&gt;", "&lt;b&gt;", ">ada</a>", "API"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := s.said(); len(got) == 0 || got[0] != "access_log.read  allowed" {
		t.Errorf("that somebody looked is not recorded: %q", got)
	}
}

func TestTokensAndOrganisationsAreMade(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	r := s.ask("owner", http.MethodPost, "/settings/tokens", url.Values{"label": {"  "}, "role": {"admin"}})
	if text := body(t, r); r.StatusCode != http.StatusBadRequest || !strings.Contains(text, "Label needs 1 to 255 characters.") || !strings.Contains(text, `aria-invalid="true"`) {
		t.Errorf("%d %s", r.StatusCode, text)
	}
	text := body(t, s.ask("owner", http.MethodPost, "/settings/tokens", url.Values{"label": {"ci <bot>"}, "role": {"auditor"}, "source": {readtest.Key}, "days": {"30"}}))
	if !strings.Contains(text, "shown this once") || !strings.Contains(text, "ci &lt;bot&gt;") || !strings.Contains(text, readtest.Key) || !strings.Contains(text, "in 29 days") {
		t.Error(text)
	}
	rows, err := s.world.Store.Read().AdminTokens(context.Background(), readtest.Org)
	if err != nil || len(rows) != 1 || rows[0].Role != "auditor" || rows[0].RoutingKey.String != readtest.Key || !rows[0].ExpiresAt.Valid {
		t.Fatalf("%+v %v", rows, err)
	}
	if text := s.page("/settings/tokens"); strings.Contains(text, "shown this once") {
		t.Error("a token is shown twice")
	}
	if r := s.ask("owner", http.MethodPost, "/settings/tokens/"+rows[0].ID+"/revoke", nil); r.StatusCode != http.StatusConflict {
		t.Errorf("no owner's token would be left: %d", r.StatusCode)
	}
	body(t, s.ask("owner", http.MethodPost, "/settings/tokens", url.Values{"label": {"boss"}, "role": {"owner"}}))
	if r := s.ask("owner", http.MethodPost, "/settings/tokens/"+rows[0].ID+"/revoke", nil); r.StatusCode != http.StatusSeeOther {
		t.Error(r.StatusCode)
	}
	if text := s.page("/settings/tokens"); !strings.Contains(text, "revoked") {
		t.Error("it is not revoked")
	}
	if text := body(t, s.ask("owner", http.MethodPost, "/settings/organisations", url.Values{"id": {"Acme!"}})); !strings.Contains(text, "lower-case letters") {
		t.Error(text)
	}
	if text := body(t, s.ask("owner", http.MethodPost, "/settings/organisations", url.Values{"id": {"acme"}, "name": {"Acme <Inc>"}})); !strings.Contains(text, "first owner") || !strings.Contains(text, "Acme &lt;Inc&gt;") {
		t.Error(text)
	}
	if text := body(t, s.ask("owner", http.MethodPost, "/settings/organisations", url.Values{"id": {"acme"}})); !strings.Contains(text, "There is an organisation of that name already.") {
		t.Error(text)
	}
}

func TestThePagesOfTheSystemNeedTheirPermission(t *testing.T) {
	s := newSite(t, "")
	s.instance("one")
	s.permissions(map[string]access.Permission{
		"/settings": access.SecretRead, "/settings/cluster": access.SecretRead, "POST /settings/key/queueTimeoutMs": access.SecretWrite,
		"POST /settings/cluster/key/queueMaxDepth": access.SecretWrite, "/settings/tokens": access.TokenManage, "POST /settings/tokens": access.TokenManage,
		"POST /settings/tokens/x/revoke": access.TokenManage, "/settings/organisations": access.RunRead, "POST /settings/organisations": access.TokenManage,
		"/instances": access.RunRead, "/instances/jobs": access.RunRead, "POST /instances/one/drain": access.OrchestratorDrain, "POST /instances/one/resume": access.OrchestratorDrain,
		"POST /instances/jobs/cleanup/run": access.ScheduledJobTrigger, "/access-log": access.AccessLogRead,
	})
}
