package forge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/forge/forgetest"
)

// plain is a dialect whose deliveries are events as JSON, so that tests say what a body told.
type plain struct{}

func (plain) Kind() string              { return "plain" }
func (plain) Public() string            { return "" }
func (plain) APIBase(web string) string { return web + "/api" }
func (plain) CloneUser() string         { return "git" }
func (plain) CloneURL(web, r string, ssh bool) string {
	if ssh {
		return "git@git.example.com:" + r
	}
	return web + "/" + r
}

func (plain) Verify(secret string, r source.Request) error {
	if !source.VerifySignature(secret, r.Header.Get(source.SignatureHeader), r.Body) {
		return source.ErrUnauthorized
	}
	return nil
}

func (plain) Read(r source.Request) (source.Received, error) {
	return source.Received{Delivery: source.Delivery{
		ID: r.Header.Get("X-Id"), Event: r.Header.Get("X-Event"), Action: r.Header.Get("X-Action"), Body: r.Body,
		Headers: source.StoredHeaders(r.Header),
	}}, nil
}

func (plain) Parse(d source.Delivery) (ci.Event, error) {
	var ev ci.Event
	if d.Event == "mystery" {
		return ev, source.ErrIgnored
	}
	if err := json.Unmarshal(d.Body, &ev); err != nil {
		return ev, fmt.Errorf("%w: %w", source.ErrInvalid, err)
	}
	return ev, nil
}

func (plain) ReportStatus(ctx context.Context, api *forge.API, repo string, s source.CommitStatus) error {
	return api.Do(ctx, http.MethodPost, "/"+repo+"/status", s, nil)
}

func (plain) InstallHook(ctx context.Context, api *forge.API, repo, address, secret string) error {
	return api.Do(ctx, http.MethodPost, "/"+repo+"/hook", []string{address, secret}, nil)
}

func (plain) DefaultBranch(ctx context.Context, api *forge.API, repo string) (string, error) {
	var branch string
	err := api.Do(ctx, http.MethodGet, "/"+repo, nil, &branch)
	return branch, err
}

const (
	options = `{"url":"https://git.example.com","repository":"acme/web"`
	missing = "1234567890123456789012345678901234567890"
)

// history is a mirror with two commits on main; the branch "side" is at the first.
func history() (m *forgetest.Mirror, first, second string) {
	m = &forgetest.Mirror{}
	m.Configure(source.Config{}, "main")
	first = m.Commit("refs/heads/side", "first", nil)
	second = m.Commit("refs/heads/main", "second", nil)
	m.History = []string{second, first}
	return m, first, second
}

