package github

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/source/forge"
	"github.com/kici-go/kici/internal/source/forge/forgetest"
)

const (
	shaA = "1111111111111111111111111111111111111111"
	shaB = "2222222222222222222222222222222222222222"
	shaC = "3333333333333333333333333333333333333333"
)

func recorded(t testing.TB, name string) source.Request {
	t.Helper()
	return forgetest.Request(t, "testdata/"+name+".http")
}

func TestEvents(t *testing.T) {
	ignored := source.ErrIgnored
	pr := ci.Event{
		Type: "pr", Action: "opened", Number: 7, Title: "Remember the basket", SHA: shaB, BaseSHA: shaA, SourceBranch: "feature/basket",
		TargetBranch: "main", Ref: "refs/pull/7/head", Actor: "ann",
	}
	with := func(ev ci.Event, change func(*ci.Event)) ci.Event { change(&ev); return ev }
	push := ci.Event{Type: "push", Ref: "refs/heads/main", SHA: shaB, Before: shaA, Title: "Sell more\n\nThe basket remembers what was in it.", Actor: "ann"}
	tag := with(push, func(e *ci.Event) { e.Ref, e.Before = "refs/tags/v1.2.0", strings.Repeat("0", 40) })
	for name, want := range map[string]struct {
		event ci.Event
		err   error
	}{
		"push":      {push, nil},
		"push-form": {push, nil},
		"push-forced": {with(push, func(e *ci.Event) {
			e.Ref, e.SHA, e.Title = "refs/heads/feature/basket", shaC, "Rewrite"
		}), nil},
		"branch-created": {with(push, func(e *ci.Event) {
			e.Ref, e.Before = "refs/heads/feature/basket", strings.Repeat("0", 40)
		}), nil},
		"branch-deleted": {ci.Event{Type: "push", Ref: "refs/heads/feature/basket", Before: shaB, SHA: strings.Repeat("0", 40), Deleted: true, Actor: "ann"}, nil},
		"tag":            {tag, nil},
		"tag-annotated":  {tag, nil}, // the commit, not the tag's own object
		"tag-deleted":    {ci.Event{Type: "push", Ref: "refs/tags/v1.2.0", Before: shaB, SHA: strings.Repeat("0", 40), Deleted: true, Actor: "ann"}, nil},
		"pr-opened":      {pr, nil},
		"pr-synchronize": {with(pr, func(e *ci.Event) { e.Action, e.SHA = "synchronize", shaC }), nil},
		"pr-closed":      {with(pr, func(e *ci.Event) { e.Action, e.SHA = "closed", shaC }), nil},
		"pr-fork": {with(pr, func(e *ci.Event) {
			e.Number, e.SHA, e.SourceBranch, e.Ref, e.Fork, e.Actor = 8, shaC, "main", "refs/pull/8/head", true, "mallory"
		}), nil},
		"pr-fork-gone": {with(pr, func(e *ci.Event) {
			e.Action, e.Number, e.SHA, e.SourceBranch, e.Ref, e.Fork, e.Actor = "closed", 8, shaC, "main", "refs/pull/8/head", true, "mallory"
		}), nil},
		"comment-pr":     {ci.Event{Type: "comment", Action: "created", Number: 7, Title: "Remember the basket", Comment: "/deploy staging", CommentOn: "pr", Actor: "bob"}, nil},
		"comment-issue":  {ci.Event{Type: "comment", Action: "edited", Number: 3, Title: "Remember the basket", Comment: "it is broken", CommentOn: "issue", Actor: "bob"}, nil},
		"review-comment": {ci.Event{Type: "comment", Action: "created", Number: 7, Title: "Remember the basket", Comment: "why not a map?", CommentOn: "pr", Actor: "bob"}, nil},
		"ping":           {ci.Event{Actor: "ann"}, ignored},
		"star":           {ci.Event{Action: "created", Actor: "bob"}, ignored},
	} {
		r := recorded(t, name)
		got, err := Dialect{}.Read(r)
		if err != nil || got.ID == "" || got.Event != r.Header.Get("X-GitHub-Event") || got.Action != want.event.Action || got.Keyed {
			t.Errorf("%s: Read: %+v %v", name, got, err)
		}
		ev, err := Dialect{}.Parse(got.Delivery)
		want.event.Repo, want.event.DefaultBranch = "acme/web", "main"
		if !bytes.Equal(ev.Payload, got.Body) || len(ev.Payload) == 0 {
			t.Errorf("%s: the payload is not the body", name)
		}
		ev.Payload = nil
		if !errors.Is(err, want.err) || !same(ev, want.event) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, ev, want.event)
		}
	}
}

