package web

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ingress"
)

func TestStartGoesInStepsWithoutScripts(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	if text := s.page("/start"); !strings.Contains(text, `<option value="shop">`) || strings.Contains(text, "What will run") {
		t.Error("the first step")
	}
	text := s.page("/start?source=shop")
	if !strings.Contains(text, `href="/start?source=shop&amp;workflow=deploy"`) || strings.Contains(text, `workflow=ci"`) || !strings.Contains(text, "has no workflow_dispatch trigger") ||
		!strings.Contains(text, "fix &lt;b&gt;the&lt;/b&gt; thing") {
		t.Error("the second step")
	}
	text = s.page("/start?source=shop&ref=v1&workflow=deploy")
	for _, want := range []string{
		`<option value="dev">`, "choose one", `name="in.count" value="2"`, "a whole number, at least 1, at most 9, empty is 2", `name="in.dry" value="true" checked`,
		"matches ^[a-z ]*$", "where &lt;i&gt;to&lt;/i&gt;", "after build", "once for each of its matrix", `name="key" value="web-`, `name="ref" value="v1"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the third step lacks %q", want)
		}
	}
	for path, want := range map[string]string{
		"/start?source=shop&workflow=nope": "there is no workflow nope at main", "/start?source=shop&workflow=ci": "cannot be started by hand",
	} {
		if r := s.ask("owner", http.MethodGet, path, nil); r.StatusCode != http.StatusBadRequest || !strings.Contains(body(t, r), want) {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	s.intake.err = &ingress.RequestError{Message: "the workflows of main cannot be used", Details: []string{"ci.yaml:3: no <jobs>"}}
	if r := s.ask("owner", http.MethodGet, "/start?source=shop", nil); r.StatusCode != http.StatusBadRequest || !strings.Contains(body(t, r), "ci.yaml:3: no &lt;jobs&gt;") {
		t.Error(r.StatusCode)
	}
	if r := s.ask("auditor", http.MethodGet, "/start", nil); r.StatusCode != http.StatusForbidden {
		t.Error(r.StatusCode)
	}
}

func TestStartSaysBesideTheFieldWhatIsWrong(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	form := url.Values{
		"source": {"shop"}, "workflow": {"deploy"}, "key": {"web-1"}, "in.count": {"2.5"}, "in.share": {"much"}, "in.note": {"A <b>"},
	}
	r := s.ask("owner", http.MethodPost, "/start", form)
	text := body(t, r)
	if r.StatusCode != http.StatusBadRequest || len(s.intake.started) > 0 {
		t.Fatalf("%d, started %v", r.StatusCode, s.intake.started)
	}
	for _, want := range []string{
		"4 inputs have to be mended", ">is required<", "must be a whole number, got", "must be a number, got", "must match ^[a-z ]*$", `value="2.5"`, `value="A &lt;b&gt;"`,
		`aria-invalid="true"`, `aria-describedby="in-env-says"`, `name="key" value="web-1"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the form lacks %q", want)
		}
	}
	if strings.Contains(text, "value=\"true\" checked") {
		t.Error("the box that was not ticked is ticked")
	}
}

func TestStartStarts(t *testing.T) {
	s := newSite(t, "")
	s.addSource("shop")
	form := url.Values{"source": {"shop"}, "ref": {"main"}, "workflow": {"deploy"}, "key": {"web-1"}, "in.env": {"prod"}, "in.count": {""}, "in.share": {" 0.5"}, "in.dry": {"true"}}
	r := s.ask("owner", http.MethodPost, "/start", form)
	if got := r.Header.Get("Location"); got != "/runs/started" {
		t.Fatalf("%d %s\n%s", r.StatusCode, got, body(t, r))
	}
	got := s.intake.started[0]
	want := map[string]any{"env": "prod", "share": " 0.5", "dry": true}
	if got.Source != "shop" || got.Ref != "main" || got.Workflow != "deploy" || got.RequestID != "web-1" || got.By != "owner <i>" || !reflect.DeepEqual(got.Inputs, want) {
		t.Errorf("%+v", got)
	}
	if e := s.doors.entries[0]; e.Action != "run.trigger" || e.Target != "shop/deploy" {
		t.Errorf("%+v", e)
	}
	if r := s.ask("auditor", http.MethodPost, "/start", form); r.StatusCode != http.StatusForbidden {
		t.Error(r.StatusCode)
	}
}