func open(t *testing.T, options string, m forge.Mirror, secrets map[string]string) *forge.Source {
	t.Helper()
	h := forgetest.HTTP(t, forge.HTTPOptions{})
	s, err := forge.New(source.Config{ID: "1", OrgID: "default", Kind: "plain", Name: "web", Repo: "acme/web", Options: []byte(options), Secrets: secrets}, plain{}, m, forgetest.Deps(t, h))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func delivery(ev ci.Event) source.Delivery {
	body, _ := json.Marshal(ev)
	return source.Delivery{Event: "event", Body: body}
}

func TestNormalizePullRequests(t *testing.T) {
	m, first, second := history()
	s := open(t, options+`,"defaultBranch":"main"}`, m, nil)
	pr := ci.Event{Type: "pr", Action: "opened", Repo: "Acme/Web", Number: 7, Title: "A title", SHA: second, SourceBranch: "feature", TargetBranch: "side", BaseSHA: first, Ref: "refs/pull/7/head"}
	change := func(f func(*ci.Event)) ci.Event { ev := pr; f(&ev); return ev }
	ev, err := s.Normalize(t.Context(), delivery(pr))
	if err != nil || ev.Before != first || ev.Branch != "feature" || ev.Repo != "acme/web" || ev.Source != "web" || ev.DefaultBranch != "main" {
		t.Errorf("%+v %v", ev, err)
	}
	for name, tc := range map[string]struct {
		ev     ci.Event
		before string
		err    error
	}{
		"base unknown to the body":   {change(func(e *ci.Event) { e.BaseSHA = "" }), first, nil},
		"base branch gone":           {change(func(e *ci.Event) { e.BaseSHA, e.TargetBranch = "", "gone" }), "", source.ErrIgnored},
		"nothing in common":          {change(func(e *ci.Event) { e.BaseSHA = missing }), missing, nil},
		"fork":                       {change(func(e *ci.Event) { e.Fork = true }), "", source.ErrIgnored},
		"head is an option":          {change(func(e *ci.Event) { e.SHA = "--output=x" }), "", source.ErrInvalid},
		"base is an option":          {change(func(e *ci.Event) { e.BaseSHA = "--output=x" }), "", source.ErrInvalid},
		"branch is a range":          {change(func(e *ci.Event) { e.SourceBranch = "a..b" }), "", source.ErrInvalid},
		"base branch is a range":     {change(func(e *ci.Event) { e.TargetBranch = "a..b" }), "", source.ErrInvalid},
		"ref with a newline":         {change(func(e *ci.Event) { e.Ref = "refs/pull/7\n/head" }), "", source.ErrInvalid},
		"default branch is no name":  {change(func(e *ci.Event) { e.DefaultBranch = "-x" }), first, nil}, // the option wins
		"type that starts nothing":   {change(func(e *ci.Event) { e.Type = "star" }), "", source.ErrIgnored},
		"another repository":         {change(func(e *ci.Event) { e.Repo = "acme/shop" }), "", source.ErrIgnored},
		"a repository without name":  {change(func(e *ci.Event) { e.Repo = "" }), "", source.ErrIgnored},
		"before that the body gives": {change(func(e *ci.Event) { e.Before = "--output=x" }), first, nil}, // it is not used
	} {
		ev, err := s.Normalize(t.Context(), delivery(tc.ev))
		if !errors.Is(err, tc.err) || err == nil && ev.Before != tc.before {
			t.Errorf("%s: %+v %v", name, ev, err)
		}
	}
}

func TestForks(t *testing.T) {
	m, first, second := history()
	fork := delivery(ci.Event{Type: "pr", Repo: "acme/web", Number: 8, SHA: second, SourceBranch: "main", TargetBranch: "side", BaseSHA: first, Ref: "refs/pull/8/head", Fork: true})
	ev, err := open(t, options+`}`, m, nil).Normalize(t.Context(), fork)
	if !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), "pull request 8 comes from a fork") || !ev.Fork || ev.Number != 8 {
		t.Errorf("by default: %+v %v", ev, err)
	}
	ev, err = open(t, options+`,"forks":"run"}`, m, nil).Normalize(t.Context(), fork)
	if err != nil || !ev.Fork || ev.BaseSHA != first || ev.Before != first {
		t.Errorf("forks: run: %+v %v", ev, err)
	}
}

func TestRenamedRepositorySaysSo(t *testing.T) {
	m, _, second := history()
	_, err := open(t, options+`}`, m, nil).Normalize(t.Context(), delivery(ci.Event{Type: "push", Repo: "acme/shop", Ref: "refs/heads/main", SHA: second}))
	if !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), `"acme/shop"`) || !strings.Contains(err.Error(), "renamed") {
		t.Error(err)
	}
}

func TestCommentsRunOnTheDefaultBranch(t *testing.T) {
	m, _, second := history()
	s := open(t, options+`}`, m, nil)
	ev, err := s.Normalize(t.Context(), delivery(ci.Event{Type: "comment", Action: "created", Repo: "acme/web", DefaultBranch: "main", Number: 7, Comment: "/deploy\x00" + strings.Repeat("x", 1<<20), CommentOn: "pr"}))
	if err != nil || ev.SHA != second || ev.Ref != "refs/heads/main" || ev.Branch != "main" || ev.CommentOn != "pr" || ev.Number != 7 ||
		!strings.HasPrefix(ev.Comment, "/deployx") || len(ev.Comment) > 64<<10 {
		t.Errorf("%.300v %v", ev, err)
	}
	for _, branch := range []string{"gone", ""} {
		m.Configure(source.Config{}, branch)
		_, err = s.Normalize(t.Context(), delivery(ci.Event{Type: "comment", Repo: "acme/web", DefaultBranch: branch}))
		if !errors.Is(err, source.ErrIgnored) {
			t.Errorf("default branch %q: %v", branch, err)
		}
	}
	m.Fail(source.ErrUnreachable)
	if _, err = s.Normalize(t.Context(), delivery(ci.Event{Type: "comment", Repo: "acme/web", DefaultBranch: "main"})); !errors.Is(err, source.ErrUnreachable) {
		t.Error(err)
	}
}