func same(a, b ci.Event) bool {
	return a.Type == b.Type && a.Action == b.Action && a.Repo == b.Repo && a.Ref == b.Ref && a.SHA == b.SHA && a.Before == b.Before &&
		a.DefaultBranch == b.DefaultBranch && a.Deleted == b.Deleted && a.TargetBranch == b.TargetBranch && a.SourceBranch == b.SourceBranch &&
		a.BaseSHA == b.BaseSHA && a.Number == b.Number && a.Fork == b.Fork && a.Comment == b.Comment && a.CommentOn == b.CommentOn &&
		a.Actor == b.Actor && a.Title == b.Title
}

func TestIgnoredEventsAreNamed(t *testing.T) {
	got, _ := Dialect{}.Read(recorded(t, "star"))
	if _, err := (Dialect{}).Parse(got.Delivery); !strings.Contains(err.Error(), `"star"`) {
		t.Error(err)
	}
	for _, event := range []string{"create", "delete"} {
		got.Event = event
		if _, err := (Dialect{}).Parse(got.Delivery); !errors.Is(err, source.ErrIgnored) || !strings.Contains(err.Error(), event) {
			t.Error(err)
		}
	}
}

func TestVerify(t *testing.T) {
	const secret = "a secret of sixteen"
	r := recorded(t, "push")
	header := func(name, value string) source.Request {
		h := r.Header.Clone()
		if name != "" {
			h.Set(name, value)
		}
		return source.Request{Header: h, Body: r.Body}
	}
	old := hmac.New(sha1.New, []byte(secret))
	old.Write(r.Body)
	if err := (Dialect{}).Verify(secret, header(headerSignature, source.Sign(secret, r.Body))); err != nil {
		t.Error(err)
	}
	// The value that GitHub's documentation gives for testing.
	known := source.Request{Body: []byte("Hello, World!"), Header: http.Header{}}
	known.Header.Set(headerSignature, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	if err := (Dialect{}).Verify("It's a Secret to Everybody", known); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		r    source.Request
		says string
	}{
		"nothing":      {header("", ""), headerSignature},
		"SHA-1 alone":  {header(headerSHA1, "sha1="+hex.EncodeToString(old.Sum(nil))), "SHA-1"},
		"wrong secret": {header(headerSignature, source.Sign("another secret of", r.Body)), ""},
		"other body":   {header(headerSignature, source.Sign(secret, append(bytes.Clone(r.Body), ' '))), ""},
		"not hex":      {header(headerSignature, "sha256=zz"), ""},
	} {
		if err := (Dialect{}).Verify(secret, tc.r); !errors.Is(err, source.ErrUnauthorized) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good := recorded(t, "push")
	for name, change := range map[string]func(*source.Request){
		"no event":    func(r *source.Request) { r.Header.Del(headerEvent) },
		"no delivery": func(r *source.Request) { r.Header.Del(headerDelivery) },
		"no body":     func(r *source.Request) { r.Body = nil },
		"a list":      func(r *source.Request) { r.Body = []byte("[]") },
		"half":        func(r *source.Request) { r.Body = r.Body[:100] },
		"no payload": func(r *source.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Body = []byte("a=b")
		},
		"broken form": func(r *source.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Body = []byte("payload=%zz")
		},
	} {
		r := source.Request{Header: good.Header.Clone(), Body: bytes.Clone(good.Body)}
		change(&r)
		if got, err := (Dialect{}).Read(r); !errors.Is(err, source.ErrInvalid) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

// A push of many commits is one big body; GitHub caps it at 25 MB, and so does the source.
func TestTenMegabyteWebhook(t *testing.T) {
	r := recorded(t, "push")
	r.Body = bytes.Replace(r.Body, []byte(`"added":["docs/new.md"]`), []byte(`"added":["`+strings.Repeat("x", 10<<20)+`"]`), 1)
	s := forgetest.Open(t, Dialect{}, "")
	got, err := s.Read(r)
	if err != nil || int64(len(r.Body)) > s.Intake().MaxBody {
		t.Fatalf("%v, limit %d", err, s.Intake().MaxBody)
	}
	if ev, err := s.Normalize(t.Context(), got.Delivery); err != nil || ev.SHA != shaB {
		t.Errorf("%s %v", ev.SHA, err)
	}
}

func TestAddresses(t *testing.T) {
	d := Dialect{}
	for _, tc := range [][2]string{
		{d.APIBase("https://github.com"), "https://api.github.com"},
		{d.APIBase("https://git.example.com"), "https://git.example.com/api/v3"},
		{d.CloneURL("https://github.com", "acme/web", false), "https://github.com/acme/web.git"},
		{d.CloneURL("https://github.com", "acme/web", true), "git@github.com:acme/web.git"},
	} {
		if tc[0] != tc[1] {
			t.Errorf("%s, want %s", tc[0], tc[1])
		}
	}
}

func TestStatuses(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/status.api"))
	report := func(s source.CommitStatus) error { return Dialect{}.ReportStatus(t.Context(), api, "acme/web", s) }
	if err := report(source.CommitStatus{SHA: shaB, Context: "kici/ci", State: source.StatusRunning, Description: "2 of 3 jobs have ended", URL: "https://ci.example.com/runs/1"}); err != nil {
		t.Error(err)
	}
	if err := report(source.CommitStatus{SHA: shaB, Context: "kici/ci/job/build", State: source.StatusError}); err != nil {
		t.Error(err)
	}
	err := report(source.CommitStatus{SHA: strings.Repeat("9", 40), State: source.StatusSuccess})
	if err == nil || !strings.Contains(err.Error(), "No commit found") || errors.Is(err, source.ErrUnreachable) {
		t.Errorf("no such commit: %v", err)
	}
	if err := report(source.CommitStatus{SHA: shaB, State: source.StatusSuccess}); !errors.Is(err, source.ErrDenied) || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("a token that may only read: %v", err)
	}
}

func TestDefaultBranch(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/repo.api"))
	if b, err := (Dialect{}).DefaultBranch(t.Context(), api, "acme/web"); err != nil || b != "trunk" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := (Dialect{}).DefaultBranch(t.Context(), api, "acme/web"); !errors.Is(err, source.ErrNotFound) {
		t.Errorf("404: %v", err)
	}
	if _, err := (Dialect{}).DefaultBranch(t.Context(), api, "acme/web"); !errors.Is(err, source.ErrDenied) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("401: %v", err)
	}
}

const address = "https://ci.example.com/webhook/default/github/web"

func TestInstallHook(t *testing.T) {
	for _, file := range []string{"hook-new", "hook-old"} {
		api := forgetest.API(t, forgetest.Replay(t, "testdata/"+file+".api"))
		if err := (Dialect{}).InstallHook(t.Context(), api, "acme/web", address, "a secret of sixteen"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestMissedDeliveries(t *testing.T) {
	api := forgetest.API(t, forgetest.Replay(t, "testdata/deliveries.api"))
	since := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	got, err := Dialect{}.Missed(t.Context(), api, "acme/web", address, since, 10)
	if err != nil || len(got) != 2 || got[0].GUID != "guid-b" || got[0].ID != "13/23" || got[0].Event != "push" || got[1].GUID != "guid-c" || !got[0].At.Before(got[1].At) {
		t.Fatalf("%+v %v", got, err)
	}
	if err := (Dialect{}).Redeliver(t.Context(), api, "acme/web", got[0].ID); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"", "13", "13/x", "../../x", "13/23/../../y"} {
		if err := (Dialect{}).Redeliver(t.Context(), api, "acme/web", id); !errors.Is(err, source.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestOpenedSourceCanRedeliver(t *testing.T) {
	s, err := forge.Open(source.Config{Kind: Kind, Name: "web", Options: []byte(`{"repository":"acme/web"}`)}, Dialect{}, &forgetest.Mirror{}, forgetest.Deps(t, forgetest.HTTP(t, forge.HTTPOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.(source.Redeliverer); !ok {
		t.Error("GitHub keeps a log of deliveries")
	}
}

func FuzzWebhook(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	var seeds []source.Request
	for _, file := range files {
		seeds = append(seeds, forgetest.Request(f, file))
	}
	forgetest.Fuzz(f, Dialect{}, seeds...)
}