// `source trigger` and found gaps come as kici's own payload, whatever the dialect; nobody else can send them.
func TestOwnTriggers(t *testing.T) {
	m, _, second := history()
	s := open(t, options+`,"defaultBranch":"main"}`, m, nil)
	body, _ := json.Marshal(source.Payload{Ref: "refs/heads/main", After: second, Pusher: source.PayloadPusher{Name: "ann"}})
	d := source.Delivery{Event: "push", Body: body, Headers: map[string]string{source.TriggerHeader: source.TriggerAPI}}
	ev, err := s.Normalize(t.Context(), d)
	if err != nil || ev.Type != "push" || ev.Branch != "main" || ev.SHA != second || ev.Actor != "ann" || ev.Repo != "acme/web" {
		t.Errorf("%+v %v", ev, err)
	}
	h := http.Header{}
	h.Set(source.TriggerHeader, "api")
	h.Set("X-Event", "push")
	got, err := s.Read(source.Request{Header: h, Body: body})
	if err != nil || got.Headers[source.TriggerHeader] != "" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestVerifyWhileASecretIsReplaced(t *testing.T) {
	body := []byte("{}")
	signed := func(secret string) source.Request {
		h := http.Header{}
		h.Set(source.SignatureHeader, source.Sign(secret, body))
		return source.Request{Header: h, Body: body}
	}
	m, _, _ := history()
	s := open(t, options+`}`, m, map[string]string{source.SecretWebhook: "new", source.SecretWebhookOld: "old"})
	for secret, want := range map[string]error{"new": nil, "old": nil, "other": source.ErrUnauthorized, "": source.ErrUnauthorized} {
		if err := s.Verify(signed(secret)); !errors.Is(err, want) {
			t.Errorf("%q: %v", secret, err)
		}
	}
	after := open(t, options+`}`, m, map[string]string{source.SecretWebhook: "new"})
	if err := after.Verify(signed("old")); !errors.Is(err, source.ErrUnauthorized) {
		t.Errorf("a dropped secret: %v", err)
	}
	if err := open(t, options+`}`, m, nil).Verify(signed("")); !errors.Is(err, source.ErrMisconfigured) {
		t.Errorf("no secret: %v", err)
	}
}

func TestClone(t *testing.T) {
	m, _, _ := history()
	for options, want := range map[string]source.Clone{
		`}`:               {URL: "https://git.example.com/acme/web", Username: "git", Password: "t"},
		`,"clone":"ssh"}`: {URL: "git@git.example.com:acme/web", SSHKey: "k"},
		`,"cloneUrl":"https://mirror.example.com/web.git"}`:                  {URL: "https://mirror.example.com/web.git", Username: "git", Password: "t"},
		`,"cloneUrl":"ssh://git@git.example.com:2222/web","knownHosts":"h"}`: {URL: "ssh://git@git.example.com:2222/web", SSHKey: "k", KnownHosts: "h"},
	} {
		s := open(t, `{"url":"https://git.example.com","repository":"acme/web"`+options, m, map[string]string{source.SecretToken: "t", source.SecretSSHKey: "k"})
		if got, err := s.Clone(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v %v", options, got, err)
		}
	}
	if got, _ := open(t, `{"url":"https://git.example.com","repository":"acme/web"}`, m, nil).Clone(t.Context()); got.Username != "" || got.Password != "" {
		t.Errorf("without a token: %+v", got)
	}
}

func TestOptions(t *testing.T) {
	h := forgetest.HTTP(t, forge.HTTPOptions{})
	for text, want := range map[string][]string{
		`{}`:                  {"url is required", "repository"},
		`{"repositry":"a/b"}`: {"repositry"},
		`{"url":"git.example.com","repository":"web","clone":"ftp","forks":"maybe","statuses":"all","maxPayloadBytes":-1,"defaultBranch":"a..b"}`: {"url", "owner/name", "clone is", "forks is", "statuses is", "maxPayloadBytes", "defaultBranch"},
		`{"url":"http://git.example.com","repository":"a/b"}`:                                                    {"not encrypted"},
		`{"url":"https://u:p@git.example.com","repository":"a/b"}`:                                               {"secret `token`"},
		`{"url":"https://git.example.com/?a=b","repository":"a/b"}`:                                              {"before ?"},
		`{"url":"https://git.example.com","apiUrl":"https://10.0.0.1/api","repository":"a/b"}`:                   {"apiUrl: 10.0.0.1", "allowPrivate"},
		`{"url":"https://169.254.169.254","repository":"a/b"}`:                                                   {"private network"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"/etc"}`:                                 {"cloneUrl"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"file:///etc"}`:                          {"cloneUrl"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"ext::sh -c x"}`:                         {"cloneUrl"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"--upload-pack=x"}`:                      {"cloneUrl"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"git@127.0.0.1:a/b"}`:                    {"cloneUrl: 127.0.0.1"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"https://x/a.git","clone":"ssh"}`:        {"clone: ssh"},
		`{"url":"https://git.example.com","repository":"a/b","cloneUrl":"git@x:a.git","clone":"https"}`:          {"clone: https"},
		`{"url":"https://git.example.com","repository":"a/../b"}`:                                                {"owner/name"},
		`{"url":"https://git.example.com","repository":"a/b?c"}`:                                                 {"owner/name"},
		`{"url":"https://git.example.com","repository":"a/b","knownHosts":"` + strings.Repeat("x", 1<<17) + `"}`: {"knownHosts"},
	} {
		_, err := forge.New(source.Config{Name: "web", Options: []byte(text)}, plain{}, &forgetest.Mirror{}, forgetest.Deps(t, h))
		for _, word := range want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%.200s: %v, want %q", text, err, word)
			}
		}
	}
	for _, text := range []string{
		`{"url":"http://10.0.0.1:3000/git/","repository":"a/b","allowPrivate":true}`, `{"url":"https://git.example.com","repository":"group/sub.group/b_c"}`,
	} {
		if _, err := forge.New(source.Config{Name: "web", Options: []byte(text)}, plain{}, &forgetest.Mirror{}, forgetest.Deps(t, h)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWithoutRedeliveryNobodyIsToldOtherwise(t *testing.T) {
	s, err := forge.Open(source.Config{Name: "web", Options: []byte(options + `}`)}, plain{}, &forgetest.Mirror{}, forgetest.Deps(t, forgetest.HTTP(t, forge.HTTPOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.(source.Redeliverer); ok {
		t.Error("the dialect cannot redeliver")
	}
	if _, ok := s.(source.Reporter); !ok {
		t.Error("it can report")
	}
}

func TestWithoutATokenNothingIsAsked(t *testing.T) {
	m, _, _ := history()
	s := open(t, options+`}`, m, nil)
	for what, err := range map[string]error{
		"ReportStatus": s.ReportStatus(t.Context(), source.CommitStatus{}), "InstallHook": s.InstallHook(t.Context(), "https://ci.example.com"),
	} {
		if !errors.Is(err, source.ErrDenied) || !strings.Contains(err.Error(), "no token") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b, err := s.DefaultBranch(t.Context()); err != nil || b != "main" {
		t.Errorf("git answers: %q %v", b, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A forge whose API is down or limits the rate does not keep a branch from being known; a revoked token is not passed over.
func TestDefaultBranchAndCheck(t *testing.T) {
	status, body := 0, ""
	f := serve(t, forge.HTTPOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	m, _, _ := history()
	s := open(t, fmt.Sprintf(`{"url":%q,"repository":"acme/web","allowPrivate":true}`, f.URL), m, map[string]string{source.SecretToken: forgetest.Token})
	for _, tc := range []struct {
		status       int
		body, branch string
		err, check   error
	}{
		{200, `"trunk"`, "trunk", nil, nil},
		{503, `{}`, "main", nil, source.ErrUnreachable},
		{200, `<html>`, "main", nil, source.ErrUnreachable},
		{401, `{}`, "", source.ErrDenied, source.ErrDenied},
		{404, `{}`, "", source.ErrDenied, source.ErrDenied},
	} {
		status, body = tc.status, tc.body
		b, err := s.DefaultBranch(t.Context())
		noToken(t, err)
		if b != tc.branch || !errors.Is(err, tc.err) {
			t.Errorf("%d: %q %v", tc.status, b, err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, tc.check) || errors.Is(err, source.ErrNotFound) {
			t.Errorf("%d: Check: %v", tc.status, err)
		}
	}
}
